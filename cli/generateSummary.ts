/** What was generated, how fast and in how much memory, in one line. */
import type { GeneratedText } from '../driver/commands/continueAll.js';
import type { GenerateResult } from '../driver/commands/generate.js';
import { bytes, count, duration } from '../system/format.js';

/** Undefined for no values. */
function median(values: readonly number[]): number | undefined {
  const sorted = Float64Array.from(values).sort();
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1
    ? sorted[middle]
    : sorted.length === 0
      ? undefined
      : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** `34.1 ms` below a second. */
const short = (seconds: number): string => (seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : duration(seconds));

const gapsOf = ({ seconds }: GeneratedText): readonly number[] => seconds.slice(1).map((at, i) => at - seconds[i]!);

/** `2 length, 1 eos` */
function reasonsOf(texts: readonly GeneratedText[]): string {
  const counts = new Map<string, number>();
  for (const { reason } of texts) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].map(([reason, times]) => (texts.length === 1 ? reason : `${count(times)} ${reason}`)).join(', ');
}

export function generateSummary({ results, counts, cacheBytes, seconds }: GenerateResult): string {
  const texts = results.flatMap((result) => ('error' in result ? [] : [result]));
  const tokens = texts.reduce((sum, { tokens: own }) => sum + own.length, 0);
  const first = median(texts.flatMap(({ seconds: own }) => own.slice(0, 1)));
  const gap = median(texts.flatMap(gapsOf));
  const { peakPages, pages, foundTokens, preemptions } = counts;
  const parts = [`${count(tokens)} tokens in ${duration(seconds)}: ${(tokens / seconds).toFixed(1)} tokens/s`];
  if (first !== undefined)
    parts.push(`first after ${short(first)}${gap === undefined ? '' : `, then every ${short(gap)}`}`);
  parts.push(`${count(peakPages)} of ${count(pages)} pages (${bytes((cacheBytes * peakPages) / pages)})`);
  if (foundTokens > 0) parts.push(`${count(foundTokens)} prompt tokens found in pages`);
  if (preemptions > 0) parts.push(`${count(preemptions)} computed again for lack of pages`);
  if (texts.length > 0) parts.push(`ended by ${reasonsOf(texts)}`);
  return parts.join('; ');
}
