/**
 * Drafts that grow by their likeliest nodes: candidates are added behind nodes, and the one whose path is most likely
 * right is taken next. One serves all texts in turn, so that a draft costs no memory but its own.
 */
import { type Draft, NO_DRAFT } from './drafter.js';
import { MAX_DRAFTS } from './limits.js';

/** Stands for the text itself. */
export const TEXT = 0;

export class Growth {
  /** Candidates, the text before them: where they were added, their tokens, and tokens from the text. */
  readonly parents: Int16Array;
  readonly tokens: Int32Array;
  readonly depths: Uint8Array;
  private readonly chances: Float64Array;
  /** The probability that all of a path is right; of those that are taken, minus that. */
  private readonly survivals: Float64Array;
  private readonly taken = new Int16Array(MAX_DRAFTS);
  private takenCount = 0;
  private count = 1;
  private least = 0;
  private most = MAX_DRAFTS;

  /** For `children` candidates behind each node. */
  constructor(children: number) {
    const size = 1 + (MAX_DRAFTS + 1) * children;
    [this.parents, this.tokens, this.depths] = [new Int16Array(size), new Int32Array(size), new Uint8Array(size)];
    [this.chances, this.survivals] = [new Float64Array(size), new Float64Array(size)];
  }

  /** For the next draft, of at most `most` nodes, none with a path less likely than `least`. */
  begin(most: number, least: number): void {
    this.most = Math.min(most, MAX_DRAFTS);
    this.least = least;
    this.takenCount = 0;
    this.count = 1;
  }

  /** Adds what may follow a node that was taken. Returns its number, or TEXT where it is too unlikely. */
  add(parent: number, token: number, chance: number): number {
    const survival = parent === TEXT ? chance : -this.survivals[parent]! * chance;
    if (!(survival >= this.least)) return TEXT;
    const node = this.count++;
    this.parents[node] = parent;
    this.tokens[node] = token;
    this.depths[node] = this.depths[parent]! + 1;
    this.chances[node] = chance;
    this.survivals[node] = survival;
    return node;
  }

  /** Takes the likeliest candidate. TEXT: there are enough nodes, or no candidates. */
  take(): number {
    if (this.takenCount === this.most) return TEXT;
    let best = TEXT;
    let survival = 0;
    for (let node = 1; node < this.count; node++)
      if (this.survivals[node]! > survival) {
        best = node;
        survival = this.survivals[node]!;
      }
    if (best === TEXT) return TEXT;
    this.survivals[best] = -survival;
    this.taken[this.takenCount++] = best;
    return best;
  }

  get isFull(): boolean {
    return this.takenCount === this.most;
  }

  /** What was taken, the likeliest path first. */
  get draft(): Draft {
    if (this.takenCount === 0) return NO_DRAFT;
    const order: number[] = [];
    const others: number[] = [];
    let last = TEXT;
    for (let i = 0; i < this.takenCount; i++) {
      const node = this.taken[i]!;
      const isNext = this.parents[node] === last;
      if (isNext) last = node;
      (isNext ? order : others).push(node);
    }
    const isChain = others.length === 0;
    order.push(...others);
    const tokens = order.map((node) => this.tokens[node]!);
    const chances = order.map((node) => this.chances[node]!);
    if (isChain) return { tokens, chances };
    // −1 for the text, which is none of them.
    return { tokens, chances, parents: order.map((node) => order.indexOf(this.parents[node]!)) };
  }
}
