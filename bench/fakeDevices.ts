/**
 * Devices that compute nothing, and take the time of one H100: models of 1B and 8B shapes that share it. A token that
 * is drawn depends on its key alone, a log-probability on its token and target.
 */
import type { DeviceModel, StepAnswer, StepLimits, StepMessage } from '../engine/device.js';
import type { MemoryBudget } from '../engine/memory.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import { MAX_KEYS } from '../ir/stepping.js';
import type { SimulatedCost } from './memorySimulation.js';

/** A device: steps of its models wait for each other. */
export class FakeDevice {
  /** Seconds that steps took. */
  busySeconds = 0;
  private readonly speed: number;
  private last: Promise<void> = Promise.resolve();
  private until = 0;

  /** `speed`: how many times as fast as the device is; Infinity: steps take no time. */
  constructor(speed: number) {
    this.speed = speed;
  }

  /** Settles when it has computed for so long, after all that was asked before. */
  compute(seconds: number): Promise<void> {
    this.busySeconds += seconds;
    if (this.speed === Infinity) return new Promise((resolve) => setImmediate(resolve));
    const now = performance.now();
    this.until = Math.max(this.until, now) + (1000 * seconds) / this.speed;
    const until = this.until;
    return (this.last = this.last.then(async () => {
      const left = until - performance.now();
      if (left > 0.5) await new Promise((resolve) => setTimeout(resolve, left));
      else await new Promise((resolve) => setImmediate(resolve));
    }));
  }
}

const mixed = (a: number, b: number): number => {
  let hash = Math.imul(a ^ 0x9e37_79b9, 0x85eb_ca6b) ^ Math.imul(b, 0xc2b2_ae35);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b_3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
};

export interface FakeModelOptions {
  readonly cost: SimulatedCost;
  readonly device: FakeDevice;
  readonly budget: MemoryBudget;
  readonly maxPages: number;
  readonly maxLength: number;
  /** Tokens that it draws: from the first one on. */
  readonly draws: { readonly first: number; readonly count: number };
}

/** What it was asked, beside what the engine counts. */
export interface FakeModel {
  readonly model: DeviceModel;
  readonly counts: { steps: number; tokens: number; keys: number; rows: number };
}

const LIMITS: StepLimits = { tokens: 8192, keys: MAX_KEYS, rows: 1024, keptRows: 1024 };

export function fakeModel({ cost, device, budget, maxPages, maxLength, draws }: FakeModelOptions): FakeModel {
  const counts = { steps: 0, tokens: 0, keys: 0, rows: 0 };
  /** The tokens of the step before that this one may name. */
  let kept: Int32Array = new Int32Array(0);
  const answerTo = ({ row, keyLow, keyHigh, tokens, target }: StepMessage): StepAnswer => {
    const nextToken = Int32Array.from(row, (_, i) => draws.first + (mixed(keyLow[i]!, keyHigh[i]!) % draws.count));
    const logProb = Float32Array.from(row, (at, i) => {
      const token = tokens[at]!;
      return -3 * (mixed(token >= 0 ? token : kept[-1 - token]!, target[i]!) / 2 ** 32);
    });
    kept = nextToken;
    return { logProb, nextTokenLogProb: logProb, isArgmax: new Int32Array(row.length), nextToken };
  };
  return {
    counts,
    model: {
      limits: LIMITS,
      maxLength,
      maxPages,
      mappedPages: cost.piecePages,
      piecePages: cost.piecePages,
      pieceBytes: cost.pieceBytes,
      budget,
      step: async (message) => {
        let keys = 0;
        message.from.forEach((from, i) => (keys += from + message.count[i]!));
        counts.steps++;
        counts.tokens += message.tokens.length;
        counts.keys += keys;
        counts.rows += message.row.length;
        const answer = answerTo(message);
        await device.compute(Math.max(cost.weights, cost.token * message.tokens.length) + cost.key * keys);
        return answer;
      },
      resize: (pages) => Promise.resolve(pages),
    },
  };
}

/** Pages of a model that has all of so many bytes. */
export const pagesOf = ({ pieceBytes, piecePages }: SimulatedCost, bytes: number): number =>
  Math.floor(bytes / pieceBytes) * piecePages;

export const tokenBytesOf = ({ pieceBytes, piecePages }: SimulatedCost): number =>
  pieceBytes / (piecePages * PAGE_TOKENS);
