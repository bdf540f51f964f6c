/** A model whose next token follows from the last one by a table, with log-probabilities by another. */
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import type { DeviceModel } from '../../engine/device.js';
import { madeUp } from './deviceModel.js';

export interface ScriptedOptions {
  /** What follows a token. */
  readonly next: (token: number) => number;
  /** The logarithm of how probable `target` is behind `token`. Default: −1 what follows, −2 anything else. */
  readonly logProb?: (token: number, target: number) => number;
  /** Tokens behind which nothing is finite. */
  readonly fails?: ReadonlySet<number>;
  readonly maxLength?: number;
  /** Called before a step computes; it may wait. */
  readonly onStep?: (inputs: StepInputs) => Promise<void> | void;
}

export function scriptedModel({ next, fails = new Set(), maxLength = 400, ...options }: ScriptedOptions): DeviceModel {
  const { logProb = (token, target) => (target === next(token) ? -1 : -2) } = options;
  return madeUp({
    limits: { tokens: 64, keys: 4096 },
    cacheTokens: 4096,
    maxLength,
    call: async (inputs) => {
      await options.onStep?.(inputs);
      await new Promise((resolve) => setImmediate(resolve));
      const { tokens, row, target = row } = inputs;
      const behind = Array.from(row, (at) => tokens[at]!);
      const rows = behind.flatMap((token, i) => (fails.has(token) ? [i] : []));
      if (rows.length > 0)
        throw Object.assign(new Error('not finite'), { name: 'NonFiniteError', rows, where: 'layer 3' });
      return {
        logProb: Float32Array.from(behind, (token, i) => logProb(token, target[i]!)),
        isArgmax: Int32Array.from(behind, (token, i) => (target[i] === next(token) ? 1 : 0)),
        nextToken: Int32Array.from(behind, next),
        nextTokenLogProb: Float32Array.from(behind, (token) => logProb(token, next(token))),
      };
    },
  });
}
