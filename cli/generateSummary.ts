/** What `tilewright generate` says when it is done. */
import type { GenerateResult } from '../commands/generate.js';
import type { GeneratedText } from '../commands/textGenerator.js';
import { bytes, count, counted, duration } from '../system/text.js';
import { draftSummary } from './draftText.js';

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

/** Why a text ended, as whoever typed the command says it. */
const REASONS: Readonly<Record<GeneratedText['reason'], string>> = {
  eos: 'the end-of-text token',
  stop: '--stop',
  length: '--max-new-tokens',
  context: "the model's context",
  cache: '--cache-tokens',
  aborted: 'Ctrl-C',
  deadline: 'the deadline',
};

/** `--max-new-tokens (2), the end-of-text token (1)` */
function reasonsOf(texts: readonly GeneratedText[]): string {
  const counts = new Map<string, number>();
  for (const { reason } of texts) counts.set(REASONS[reason], (counts.get(REASONS[reason]) ?? 0) + 1);
  return [...counts].map(([reason, times]) => (texts.length === 1 ? reason : `${reason} (${count(times)})`)).join(', ');
}

/** `isVerbose`: with pages of keys and values. */
export function generateSummary(result: GenerateResult, isVerbose = false): string {
  const { results, counts, drafts, cacheBytes, seconds } = result;
  const texts = results.flatMap((result) => ('error' in result ? [] : [result]));
  const tokens = texts.reduce((sum, { tokens: own }) => sum + own.length, 0);
  const first = median(texts.flatMap(({ seconds: own }) => own.slice(0, 1)));
  const gap = median(texts.flatMap(gapsOf));
  const { peakPages, pages, foundTokens, preemptions } = counts;
  const parts = [`${counted(tokens, 'token')} in ${duration(seconds)}: ${(tokens / seconds).toFixed(1)} tokens/s`];
  if (first !== undefined)
    parts.push(`the first after ${short(first)}${gap === undefined ? '' : `, then one every ${short(gap)}`}`);
  if (preemptions > 0) parts.push(`computed again ${counted(preemptions, 'time')} for lack of memory (--cache-tokens)`);
  if (texts.length > 0) parts.push(`ended by ${reasonsOf(texts)}`);
  const lines = [parts.join('; '), ...draftSummary(drafts, isVerbose)];
  if (!isVerbose) return lines.join('\n');
  const used = bytes((cacheBytes * peakPages) / pages);
  const memory = `${count(peakPages)} of ${count(pages)} pages of keys and values (${used})`;
  const found = `${counted(foundTokens, 'token')} of prompts found there`;
  return [...lines, foundTokens > 0 ? `${memory}, ${found}` : memory].join('\n');
}
