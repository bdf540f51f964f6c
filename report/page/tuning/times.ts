/** Times as the tuner prints them. */

/** `812 ns`, `43.1 µs`, `3.02 ms`, `1.25 s` */
export function timeText(seconds: number): string {
  const [scale, unit] =
    seconds < 1e-6 ? [1e9, 'ns'] : seconds < 1e-3 ? [1e6, 'µs'] : seconds < 1 ? [1e3, 'ms'] : [1, 's'];
  return `${(seconds * scale).toPrecision(3)} ${unit}`;
}
