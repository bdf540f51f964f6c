/** Paths of tokens as digests, of which a made-up model makes its answers. */
import type { StepInputs } from '../../driver/devices/sequenceTable.js';

/** A digest of 32 bits. */
export const mix = (...values: readonly number[]): number => {
  let hash = 2166136261;
  for (const value of values) {
    hash = Math.imul(hash ^ value, 16777619);
    hash ^= hash >>> 15;
    hash = Math.imul(hash, 2246822519);
    hash ^= hash >>> 13;
  }
  return hash >>> 0;
};

/** The inputs of a model that draws and filters. */
export type Inputs = Required<StepInputs>;

/** A row of its memory. */
export interface Kept {
  readonly token: number;
  /** Of the path before it, and of the path up to it. */
  readonly before: number;
  readonly digest: number;
}

/** The token that is drawn in a row, behind a path of this digest. */
export type RightToken = (
  digest: number,
  draws: Pick<Inputs, 'inverseTemperature' | 'keyLow' | 'keyHigh'>,
  row: number,
) => number;
