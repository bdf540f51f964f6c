/** Who says which tokens may come next. It may think: meanwhile its sequence takes no part in steps, and others do. */

/**
 * Tokens that are allowed: bit t % 32 of word t >> 5 stands for token t. ⌈vocabulary / 32⌉ words. One that was given is
 * never changed. Rows of a step that have the same object share its bytes.
 */
export type TokenMask = Uint32Array;

/** Follows one continuation. */
export interface GuideState {
  /**
   * The tokens that may come behind all that were taken, the last of which is `token`; none before the first. Tokens
   * that end the text are among them where it may end. Rejects where nothing may come: the continuation fails.
   */
  next(token?: number): TokenMask | Promise<TokenMask>;
  /** The continuation is over. Called once; what is asked at the time need not be answered. */
  close(): void;
}

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
  return {
    begin: (sample) => {
      const state = guide.begin(sample);
      return {
        next: (token) => {
          const mask = state.next(token);
          return mask instanceof Promise ? mask.then(both) : both(mask);
        },
        close: () => state.close(),
      };
    },
  };
}

/** What a guided continuation tells the loop that computes it. */
export interface GuidedListener {
  /** The mask of the next token is there. */
  onMask(): void;
  onFail(error: Error): void;
}

/** The masks of one continuation, each asked for as soon as the token before it is known. */
export class Guided {
  /** Of the next token; undefined while the guide thinks. */
  mask: TokenMask | undefined;
  /** When that was asked for, in milliseconds. */
  asked = 0;
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
    this.mask = undefined;
    this.ask(() => this.state!.next(token));
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
    const words = Math.ceil(this.vocab / 32);
    if (!(mask instanceof Uint32Array && mask.length === words))
      return this.fail(new Error(`a guide gave no mask of ${words} words, which ${this.vocab} tokens have`));
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
    for (const { mask, asked } of this.all) if (mask === undefined && asked > since) return true;
    return false;
  }
}
