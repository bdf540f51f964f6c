/** Figures of kernels, and how they are written. */
import type { KernelEntry } from '../../document/explore.js';
import { si } from '../parts/numbers.js';
import type { OfPeak } from '../parts/peak.js';

/** `1.4 ms`, `52 µs`. */
export const shortTime = (seconds: number): string =>
  seconds >= 1 ? si(seconds, 's') : seconds >= 1e-3 ? si(seconds * 1e3, 'ms') : si(seconds * 1e6, 'µs');

/** Seconds of a launch: as measured, else as predicted. */
export const launchSeconds = ({ measuredSeconds, predictedSeconds }: KernelEntry): number =>
  measuredSeconds ?? predictedSeconds;

/** What a launch reaches of the roof: of arithmetic, or of memory where that is the limit. */
export const shareOf = (kernel: KernelEntry): OfPeak => ({
  share: kernel.seconds / launchSeconds(kernel),
  flops: kernel.flops,
});

/** Seconds of all launches of the kernel. */
export const secondsOf = (kernel: KernelEntry): number => launchSeconds(kernel) * kernel.count;

/** The colour of an op beside a source. There are six: each op has its number as well. */
export const hueOf = (op: number): string => `hue${op % 6}`;
