/** What a comparison comes to, in a line that a person understands. */
import { count } from '../../system/format.js';
import type { MetricDifference } from './compareMetrics.js';

export type Finding = 'equal' | 'no difference' | 'better' | 'worse' | 'different' | 'untested';

export interface Verdict {
  /** Of a task or a group. */
  readonly name: string;
  readonly metric: string;
  readonly finding: Finding;
  readonly line: string;
}

/** Differences of which chance alone would make as large ones in fewer than one of twenty comparisons. */
export const LEVEL = 0.05;

const minus = (text: string): string => text.replace('-', '−');
const sign = (value: number, digits: number): string => {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : minus(`${value < 0 ? '-' : '+'}${text}`);
};

/** `0.12`, `0.0004`, `< 0.0001` */
export const shownP = (p: number): string => (p < 0.0001 ? '< 0.0001' : `= ${p < 0.01 ? p.toFixed(4) : p.toFixed(2)}`);

/** Whether a metric is a share: then differences are in points, which are hundredths. */
export const isShare = ({ flips }: Pick<MetricDifference, 'flips'>): boolean => flips !== null;

/** Digits by which the difference and its interval can be told from 0. */
function digitsFor(values: readonly number[]): number {
  const least = Math.min(...values.map(Math.abs).filter((each) => each > 0));
  return least >= 0.1
    ? 1
    : least >= 0.01
      ? 2
      : Number.isFinite(least)
        ? Math.min(6, Math.ceil(-Math.log10(least)) + 1)
        : 1;
}

function findingOf({ difference, test, isHigherBetter }: MetricDifference): Finding {
  if (test === null) return 'untested';
  if (test.p >= LEVEL || difference === 0) return 'no difference';
  return isHigherBetter === undefined ? 'different' : difference > 0 === isHigherBetter ? 'better' : 'worse';
}

/** `in all 136 questions` */
export const inAll = (questions: number): string =>
  questions === 1 ? 'in the only question' : `in all ${count(questions)} questions`;

/** `name`: left out of the line where there is only one. */
export function verdictOf(name: string, of: MetricDifference, isEqual: boolean, isOnly: boolean): Verdict {
  const { metric, filter, difference, interval, test, questions } = of;
  const what = `${isOnly ? '' : `${name}: `}`;
  if (isEqual)
    return {
      name,
      metric,
      finding: 'equal',
      line: `${what}B and A answer the same, to the bit, ${inAll(questions)}`,
    };
  const scale = isShare(of) ? 100 : 1;
  const digits = isShare(of) ? Math.min(2, digitsFor([difference * 100])) : digitsFor([difference]);
  const size = Math.abs(difference * scale).toFixed(digits);
  const unit = isShare(of) ? (size === '1.0' ? ' point' : ' points') : '';
  const where = `in ${metric}${filter === 'none' ? '' : ` (${filter})`}`;
  const moved =
    Number(size) === 0
      ? `B and A are equal ${where}`
      : `B is ${size}${unit} ${difference < 0 ? 'lower' : 'higher'} ${where}`;
  const facts = [
    ...(interval === null
      ? []
      : [`95 %: ${sign(interval[0] * scale, digits)} to ${sign(interval[1] * scale, digits)}`]),
    ...(test === null ? [] : [`p ${shownP(test.p)}`]),
  ].join('; ');
  const finding = findingOf(of);
  const words: Readonly<Record<Finding, string>> = {
    equal: '',
    'no difference': ': no difference within the error',
    better: ': B is better',
    worse: ': B is worse',
    different: ': more than chance explains',
    untested: '',
  };
  return { name, metric, finding, line: `${what}${moved}${facts === '' ? '' : ` (${facts})`}${words[finding]}` };
}

/** p-values of several comparisons, made larger so that all of them together err in one of twenty (Holm 1979). */
export function holm(values: readonly number[]): number[] {
  const order = values.map((p, i) => ({ p, i })).sort((a, b) => a.p - b.p);
  const adjusted = values.slice();
  let most = 0;
  order.forEach(({ p, i }, rank) => {
    most = Math.max(most, Math.min(1, p * (values.length - rank)));
    adjusted[i] = most;
  });
  return adjusted;
}
