/** What a device reaches at most, and how long work takes there at least: the two lines of a roofline. */
import type { KernelWork } from './work.js';

/** The machine's rates that an estimate needs, for all threads together. */
export interface Rates {
  readonly flopsPerSecond: number;
  readonly bytesPerSecond: number;
}

/** `measured`: by a loop on this machine. `nominal`: what its kind is known for. */
export const PEAK_SOURCES = ['measured', 'nominal'] as const;
export type PeakSource = (typeof PEAK_SOURCES)[number];

export interface Peak {
  readonly perSecond: number;
  readonly source: PeakSource;
}

/** Of one device: floating-point operations of contractions, and bytes from memory. */
export interface Peaks {
  readonly arithmetic: Peak;
  readonly memory: Peak;
}

export const peaksOf = ({ flopsPerSecond, bytesPerSecond }: Rates, source: PeakSource): Peaks => ({
  arithmetic: { perSecond: flopsPerSecond, source },
  memory: { perSecond: bytesPerSecond, source },
});

export const ratesOf = ({ arithmetic, memory }: Peaks): Rates => ({
  flopsPerSecond: arithmetic.perSecond,
  bytesPerSecond: memory.perSecond,
});

/** The least time that the roofline allows. Divided by a time that was measured, it is the share of peak. */
export const rooflineSeconds = (
  { flops, bytes }: Pick<KernelWork, 'flops' | 'bytes'>,
  { flopsPerSecond, bytesPerSecond }: Rates,
): number => Math.max(flops / flopsPerSecond, bytes / bytesPerSecond);
