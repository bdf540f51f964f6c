/**
 * The tokens of a sequence whose logits change: biases, tokens that are banned, and those that penalties know. Lists
 * follow the sequence as it grows, and back where what was drawn is drawn again.
 */
import { isPenalised, type Sampling } from './sampling.js';

/** A list as a call takes it (ir/sampleInputs): arrays of one length. */
export interface EntryLists {
  readonly token: Int32Array;
  readonly bias: Float32Array;
  readonly count: Int32Array;
}

export interface EntryOptions {
  readonly sampling: Sampling;
  readonly promptLength: number;
  /** Tokens of the model's vocabulary; biases of others are left out. */
  readonly vocab: number;
  readonly banned?: ReadonlySet<number> | undefined;
}

export class TokenEntries {
  /** Whether penalties ask which tokens came before. */
  readonly counts: boolean;
  private readonly promptLength: number;
  private readonly vocab: number;
  private readonly places = new Map<number, number>();
  private token = new Int32Array(16);
  private bias = new Float32Array(16);
  private count = new Int32Array(16);
  private isPrompt = new Uint8Array(16);
  private readonly ownBias = new Map<number, number>();
  private readonly banned: ReadonlySet<number>;
  private isBanning = false;
  /** Tokens of the sequence that are counted. */
  private counted = 0;

  constructor({ sampling, promptLength, vocab, banned = new Set() }: EntryOptions) {
    this.counts = isPenalised(sampling);
    this.promptLength = promptLength;
    this.vocab = vocab;
    this.banned = new Set([...banned].filter((token) => token < vocab));
    for (const [token, bias] of sampling.logitBias)
      if (token < vocab) this.ownBias.set(token, (this.ownBias.get(token) ?? 0) + bias);
    for (const [token, bias] of this.ownBias) this.bias[this.placeOf(token)] = bias;
    for (const token of this.banned) this.placeOf(token);
  }

  /** Entries of the list at most, of a sequence with this many tokens. */
  maxAt(length: number): number {
    const most = this.places.size + (this.counts ? Math.max(0, length - this.counted) : 0);
    return Math.min(most, this.vocab);
  }

  /**
   * The list for the token after `tokens`. The last of them is not counted where it was generated: the device knows it,
   * and counts it itself.
   */
  listAfter(tokens: readonly number[], isBanning: boolean): EntryLists {
    if (isBanning !== this.isBanning) this.ban(isBanning);
    if (this.counts) this.countTo(tokens, Math.max(this.promptLength, tokens.length - 1));
    const { size } = this.places;
    return {
      token: this.token.subarray(0, size),
      bias: this.bias.subarray(0, size),
      count: this.count.subarray(0, size),
    };
  }

  private ban(isBanning: boolean): void {
    this.isBanning = isBanning;
    for (const token of this.banned)
      this.bias[this.placeOf(token)] = isBanning ? -Infinity : (this.ownBias.get(token) ?? 0);
  }

  private countTo(tokens: readonly number[], length: number): void {
    for (; this.counted < length; this.counted++) {
      const at = this.placeOf(tokens[this.counted]!);
      if (this.counted < this.promptLength) this.isPrompt[at] = 1;
      this.count[at] = Math.max(0, this.count[at]!) + (this.counted < this.promptLength ? 0 : 1);
    }
    while (this.counted > length) {
      const at = this.placeOf(tokens[--this.counted]!);
      const left = this.count[at]! - 1;
      this.count[at] = left > 0 || this.isPrompt[at] === 1 ? left : -1;
    }
  }

  private placeOf(token: number): number {
    const known = this.places.get(token);
    if (known !== undefined) return known;
    const at = this.places.size;
    if (at === this.token.length) this.grow();
    this.places.set(token, at);
    this.token[at] = token;
    this.count[at] = -1;
    return at;
  }

  private grow(): void {
    const length = 2 * this.token.length;
    const [token, bias, count, isPrompt] = [this.token, this.bias, this.count, this.isPrompt];
    (this.token = new Int32Array(length)).set(token);
    (this.bias = new Float32Array(length)).set(bias);
    (this.count = new Int32Array(length)).set(count);
    (this.isPrompt = new Uint8Array(length)).set(isPrompt);
  }
}
