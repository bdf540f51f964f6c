/**
 * Who says which tokens may come next. It may think: meanwhile its sequence takes no part in steps, and others do. Of
 * drafts it says what may come behind each of them, in one answer.
 */
import type { Draft } from '../draft/drafter.js';
import { childOf, type DraftTree, placesIn } from './draftTree.js';

/**
 * Tokens that are allowed: bit t % 32 of word t >> 5 stands for token t. ⌈vocabulary / 32⌉ words. One that was given is
 * never changed. Rows of a step that have the same object share its bytes.
 */
export type TokenMask = Uint32Array;

/** Follows one continuation. */
export interface GuideState {
  /**
   * The tokens that may come behind all that were taken, the last of which are `tokens`: none before the first, and
   * one, or several where it has answered for drafts. Tokens that end the text are among them where it may end. Rejects
   * where nothing may come: the continuation fails.
   */
  next(...tokens: readonly number[]): TokenMask | Promise<TokenMask>;
  /**
   * What `next` would say behind each node of drafts, of which none is taken, but `tokens` are: undefined for a draft
   * that may not come, and behind one that ends the text. Where it rejects, drafts are lost and nothing else. Absent:
   * the continuation takes no drafts.
   */
  ahead?(tokens: readonly number[], drafts: GuidedDrafts): AheadMasks | Promise<AheadMasks>;
  /** The continuation is over. Called once; what is asked at the time need not be answered. */
  close(): void;
}

/** Drafts by the places of their parents, which come before them; −1: the last token that was taken. */
export type GuidedDrafts = Pick<DraftTree, 'tokens' | 'parents'>;
export type AheadMasks = readonly (TokenMask | undefined)[];

export interface TokenGuide {
  /** The mask of all tokens, where that is the same whatever is taken. No state is begun then. */
  readonly fixed?: TokenMask;
  /** `sample`: the number of the continuation among those of its prompt. */
  begin(sample: number): GuideState;
}

/** Allows `tokens` and no others, of `vocab`; with another guide, those of them that it allows. */
export function onlyTokens(tokens: readonly number[], vocab: number, guide?: TokenGuide): TokenGuide {
  const own = new Uint32Array(Math.ceil(vocab / 32));
  for (const token of tokens) own[token >> 5]! |= 1 << (token & 31);
  if (guide === undefined) return { fixed: own, begin: () => ({ next: () => own, close: () => undefined }) };
  const both = (mask: TokenMask): TokenMask => mask.map((word, at) => word & own[at]!);
  const all = (masks: AheadMasks): AheadMasks => masks.map((mask) => mask && both(mask));
  return {
    begin: (sample) => {
      const state = guide.begin(sample);
      const { ahead } = state;
      return {
        next: (...tokens) => changed(state.next(...tokens), both),
        ...(ahead && { ahead: (tokens, drafts) => changed(ahead.call(state, tokens, drafts), all) }),
        close: () => state.close(),
      };
    },
  };
}

const changed = <T>(value: T | Promise<T>, change: (value: T) => T): T | Promise<T> =>
  value instanceof Promise ? value.then(change) : change(value);

/** Whether a mask has a token. */
export const isAllowedBy = (mask: TokenMask, token: number): boolean =>
  ((mask[token >> 5] ?? 0) & (1 << (token & 31))) !== 0;

/** What a guided continuation tells the loop that computes it. */
export interface GuidedListener {
  /** The mask of the next token is there. */
  onMask(): void;
  /** Those behind the drafts that it was asked about are there, or will not come. */
  onAhead(): void;
  onFail(error: Error): void;
}

/** Drafts of a continuation that its guide was asked about. */
interface Ahead {
  readonly drafts: GuidedDrafts;
  /** Of each node; undefined while the guide thinks, and for drafts that may not come. */
  masks: AheadMasks | undefined;
  /** The node that was taken last; −1: none. */
  node: number;
}

/**
 * The masks of one continuation, each asked for as soon as the token before it is known; and those behind its drafts,
 * which are there already where a draft becomes the next token.
 */
export class Guided {
  /** Of the next token; undefined while the guide thinks. */
  mask: TokenMask | undefined;
  /** When that was asked for, or those behind drafts, in milliseconds. */
  asked = 0;
  private ahead: Ahead | undefined;
  /** Tokens that were taken, and that the guide was not told. */
  private untold: number[] = [];
  private readonly guide: TokenGuide;
  private readonly sample: number;
  readonly vocab: number;
  private state: GuideState | undefined;
  private listener: GuidedListener | undefined;
  private isClosed = false;

  /** `vocab`: tokens of the model's vocabulary. */
  constructor(guide: TokenGuide, sample: number, vocab: number) {
    this.guide = guide;
    this.sample = sample;
    this.vocab = vocab;
  }

  /** Whether all tokens have the same mask, so that nobody need know one before the next is drawn. */
  get isFixed(): boolean {
    return this.guide.fixed !== undefined;
  }

  /** Asks for the first mask. Does nothing where that was done. */
  begin(listener: GuidedListener): void {
    if (this.isClosed || this.listener !== undefined) return;
    this.listener = listener;
    const { fixed } = this.guide;
    if (fixed !== undefined) return this.take(fixed);
    this.ask(() => {
      this.state = this.guide.begin(this.sample);
      return this.state.next();
    });
  }

  /** The token is taken, and another will follow. */
  advance(token: number): void {
    if (this.isFixed) return;
    this.untold.push(token);
    this.mask = undefined;
    const { ahead } = this;
    if (ahead?.masks !== undefined) {
      ahead.node = childOf(ahead.drafts, ahead.node, token);
      const known = ahead.masks[ahead.node];
      if (known !== undefined) return this.take(known);
    }
    this.ahead = undefined;
    this.ask(() => this.state!.next(...this.untold.splice(0)));
  }

  /** Whether it says what may come behind drafts. */
  get takesDrafts(): boolean {
    return this.isFixed || this.state?.ahead !== undefined;
  }

  /** Whether the masks behind its drafts are not there yet. */
  get isLooking(): boolean {
    return this.ahead !== undefined && this.ahead.masks === undefined;
  }

  /** Asks for the masks behind drafts. That of the next token is there. */
  look(drafts: GuidedDrafts): void {
    const { fixed } = this.guide;
    const ahead: Ahead = { drafts, masks: undefined, node: -1 };
    this.ahead = ahead;
    this.asked = performance.now();
    const take = (masks: AheadMasks): void => {
      if (this.isClosed || this.ahead !== ahead) return;
      ahead.masks = drafts.tokens.map((_, node) => (this.isMask(masks[node]) ? masks[node] : undefined));
      this.listener?.onAhead();
    };
    const { mask } = this;
    const mayCome = drafts.tokens.some((token, node) => drafts.parents[node]! < 0 && isAllowedBy(mask!, token));
    if (!mayCome) return take([]);
    try {
      const answer =
        fixed === undefined ? this.state!.ahead!(this.untold.splice(0), drafts) : drafts.tokens.map(() => fixed);
      if (answer instanceof Promise) answer.then(take, () => take([]));
      else take(answer);
    } catch {
      take([]);
    }
  }

  /** What is left of the drafts that it was asked about: those that may come, behind which something may come. */
  get allowedDrafts(): Draft {
    const left = { tokens: [] as number[], parents: [] as number[] };
    const { drafts, masks } = this.ahead ?? {};
    if (drafts === undefined || masks === undefined || this.mask === undefined) return left;
    const places: (number | undefined)[] = [];
    drafts.tokens.forEach((token, node) => {
      const parent = drafts.parents[node]!;
      const before = parent < 0 ? this.mask! : masks[parent];
      const place = parent < 0 ? -1 : places[parent];
      if (place === undefined || masks[node] === undefined || !isAllowedBy(before!, token)) return;
      places[node] = left.tokens.length;
      left.tokens.push(token);
      left.parents.push(place);
    });
    return left;
  }

  /** The mask behind each node of drafts; undefined for those that it was not asked about. */
  masksBehind(drafts: GuidedDrafts): AheadMasks {
    const { ahead } = this;
    if (ahead === undefined) return [];
    return placesIn(ahead.drafts, drafts).map((place) => ahead.masks?.[place]);
  }

  private isMask(mask: unknown): mask is TokenMask {
    return mask instanceof Uint32Array && mask.length === Math.ceil(this.vocab / 32);
  }

  /** Nothing more is asked, and what still comes counts for nothing. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    try {
      this.state?.close();
    } catch {
      // The continuation is over whatever its guide says.
    }
  }

  private ask(next: () => TokenMask | Promise<TokenMask>): void {
    if (this.isClosed) return;
    this.asked = performance.now();
    try {
      const answer = next();
      if (answer instanceof Uint32Array) this.take(answer);
      else
        Promise.resolve(answer).then(
          (mask) => this.take(mask),
          (error: unknown) => this.fail(error),
        );
    } catch (error) {
      this.fail(error);
    }
  }

  private take(mask: TokenMask): void {
    if (this.isClosed) return;
    if (!this.isMask(mask)) {
      const words = Math.ceil(this.vocab / 32);
      return this.fail(new Error(`a guide gave no mask of ${words} words, which ${this.vocab} tokens have`));
    }
    this.mask = mask;
    this.listener?.onMask();
  }

  private fail(error: unknown): void {
    if (!this.isClosed) this.listener?.onFail(error instanceof Error ? error : new Error(String(error)));
  }
}

/** Whether a mask allows one of `vocab` tokens that is not banned. */
export function allowsAny(mask: TokenMask, vocab: number, banned: ReadonlySet<number> = new Set()): boolean {
  const bannedIn = new Map<number, number>();
  for (const token of banned) bannedIn.set(token >> 5, (bannedIn.get(token >> 5) ?? 0) | (1 << (token & 31)));
  const last = vocab >> 5;
  return mask.some((word, at) => {
    const inside = at === last ? (1 << (vocab & 31)) - 1 : -1;
    return (word & inside & ~(bannedIn.get(at) ?? 0)) !== 0;
  });
}

/** A step waits for masks that were just asked for, by this share of what the last one took: others lose no more. */
const WAIT_SHARE = 1 / 20;

/** The guided sequences of a loop. */
export class GuidedSet {
  private readonly all = new Set<Guided>();

  get size(): number {
    return this.all.size;
  }

  add(guided: Guided | undefined): void {
    if (guided !== undefined) this.all.add(guided);
  }

  delete(guided: Guided | undefined): void {
    if (guided !== undefined) this.all.delete(guided);
  }

  /**
   * Settles when all masks are there but those that were asked for too long ago, `stepMs` being the time of a step; so
   * sequences whose masks come at nearly the same time are in one step. Undefined where there is nothing to wait for.
   */
  wait(stepMs: number): Promise<void> | undefined {
    return this.isNear(stepMs) ? this.poll(stepMs) : undefined;
  }

  private async poll(stepMs: number): Promise<void> {
    while (this.isNear(stepMs)) await new Promise((resolve) => setImmediate(resolve));
  }

  private isNear(stepMs: number): boolean {
    const since = performance.now() - WAIT_SHARE * stepMs;
    for (const { mask, isLooking, asked } of this.all)
      if ((mask === undefined || isLooking) && asked > since) return true;
    return false;
  }
}
