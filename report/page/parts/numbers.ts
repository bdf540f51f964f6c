/** Numbers as the page writes them. Minus signs are those of typography; digits are those of the files, rounded. */
const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const minus = (text: string): string => text.replace('-', '−');

export const count = (value: number): string => minus(grouped.format(value));
export const fixed = (value: number, digits: number): string => minus(value.toFixed(digits));
/** `33.82 %` */
export const percent = (share: number, digits = 2): string => `${fixed(100 * share, digits)} %`;
/** `30.1–38.4 %` */
export const percents = ([from, to]: readonly [number, number], digits = 1): string =>
  `${fixed(100 * from, digits)}–${fixed(100 * to, digits)} %`;
export const signed = (value: number, digits: number): string => `${value > 0 ? '+' : ''}${fixed(value, digits)}`;

const POWERS = ['', 'k', 'M', 'G', 'T', 'P', 'E'];

/** `13.4 TFLOP`: powers of a thousand, three digits. */
export function si(value: number, unit: string): string {
  let [scaled, power] = [value, 0];
  for (; Math.abs(scaled) >= 999.5 && power < POWERS.length - 1; power++) scaled /= 1000;
  return `${minus(String(Number(scaled.toPrecision(3))))} ${POWERS[power]!}${unit}`;
}

/** `0.34 s`, `12.5 s`, `2 min 49 s`, `1 h 5 min`. */
export function duration(seconds: number): string {
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `1 replica`, `1,024 replicas`. */
export const counted = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

/** Shares of what a machine reaches at most, and why one may exceed the whole. */

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

/** Times as the tuner prints them. */

/** `812 ns`, `43.1 µs`, `3.02 ms`, `1.25 s` */
export function timeText(seconds: number): string {
  const [scale, unit] =
    seconds < 1e-6 ? [1e9, 'ns'] : seconds < 1e-3 ? [1e6, 'µs'] : seconds < 1 ? [1e3, 'ms'] : [1, 's'];
  return `${(seconds * scale).toPrecision(3)} ${unit}`;
}
