/** What the thread that speaks HTTP counts of a model's requests: once a request, and a few additions a token. */
import { Buckets } from '../../system/buckets.js';
import type { FinishReason } from '../choices.js';

/** Why a continuation ended, as the label `finished_reason` says it. */
export type Finished = FinishReason | 'error';

/** Bounds of histograms, those of vLLM. In seconds. */
const FIRST_TOKEN = [
  ...[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640],
  2560,
];
const NEXT_TOKEN = [...[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]];
const WHOLE = [...[0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]];
const CHOICES = [1, 2, 5, 10, 20];

/** 1, 2, 5, 10 … up to `most`. */
export function stepsTo(most: number): readonly number[] {
  const bounds: number[] = [];
  for (let power = 1; power <= most; power *= 10)
    for (const digit of [1, 2, 5]) if (digit * power <= most) bounds.push(digit * power);
  return bounds.length === 0 ? [1] : bounds;
}

export class RequestCounts {
  promptTokens = 0;
  generationTokens = 0;
  /** Every reason, so that each has a line from the beginning. */
  readonly finished: Record<Finished, number> = { stop: 0, length: 0, abort: 0, error: 0 };
  readonly timeToFirstToken = new Buckets(FIRST_TOKEN);
  readonly interTokenLatency = new Buckets(NEXT_TOKEN);
  /** The mean of a continuation. */
  readonly timePerOutputToken = new Buckets(NEXT_TOKEN);
  readonly endToEnd = new Buckets(WHOLE);
  readonly promptLengths: Buckets;
  readonly generationLengths: Buckets;
  /** The longest continuation of a request. */
  readonly longestGenerations: Buckets;
  readonly maxTokens: Buckets;
  readonly choices = new Buckets(CHOICES);

  /** `maxLength`: longest text of the model, in tokens. */
  constructor(maxLength: number) {
    const lengths = stepsTo(maxLength);
    this.promptLengths = new Buckets(lengths);
    this.generationLengths = new Buckets(lengths);
    this.longestGenerations = new Buckets(lengths);
    this.maxTokens = new Buckets(lengths);
  }
}
