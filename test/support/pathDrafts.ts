/**
 * The function `draft` of a made-up model: it draws what the model will draw, where it is to be right. It has keys of
 * its own in the model's rows, and checks that they are those of the path; with `ahead` 1 it goes on from features.
 */
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import type { DraftFunction, StepAnswer, StepLimits } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { type Inputs, type Kept, mix, type RightToken } from './pathDigest.js';

export interface PathDraftOptions {
  /** Default: 0. */
  readonly ahead?: 0 | 1;
  readonly limits?: Partial<StepLimits>;
  readonly maxLength?: number;
  /** Whether what it draws behind a path of this digest is what the model draws. Default: always. */
  readonly isRight?: (digest: number) => boolean;
  /** The probability that it gives what it draws. */
  readonly confidence?: (isRight: boolean) => number;
  /** One path in so many has values that are not finite. Default: none. */
  readonly failsOneIn?: number;
  /** Calls, counted from 0, that fail, and those in which the device ends. */
  readonly failsAt?: ReadonlySet<number>;
  readonly lostAt?: ReadonlySet<number>;
}

interface Made {
  readonly vocab: number;
  readonly seed: number;
  readonly rightToken: RightToken;
}

export class PathDrafts implements DraftFunction {
  readonly name = 'model';
  readonly ahead: 0 | 1;
  readonly maxLength: number | undefined;
  readonly limits: { readonly tokens: number; readonly keys: number; readonly rows: number };
  /** `errors`: what no model should be asked. */
  readonly totals = { calls: 0, tokens: 0, rows: 0, errors: [] as string[] };
  /** Of each row of the memory, what a step computed there, or a draft in its place: the digest of the path. */
  readonly features: (number | undefined)[] = [];
  private readonly model: Made;
  private readonly options: PathDraftOptions;
  private readonly rows: (Kept | undefined)[] = [];
  private drawn = new Map<number, number>();

  constructor(model: Made, options: PathDraftOptions = {}) {
    this.model = model;
    this.options = options;
    this.ahead = options.ahead ?? 0;
    this.maxLength = options.maxLength;
    this.limits = { tokens: 100, keys: 4096, rows: 32, ...options.limits };
  }

  /** Returns the number of the call. */
  count({ tokens, row }: Pick<StepInputs, 'tokens' | 'row'>): number {
    const { tokens: most, rows } = this.limits;
    if (tokens.length > most || row.length > rows) this.refuse(`${tokens.length} tokens and ${row.length} rows`);
    this.totals.tokens += tokens.length;
    this.totals.rows += row.length;
    return this.totals.calls++;
  }

  isLostAt(call: number): boolean {
    return this.options.lostAt?.has(call) === true;
  }

  copy(from: number, to: number): void {
    this.rows[to] = this.rows[from];
    this.features[to] = this.features[from];
  }

  /** Rows from this one on have no memory. */
  cut(rows: number): void {
    this.rows.length = Math.min(this.rows.length, rows);
    this.features.length = Math.min(this.features.length, rows);
  }

  compute(inputs: Inputs, call: number): StepAnswer {
    const { isRight = () => true, confidence = (right: boolean) => (right ? 0.9 : 0.3) } = this.options;
    const { failsOneIn = Infinity, failsAt } = this.options;
    const made = this.write(inputs);
    const behind = Array.from(inputs.row, (token) => made[token]!);
    behind.forEach(({ digest }, r) => {
      const place = this.ahead === 1 ? inputs.keepFeature[r]! : -1;
      if (place >= 0) this.features[place] = digest;
    });
    const isFailing = behind.map(({ digest }) => mix(digest, 6) / 2 ** 32 < 1 / failsOneIn);
    const rights = behind.map(({ digest }) => isRight(digest));
    const next = behind.map(({ digest }, r) => {
      const token = this.model.rightToken(digest, inputs, r);
      return rights[r] === true ? token : (token + 1 + (digest % (this.model.vocab - 1))) % this.model.vocab;
    });
    this.drawn = new Map(next.flatMap((token, r) => (inputs.keep[r]! >= 0 ? [[inputs.keep[r]!, token] as const] : [])));
    if (failsAt?.has(call) === true) throw new Error('a call of draft failed');
    return {
      ...{ logProb: new Float32Array(0), isArgmax: new Int32Array(0) },
      nextToken: Int32Array.from(next, (token, r) => (isFailing[r] === true ? -1 : token)),
      nextTokenLogProb: Float32Array.from(rights, (right, r) =>
        isFailing[r] === true ? NaN : Math.log(confidence(right)),
      ),
    };
  }

  /** Whoever asks takes errors for drafts that are not there: they are listed. */
  private refuse(what: string): never {
    this.totals.errors.push(what);
    throw new Error(`draft: ${what}`);
  }

  private write({ tokens, isFed, feed, position, slot, begin, key, feature }: Inputs): readonly Kept[] {
    return Array.from(tokens, (given, t) => {
      const token = isFed[t] === 1 ? this.drawn.get(feed[t]!)! : given;
      if (!(token >= 0 && token < this.model.vocab)) this.refuse(`token ${token}`);
      const at = position[t]!;
      let digest = this.model.seed;
      for (let k = 0; k < at; k++) {
        const kept = this.rows[key[begin[t]! + k]!];
        if (kept === undefined) this.refuse(`token ${t} sees a key that was never written`);
        // A page that others share ends with what followed it in their texts.
        const isShared = this.ahead === 1 && k % PAGE_TOKENS === 0;
        if (k > 0 || this.ahead === 0)
          if (kept.before !== digest && !isShared) this.refuse(`token ${t} sees another path's key at ${k}`);
        ({ digest } = kept);
      }
      const before = this.ahead === 1 ? this.features[feature[t]!] : digest;
      if (before === undefined) this.refuse(`token ${t} has features that nobody computed`);
      if (at > 0 && at % PAGE_TOKENS > 0 && before !== digest)
        this.refuse(`token ${t} at ${at} has features of another path`);
      return (this.rows[slot[t]!] = { token, before, digest: mix(before, token) });
    });
  }
}
