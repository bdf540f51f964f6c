/**
 * A text that is expected, as a file that is written again with a few changes: it is the draft while the text goes that
 * way, and where the two part, from where they are found to agree again.
 */
import { type Draft, type Drafter, type DraftText, NO_DRAFT } from './drafter.js';
import { MAX_DRAFTS } from './limits.js';

/** Places that are looked at for one that fits; a text that repeats itself has more. */
const LOOKS = 64;

/** What is expected of a text. Made once, and shared by all texts of which it is expected. */
export class Prediction {
  readonly tokens: Int32Array;
  /** Places behind two tokens by the hash of these, those of a hash ascending and one behind the other. */
  private readonly places: Int32Array;
  private readonly begins: Int32Array;
  private readonly shift: number;

  constructor(tokens: ArrayLike<number>) {
    this.tokens = Int32Array.from(tokens);
    const { length } = this.tokens;
    const bits = Math.max(1, Math.ceil(Math.log2(length + 1)));
    this.shift = 32 - bits;
    const ends = new Int32Array(2 ** bits + 1);
    for (let at = 2; at <= length; at++) ends[this.hashAt(at) + 1]!++;
    for (let slot = 1; slot < ends.length; slot++) ends[slot]! += ends[slot - 1]!;
    this.begins = ends.slice();
    this.places = new Int32Array(Math.max(0, length - 1));
    for (let at = 2; at <= length; at++) this.places[ends[this.hashAt(at)]!++] = at;
  }

  /**
   * The first place from `from` on that is behind these two tokens; where there is none, the last before. Undefined
   * where neither is found soon.
   */
  behind(before: number, token: number, from: number): number | undefined {
    const { tokens, places, begins } = this;
    const slot = this.hashOf(before, token);
    const [begin, end] = [begins[slot]!, begins[slot + 1]!];
    let [low, high] = [begin, end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[middle]! < from) low = middle + 1;
      else high = middle;
    }
    const fits = (at: number): boolean => tokens[at - 2] === before && tokens[at - 1] === token;
    for (let i = low; i < Math.min(end, low + LOOKS); i++) if (fits(places[i]!)) return places[i];
    for (let i = low - 1; i >= Math.max(begin, low - LOOKS); i--) if (fits(places[i]!)) return places[i];
    return undefined;
  }

  private hashAt(at: number): number {
    return this.hashOf(this.tokens[at - 2]!, this.tokens[at - 1]!);
  }

  private hashOf(before: number, token: number): number {
    return Math.imul(Math.imul(before, 0x9e3779b1) ^ token, 0x85ebca6b) >>> this.shift;
  }
}

/** Where a text stands in what is expected of it. */
export class Followed {
  private readonly prediction: Prediction;
  private at = 0;
  private last = -1;
  private isLost = false;
  private foreseenTokens = 0;

  constructor(prediction: Prediction) {
    this.prediction = prediction;
  }

  /** Tokens of the text that were the next ones of the prediction. */
  get foreseen(): number {
    return this.foreseenTokens;
  }

  /** The text has another token. */
  take(token: number): void {
    const { prediction, last } = this;
    this.last = token;
    if (prediction.tokens[this.at] === token) {
      this.at++;
      this.foreseenTokens++;
      this.isLost = false;
      return;
    }
    const found = prediction.behind(last, token, this.at);
    this.isLost = found === undefined;
    if (found !== undefined) this.at = found;
  }

  /** At most `most` tokens that are expected next; none while it is not known where the text goes on. */
  next(most: number): readonly number[] {
    const { tokens } = this.prediction;
    return this.isLost ? [] : Array.from(tokens.subarray(this.at, this.at + Math.min(most, MAX_DRAFTS)));
  }
}

/** Proposes what is expected, and where that says nothing, what `otherwise` does. */
export function predicting(prediction: Prediction, otherwise?: Drafter): Drafter {
  return {
    name: 'prediction',
    begin: (text) => {
      const followed = new Followed(prediction);
      const other = otherwise?.begin(text);
      let taken = text.promptLength;
      return {
        propose: (now: DraftText, most: number): Draft => {
          for (; taken < now.tokens.length; taken++) followed.take(now.tokens[taken]!);
          // It follows the text in any case.
          const proposed = other?.propose(now, most) ?? NO_DRAFT;
          const tokens = followed.next(most);
          return tokens.length > 0 ? { tokens } : proposed;
        },
        end: (over) => other?.end?.(over),
      };
    },
  };
}
