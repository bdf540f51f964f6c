/**
 * What a model's steps take: a fixed time, one for each token and one for each key, learned from the steps themselves.
 */

/** A step weighs this much less for each that came after it. */
const DECAY = 0.995;
/** Added to the diagonal, as a share of it, so that sizes which never change leave the rest to be found. */
const RIDGE = 1e-6;

export interface StepCost {
  /** Seconds of a step, whatever it computes. */
  readonly step: number;
  /** Seconds of a token, and of a key that a sequence reads. */
  readonly token: number;
  readonly key: number;
}

/** Least squares over past steps, none of whose three times is negative. */
export class StepTimes {
  /** Steps, and the device seconds that they took. */
  steps = 0;
  seconds = 0;
  /** What the last one took, in milliseconds, and when it was answered, by performance.now(). */
  lastMs = 0;
  answered = 0;
  private shortest = Infinity;
  /** Sums of products of 1, tokens and keys, and of each with seconds; older steps weigh less. */
  private readonly products = new Float64Array(9);
  private readonly times = new Float64Array(3);

  /** A step is answered now. It began when it was sent, or when the one before it ended, both by performance.now(). */
  answer(sent: number, tokens: number, keys: number): void {
    const now = performance.now();
    this.lastMs = now - Math.max(sent, this.answered);
    this.answered = now;
    this.add(tokens, keys, this.lastMs / 1000);
  }

  /** A step of `tokens` new tokens, whose sequences had `keys` tokens in all, took `seconds` of the device. */
  add(tokens: number, keys: number, seconds: number): void {
    this.steps++;
    this.seconds += seconds;
    this.shortest = Math.min(this.shortest * 1.0005, seconds);
    const x = [1, tokens, keys];
    for (let i = 0; i < 3; i++) {
      this.times[i] = DECAY * this.times[i]! + x[i]! * seconds;
      for (let j = 0; j < 3; j++) this.products[3 * i + j] = DECAY * this.products[3 * i + j]! + x[i]! * x[j]!;
    }
  }

  get cost(): StepCost {
    if (this.steps === 0) return { step: 0, token: 0, key: 0 };
    for (const kept of [[0, 1, 2], [0, 1], [1, 2], [1]]) {
      const found = this.solve(kept);
      if (found === undefined) continue;
      const [step = 0, token = 0, key = 0] = found;
      if (step >= 0 && token >= 0 && key >= 0) return { step: Math.min(step, this.shortest), token, key };
    }
    return { step: this.shortest, token: 0, key: 0 };
  }

  /** Coefficients, zero where they are not `kept`; undefined where steps do not tell them apart. */
  private solve(kept: readonly number[]): readonly number[] | undefined {
    const n = kept.length;
    const rows = kept.map((i) => [
      ...kept.map((j) => this.products[3 * i + j]! * (i === j ? 1 + RIDGE : 1)),
      this.times[i]!,
    ]);
    for (let k = 0; k < n; k++) {
      const pivot = rows[k]![k]!;
      if (!(pivot > 1e-9 * this.products[4 * kept[k]!]!)) return undefined;
      for (let i = k + 1; i < n; i++) {
        const factor = rows[i]![k]! / pivot;
        for (let j = k; j <= n; j++) rows[i]![j]! -= factor * rows[k]![j]!;
      }
    }
    const found = [0, 0, 0];
    for (let k = n - 1; k >= 0; k--) {
      let sum = rows[k]![n]!;
      for (let j = k + 1; j < n; j++) sum -= rows[k]![j]! * found[kept[j]!]!;
      found[kept[k]!] = sum / rows[k]![k]!;
    }
    return found;
  }
}
