/** What a run answered to a question: its choice, its margin, its values of metrics. */
import type { Answered, SampleSet } from '../../evaluate/compare/readSamples.js';
import { argmax } from '../../evaluate/metrics.js';

/** The most likely choice, from 0; -1 where there are fewer than two, or one is no number. */
export function chosenOf({ lls, choices }: Answered): number {
  if (lls === undefined || choices < 2) return -1;
  const own = lls.subarray(0, choices);
  return own.some((each) => Number.isNaN(each) || each === Infinity) ? -1 : argmax([...own]);
}

/** By how much the right choice, or else the most likely one, exceeds the best other one, in nats; null without one. */
export function marginOf(answered: Answered, gold: number): number | null {
  const chosen = chosenOf(answered);
  if (chosen < 0) return null;
  const place = gold >= 0 ? gold : chosen;
  let other = -Infinity;
  for (let i = 0; i < answered.choices; i++) if (i !== place) other = Math.max(other, answered.lls![i]!);
  const margin = answered.lls![place]! - other;
  return Number.isFinite(margin) ? margin : null;
}

/** Metrics of which every value is 0 or 1, by their places in the set. */
export function binaryMetrics({ keys, questions }: SampleSet): { readonly key: string; readonly place: number }[] {
  const all = [...questions.values()];
  return keys.flatMap((key, place) => {
    const isBinary = all.every(({ items }) => items[place] === 0 || items[place] === 1 || items[place] === undefined);
    return isBinary && all.some(({ items }) => items[place] !== undefined) ? [{ key, place }] : [];
  });
}

/** `acc`, or `exact_match (strict-match)` where answers are read in several ways. */
export function metricName(key: string): string {
  const [metric = '', filter = 'none'] = key.split(/,(.*)/s);
  return filter === 'none' ? metric : `${metric} (${filter})`;
}
