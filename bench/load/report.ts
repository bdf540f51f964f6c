/** What a load shows: the measures of the public benchmark of serving, of what came of each request. */
import type { Outcome } from './client.js';

/** Milliseconds. */
export interface Distribution {
  readonly count: number;
  readonly mean: number;
  readonly median: number;
  readonly std: number;
  /** By name: `p99`. */
  readonly percentiles: Readonly<Record<string, number>>;
}

/** Limits in milliseconds that a request must keep to count. */
export interface GoodputLimits {
  readonly ttft?: number;
  readonly tpot?: number;
  readonly e2el?: number;
}

export interface LoadReport {
  readonly completed: number;
  readonly failed: number;
  readonly aborted: number;
  /** Errors, with how many requests had them. */
  readonly errors: Readonly<Record<string, number>>;
  /** From the first request to the last answer. */
  readonly seconds: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly requestsPerSecond: number;
  readonly answerTokensPerSecond: number;
  readonly totalTokensPerSecond: number;
  /** New tokens a second while all requests ran: from the last one's first token to the first one's end. */
  readonly steadyTokensPerSecond: number | null;
  /** Requests a second that kept the limits, where there are some. */
  readonly goodput: number | null;
  /** From sending to the first token. */
  readonly ttft: Distribution;
  /** Time a token after the first, of each request that has more. */
  readonly tpot: Distribution;
  /** Every gap between tokens. */
  readonly itl: Distribution;
  /** From sending to the end. */
  readonly e2el: Distribution;
  /** Processor time of the client for each token that it received, in microseconds. */
  readonly clientMicrosecondsPerToken: number;
}

/** With linear interpolation. `sorted` is ascending. */
export function percentile(sorted: Float64Array, percent: number): number {
  if (sorted.length === 0) return NaN;
  const place = ((sorted.length - 1) * percent) / 100;
  const [low, high] = [Math.floor(place), Math.ceil(place)];
  return sorted[low]! + (sorted[high]! - sorted[low]!) * (place - low);
}

export function distributionOf(values: Float64Array, percents: readonly number[]): Distribution {
  const sorted = values.slice().sort();
  const mean = sorted.reduce((sum, each) => sum + each, 0) / sorted.length;
  const variance = sorted.reduce((sum, each) => sum + (each - mean) ** 2, 0) / sorted.length;
  return {
    ...{ count: sorted.length, mean, median: percentile(sorted, 50), std: Math.sqrt(variance) },
    percentiles: Object.fromEntries(percents.map((percent) => [`p${percent}`, percentile(sorted, percent)])),
  };
}

/** Gaps between the tokens of all these. */
export function gapsOf(outcomes: readonly Outcome[]): Float64Array {
  const gaps = new Float64Array(outcomes.reduce((sum, { tokensMs }) => sum + Math.max(0, tokensMs.length - 1), 0));
  let filled = 0;
  for (const { tokensMs } of outcomes)
    for (let i = 1; i < tokensMs.length; i++) gaps[filled++] = tokensMs[i]! - tokensMs[i - 1]!;
  return gaps;
}

const ttftOf = ({ tokensMs, sentMs }: Outcome): number => tokensMs[0]! - sentMs;
const e2elOf = ({ endMs, sentMs }: Outcome): number => endMs - sentMs;
/** 0 for one token. */
const tpotOf = (outcome: Outcome): number =>
  outcome.answerTokens > 1 ? (e2elOf(outcome) - ttftOf(outcome)) / (outcome.answerTokens - 1) : 0;

const sum = (values: readonly number[]): number => values.reduce((all, each) => all + each, 0);

/** Tokens a second while all of these ran side by side, if they ever did. */
function steadyRate(done: readonly Outcome[]): number | null {
  let [from, to] = [-Infinity, Infinity];
  for (const { tokensMs, endMs } of done) {
    from = Math.max(from, tokensMs[0]!);
    to = Math.min(to, endMs);
  }
  if (done.length === 0 || to <= from) return null;
  let count = 0;
  for (const { tokensMs } of done) for (const moment of tokensMs) if (moment > from && moment <= to) count++;
  return (1000 * count) / (to - from);
}

export interface ReportOptions {
  readonly percentiles: readonly number[];
  readonly goodput?: GoodputLimits | undefined;
}

export function reportOf(
  outcomes: readonly Outcome[],
  clientSeconds: number,
  { percentiles, goodput }: ReportOptions,
): LoadReport {
  const done = outcomes.filter(
    ({ error, isAborted, tokensMs }) => error === undefined && !isAborted && tokensMs.length > 0,
  );
  const failed = outcomes.filter(({ error }) => error !== undefined);
  const errors: Record<string, number> = {};
  for (const { error = '' } of failed) errors[error] = (errors[error] ?? 0) + 1;
  const seconds =
    (outcomes.reduce((last, { endMs }) => Math.max(last, endMs), -Infinity) -
      outcomes.reduce((first, { sentMs }) => Math.min(first, sentMs), Infinity)) /
    1000;
  const of = (value: (outcome: Outcome) => number, from = done): Distribution =>
    distributionOf(Float64Array.from(from, value), percentiles);
  const [promptTokens, answerTokens] = [
    sum(done.map((each) => each.promptTokens)),
    sum(done.map((each) => each.answerTokens)),
  ];
  const { ttft = Infinity, tpot = Infinity, e2el = Infinity } = goodput ?? {};
  const isGood = (each: Outcome): boolean => ttftOf(each) <= ttft && tpotOf(each) <= tpot && e2elOf(each) <= e2el;
  const received = sum(outcomes.map((each) => (each.isAborted ? each.tokensMs.length : each.answerTokens)));
  return {
    ...{
      completed: done.length,
      failed: failed.length,
      aborted: outcomes.filter((each) => each.isAborted).length,
      errors,
    },
    ...{ seconds, promptTokens, answerTokens },
    requestsPerSecond: done.length / seconds,
    answerTokensPerSecond: answerTokens / seconds,
    totalTokensPerSecond: (promptTokens + answerTokens) / seconds,
    steadyTokensPerSecond: steadyRate(done),
    goodput: goodput === undefined ? null : done.filter(isGood).length / seconds,
    ttft: of(ttftOf),
    tpot: of(
      tpotOf,
      done.filter((each) => each.answerTokens > 1),
    ),
    itl: distributionOf(gapsOf(done), percentiles),
    e2el: of(e2elOf),
    clientMicrosecondsPerToken: (1e6 * clientSeconds) / received,
  };
}

const number = (value: number): string => (Number.isFinite(value) ? value.toFixed(value >= 1000 ? 0 : 2) : '–');

/** For people: a line for each figure, and a table of times. */
export function describeReport(report: LoadReport): string {
  const { completed, failed, aborted, errors, seconds, goodput, steadyTokensPerSecond: steady } = report;
  const rows = (['ttft', 'tpot', 'itl', 'e2el'] as const).map((name) => {
    const { count, mean, median, std, percentiles } = report[name];
    const cells = [mean, median, std, ...Object.values(percentiles)].map(number);
    return `| ${[name.toUpperCase(), count, ...cells].join(' | ')} |`;
  });
  const names = [
    'ms',
    'count',
    'mean',
    'median',
    'std',
    ...Object.keys(report.ttft.percentiles).map((p) => p.toUpperCase()),
  ];
  return [
    `${completed} requests completed, ${failed} failed, ${aborted} aborted in ${number(seconds)} s`,
    ...Object.entries(errors).map(([error, count]) => `  ${count} × ${error}`),
    `tokens: ${report.promptTokens} of prompts, ${report.answerTokens} new`,
    `${number(report.requestsPerSecond)} requests/s, ${number(report.answerTokensPerSecond)} new tokens/s, ` +
      `${number(report.totalTokensPerSecond)} tokens/s in all`,
    ...(steady === null ? [] : [`${number(steady)} new tokens/s while all requests ran`]),
    ...(goodput === null ? [] : [`goodput: ${number(goodput)} requests/s`]),
    `the client took ${number(report.clientMicrosecondsPerToken)} µs of processor time a token`,
    '',
    `| ${names.join(' | ')} |`,
    `|---|${'---:|'.repeat(names.length - 1)}`,
    ...rows,
  ].join('\n');
}
