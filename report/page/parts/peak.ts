/** Shares of what a machine reaches at most, and why one may exceed the whole. */
import { percent } from './numbers.js';

/** What a kernel or a device reached of a peak. */
export interface OfPeak {
  /** 1 is all of the peak. */
  readonly share: number;
  /** None: the peak is that of memory. */
  readonly flops: number | null;
}

/** Whether a share is written as more than the whole. */
export const isAbove = (share: number, digits: number): boolean => Number((100 * share).toFixed(digits)) > 100;

/** `43 %`; with a star above the peak, which `ABOVE_PEAK` explains: `150 %*`, `cached*`. */
export function peakText(of: OfPeak, digits: number): string {
  if (!isAbove(of.share, digits)) return percent(of.share, digits);
  return (of.flops ?? 0) === 0 ? 'cached*' : `${percent(of.share, digits)}*`;
}

const REASONS =
  'data that caches still hold come faster than memory delivers, and a peak that is nominal, or was measured while ' +
  'the machine was busy, is too low.';
/** The same in a few words, for what is pointed at. */
export const ABOVE_POINTED = 'above it: from caches, or the peak is too low';

/** The note below what shows shares, where one exceeds its peak; otherwise undefined. */
export const aboveNote = (all: readonly (OfPeak | undefined)[], digits: number): string | undefined =>
  all.some((of) => of !== undefined && isAbove(of.share, digits)) ? `* Above the peak: ${REASONS}` : undefined;
