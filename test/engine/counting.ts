/** A model that counts: the token after n is n + 1. */
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import { type DeviceModel, StateLost } from '../../engine/device.js';
import { madeUp } from '../support/deviceModel.js';

export interface CountingOptions {
  readonly cacheTokens?: number;
  readonly maxLength?: number;
  readonly limits?: Partial<DeviceModel['limits']>;
  /** Tokens after which nothing is finite. */
  readonly fails?: ReadonlySet<number>;
  /** Called before a step computes; it may wait. */
  readonly onStep?: (inputs: StepInputs, step: number) => Promise<void> | void;
  /** The head has classes, and gives each row its token and the token's square. */
  readonly isReward?: boolean;
}

export interface Counting {
  readonly model: DeviceModel;
  steps(): number;
  /** The next step finds the device gone. `comesBack` settles when there is another. */
  lose(comesBack: () => Promise<void>): void;
}

export function counting(options: CountingOptions = {}): Counting {
  const { cacheTokens = 4096, maxLength = 1000, fails = new Set<number>(), onStep, isReward = false } = options;
  let steps = 0;
  let lost: (() => Promise<void>) | undefined;
  let back = (): Promise<void> => Promise.resolve();
  return {
    steps: () => steps,
    lose: (comesBack) => (lost = comesBack),
    model: madeUp({
      limits: { tokens: 64, keys: 4096, ...options.limits },
      cacheTokens,
      maxLength,
      classes: isReward ? 2 : undefined,
      recovered: () => back(),
      call: async (inputs) => {
        const { tokens, row, target = row } = inputs;
        steps++;
        await onStep?.(inputs, steps);
        await new Promise((resolve) => setImmediate(resolve));
        if (lost !== undefined) {
          [back, lost] = [lost, undefined];
          throw new StateLost('gone');
        }
        const rows = [...row].flatMap((at, i) => (fails.has(tokens[at]!) ? [i] : []));
        if (rows.length > 0) throw Object.assign(new Error('not finite'), { rows });
        const nextToken = row.map((at) => tokens[at]! + 1);
        return {
          logProb: Float32Array.from(row, (at, i) => -Math.abs(tokens[at]! + 1 - target[i]!)),
          nextTokenLogProb: new Float32Array(row.length),
          isArgmax: nextToken.map((token, i) => (token === target[i] ? 1 : 0)),
          nextToken,
          ...(isReward
            ? { classLogits: Float32Array.from([...row].flatMap((at) => [tokens[at]!, tokens[at]! ** 2])) }
            : {}),
        };
      },
    }),
  };
}

export const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
