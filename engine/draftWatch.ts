/**
 * What became of the latest draft of a text, node by node, as its tokens become known: whether steps computed it or
 * not. So drafts are scored while none are computed, and those that were not worth a row are scored with the others.
 */
import type { TextAcceptance } from '../draft/acceptance.js';
import type { Survivals } from '../draft/allocate.js';
import type { Draft } from '../draft/drafter.js';
import { UNREAD } from './sequence.js';

const ROOT = -1;

export const parentOf = ({ parents }: Draft, node: number): number => parents?.[node] ?? node - 1;

export class DraftWatch {
  readonly acceptance: TextAcceptance;
  private draft: Draft | undefined;
  /** The last node that is a token of the text, and how many are. */
  private node = ROOT;
  private depth = 0;
  /** Tokens of the text when it was proposed. */
  private from = 0;

  constructor(acceptance: TextAcceptance) {
    this.acceptance = acceptance;
  }

  /** Whether it can still turn out right. */
  get isOpen(): boolean {
    return this.draft !== undefined;
  }

  /** A draft of a text of `length` tokens takes the place of the one before. */
  begin(draft: Draft, length: number): void {
    if (this.draft !== undefined && this.depth > 0) this.close();
    this.draft = draft;
    this.node = ROOT;
    this.depth = 0;
    this.from = length;
    if (draft.tokens.length === 0) this.close();
  }

  /** The text has more tokens. */
  advance(tokens: readonly number[]): void {
    for (;;) {
      const { draft } = this;
      const token = tokens[this.from + this.depth];
      if (draft === undefined || token === undefined || token === UNREAD) return;
      let next: number | undefined;
      let isLeaf = true;
      for (let node = this.node + 1; node < draft.tokens.length; node++) {
        if (parentOf(draft, node) !== this.node) continue;
        isLeaf = false;
        const isRight = next === undefined && draft.tokens[node] === token;
        if (isRight) next = node;
        this.acceptance.note(this.depth + 1, draft.chances?.[node], isRight);
      }
      if (next !== undefined) {
        this.node = next;
        this.depth++;
      }
      if (isLeaf || next === undefined) return this.close();
    }
  }

  private close(): void {
    this.draft = undefined;
    this.acceptance.noteRound(this.depth);
  }

  /** The chances that the nodes of a draft are accepted with all before them. */
  survivals(draft: Draft): Survivals {
    return this.survivalsBelow(draft, ROOT, 0);
  }

  /**
   * What a step is expected to accept that comes when `unread` tokens more are known: what is left of the draft, or
   * what such a text accepts in the mean, whichever is more.
   */
  foreseen(unread: number): Survivals {
    const usual = this.acceptance.reached();
    if (this.draft === undefined) return usual;
    const left = this.survivalsBelow(this.draft, this.node, this.depth, unread);
    return sumOf(left) > sumOf(usual) ? left : usual;
  }

  private survivalsBelow(draft: Draft, root: number, depth: number, unread = 0): number[] {
    const survivals: number[] = [];
    const known = new Map<number, { readonly depth: number; readonly survival: number }>([
      [root, { depth, survival: 1 }],
    ]);
    for (let node = root + 1; node < draft.tokens.length; node++) {
      const parent = known.get(parentOf(draft, node));
      if (parent === undefined) continue;
      const chance = this.acceptance.chanceOf(parent.depth + 1, draft.chances?.[node]);
      const own = { depth: parent.depth + 1, survival: parent.survival * chance };
      known.set(node, own);
      if (own.depth > depth + unread) survivals.push(own.survival);
    }
    return survivals;
  }
}

const sumOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);

/** The nodes of a draft at `places`, ascending, which hold the parent of each. */
export function prunedDraft(draft: Draft, places: readonly number[]): Draft {
  if (places.length === draft.tokens.length) return draft;
  const kept = new Map<number, number>([[ROOT, ROOT]]);
  places.forEach((node, at) => kept.set(node, at));
  const { chances } = draft;
  const parents = places.map((node) => kept.get(parentOf(draft, node))!);
  return {
    tokens: places.map((node) => draft.tokens[node]!),
    ...(parents.every((parent, at) => parent === at - 1) ? {} : { parents }),
    ...(chances === undefined ? {} : { chances: places.map((node) => chances[node]!) }),
  };
}
