/** The tuner's table as text: redrawn whole on a terminal, written line by line to a pipe. */
import { UserError } from '../errors.js';
import type { Bucket } from '../ir/plan.js';
import { rowsIn, tokensIn } from '../ir/scoring.js';
import { clock, count, counted } from '../system/text.js';
import type { TuneProgress, TuneRow } from './search.js';

const HEADINGS = ['kernel', 'bucket', 'trials', 'best', 'share of peak', 'gain'] as const;

/** `812 ns`, `43.1 µs`, `3.02 ms`, `1.25 s` */
export function formatSeconds(seconds: number): string {
  const [scale, unit] =
    seconds < 1e-6 ? [1e9, 'ns'] : seconds < 1e-3 ? [1e6, 'µs'] : seconds < 1 ? [1e3, 'ms'] : [1, 's'];
  return `${(seconds * scale).toPrecision(3)} ${unit}`;
}

/** The default schedule's time divided by the best: `1.24×`. */
export const gainOf = (row: Pick<TuneRow<unknown>, 'bestSeconds' | 'defaultSeconds'>): number | undefined =>
  row.bestSeconds === undefined || row.defaultSeconds === undefined ? undefined : row.defaultSeconds / row.bestSeconds;

/** The highest shares of peak among kernels that compute and among those that only move data; 1 if all are lower. */
interface HighestShares {
  readonly arithmetic: number;
  readonly memory: number;
}

const isArithmetic = ({ gflops = 0 }: TuneRow<unknown>): boolean => gflops > 0;

function highestShares(rows: readonly TuneRow<unknown>[]): HighestShares {
  const highest = (of: readonly TuneRow<unknown>[]): number =>
    of.reduce((top, { shareOfPeak = 0 }) => Math.max(top, shareOfPeak), 1);
  return { arithmetic: highest(rows.filter(isArithmetic)), memory: highest(rows.filter((row) => !isArithmetic(row))) };
}

/**
 * `87 %`. A kernel may outrun the loop that measured peak arithmetic; the true peak is then higher, and that kernel
 * counts as 100 %. Data in caches arrive faster than memory bandwidth allows: `cached`.
 */
function shareText(row: TuneRow<unknown>, peaks: HighestShares): string {
  if (row.shareOfPeak === undefined) return '–';
  if (!isArithmetic(row) && row.shareOfPeak > 1) return 'cached';
  return `${((100 * row.shareOfPeak) / (isArithmetic(row) ? peaks.arithmetic : 1)).toFixed(0)} %`;
}

/** `64/64`: tokens and rows of a bucket; `64/64 run 16` if it is one of paths that only go on. */
export const bucketText = (bucket: Bucket): string =>
  `${tokensIn(bucket)}/${rowsIn(bucket)}${bucket.run === undefined ? '' : ` run ${bucket.run}`}`;

/** Kernel, bucket and trials: the first cells of a row in every table. */
const firstCells = ({ kernel, count: kernels, bucket, trials, reused, failures }: TuneRow<unknown>): string[] => [
  kernels > 1 ? `${kernel} ×${kernels}` : kernel,
  bucketText(bucket),
  `${trials + reused}${failures > 0 ? ` (${failures} bad)` : ''}`,
];

function gainText(row: TuneRow<unknown>): string {
  const gain = gainOf(row);
  return gain === undefined ? '–' : `${gain.toFixed(2)}×`;
}

function cells(row: TuneRow<unknown>, peaks: HighestShares): readonly string[] {
  const best = row.bestSeconds === undefined ? '–' : formatSeconds(row.bestSeconds);
  return [...firstCells(row), best, shareText(row, peaks), gainText(row)];
}

/** The columns that stand to the left: names, and texts at the end. */
type LeftColumns = ReadonlySet<number>;
const NAMES: LeftColumns = new Set([0]);

/** Aligned columns, most to the right. Long names in the first one are shortened in the middle. */
function align(table: readonly (readonly string[])[], left: LeftColumns, width?: number): string[] {
  const [heading = []] = table;
  const [names = 0, ...others] = heading.map((_, i) => Math.max(...table.map((line) => (line[i] ?? '').length)));
  const sumOfOthers = others.reduce((sum, own) => sum + own + 2, 0);
  const first = width === undefined ? names : Math.max(8, Math.min(names, width - sumOfOthers));
  const widths = [first, ...others];
  const fit = (text: string): string =>
    text.length <= first
      ? text
      : `${text.slice(0, Math.ceil((first - 1) / 2))}…${text.slice(text.length - Math.floor((first - 1) / 2))}`;
  return table.map(([name = '', ...rest]) =>
    [fit(name), ...rest]
      .map((cell, i) => (left.has(i) ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}

/** Lines of the whole table: heading, then one row per kernel and bucket. `width`: the terminal's, in characters. */
export function renderTable(rows: readonly TuneRow<unknown>[], width = 100): readonly string[] {
  const peaks = highestShares(rows);
  const notes = [
    ...(peaks.arithmetic > 1 ? ['100 %: the fastest kernel, which outran the loop that measured the peak'] : []),
    ...(peaks.memory > 1 ? ['cached: data stayed in caches, which are faster than memory'] : []),
  ];
  return [...align([HEADINGS, ...rows.map((row) => cells(row, peaks))], NAMES, width), ...notes];
}

/** `measured 12 of 48, 310 trials, 0:41 of 1:00` */
export function statusLine({ rows, elapsedSeconds, budgetSeconds, final }: TuneProgress<unknown>): string {
  const measured = rows.filter((row) => row.bestSeconds !== undefined).length;
  const trials = rows.reduce((sum, row) => sum + row.trials, 0);
  const time = `${clock(elapsedSeconds)} of ${clock(budgetSeconds)}`;
  const stage = final === undefined ? '' : `, final of ${count(tokensIn(final))} tokens`;
  return `measured ${measured} of ${rows.length}, ${counted(trials, 'trial')}, ${time}${stage}`;
}

/** One log line: what was just measured for one row. */
export const changeLine = (progress: TuneProgress<unknown>): string => {
  const row = progress.rows[progress.changed];
  return row === undefined
    ? statusLine(progress)
    : `tune ${cells(row, highestShares(progress.rows))
        .map((cell, i) => (i === 0 ? cell : `${HEADINGS[i]!} ${cell}`))
        .join(', ')}`;
};

const BASELINE_HEADINGS = [
  'kernel',
  'bucket',
  'trials',
  'ours',
  'cuBLASLt',
  'ratio',
  'of best rate',
  'gain',
  'schedule',
] as const;
const NAMES_AND_SCHEDULES: LeftColumns = new Set([0, BASELINE_HEADINGS.length - 1]);

/** `0.0431`, `3.02`, `125.0` */
const milliseconds = (seconds: number): string => {
  const ms = seconds * 1000;
  return `${ms < 1 ? ms.toFixed(4) : ms < 100 ? ms.toFixed(2) : ms.toFixed(1)} ms`;
};

/** A bare contraction's time divided by ours: above 1 where ours, epilogue included, is faster. */
export const ratioOf = (row: TuneRow<unknown>): number | undefined =>
  row.bestSeconds === undefined || row.baseline === undefined ? undefined : row.baseline.seconds / row.bestSeconds;

/** Best floating-point operations and bytes per second over all rows, the vendor's times included. */
export interface BestRates {
  readonly gflops: number;
  readonly bytesPerSecond: number;
}

function bestRates(rows: readonly TuneRow<unknown>[]): BestRates {
  let gflops = 0,
    bytesPerSecond = 0;
  for (const row of rows) {
    gflops = Math.max(gflops, (row.gflops ?? 0) * Math.max(1, ratioOf(row) === undefined ? 1 : 1 / ratioOf(row)!));
    if ((row.gflops ?? 0) === 0) bytesPerSecond = Math.max(bytesPerSecond, row.bytesPerSecond ?? 0);
  }
  return { gflops, bytesPerSecond };
}

function shareOfBest(row: TuneRow<unknown>, best: BestRates): number | undefined {
  if (row.bestSeconds === undefined) return undefined;
  const gflops = row.gflops ?? 0;
  if (gflops > 0) return gflops / best.gflops;
  return best.bytesPerSecond > 0 ? (row.bytesPerSecond ?? 0) / best.bytesPerSecond : undefined;
}

function baselineCells<S>(row: TuneRow<S>, best: BestRates, keyOf: (schedule: S) => string): readonly string[] {
  const ratio = ratioOf(row);
  const share = shareOfBest(row, best);
  return [
    ...firstCells(row),
    row.bestSeconds === undefined ? '–' : milliseconds(row.bestSeconds),
    row.baseline === undefined ? '–' : milliseconds(row.baseline.seconds),
    ratio === undefined ? '–' : ratio.toFixed(3),
    share === undefined ? '–' : `${(100 * share).toFixed(0)} %`,
    gainText(row),
    row.bestSeconds === undefined ? '–' : keyOf(row.schedule),
  ];
}

/**
 * Lines of the whole table: heading, one row per kernel and bucket, and what a ratio means. `library`: its name
 * and version, or why there is none. `keyOf`: a schedule as text.
 */
export function renderBaselineTable<S>(
  rows: readonly TuneRow<S>[],
  library: { readonly name: string } | { readonly absence: string },
  keyOf: (schedule: S) => string,
): readonly string[] {
  const best = bestRates(rows);
  const lines = align([BASELINE_HEADINGS, ...rows.map((row) => baselineCells(row, best, keyOf))], NAMES_AND_SCHEDULES);
  const about =
    'name' in library
      ? `cuBLASLt: ${library.name}, its best bare contraction; ratio: its time ÷ ours with epilogue`
      : `no comparison with cuBLASLt: ${library.absence}`;
  return [...lines, about, ...(best.gflops > 0 ? [`best rate: ${(best.gflops / 1000).toFixed(0)} TFLOP/s`] : [])];
}

export interface TableOptions {
  readonly write: (text: string) => void;
  /** Redraw in place; otherwise write one plain line each time a row's best changes. */
  readonly isTerminal: boolean;
  /** Characters and lines of the terminal. */
  readonly width?: number;
  readonly height?: number;
  /** Seconds between redraws. */
  readonly intervalSeconds?: number;
  readonly now?: () => number;
}

/** Shows progress as it arrives. Call `finish` at the end, so that the last state is shown. */
export class LiveTable {
  private readonly options: TableOptions;
  private drawnLines = 0;
  private drawnAt = -Infinity;
  private last: TuneProgress<unknown> | undefined;
  private readonly best = new Map<number, number>();

  constructor(options: TableOptions) {
    this.options = options;
  }

  update(progress: TuneProgress<unknown>): void {
    this.last = progress;
    const now = (this.options.now ?? ((): number => performance.now() / 1000))();
    if (this.options.isTerminal) {
      if (now - this.drawnAt < (this.options.intervalSeconds ?? 0.2)) return;
      this.drawnAt = now;
      this.redraw(progress, this.options.height ?? 24);
      return;
    }
    const seconds = progress.rows[progress.changed]?.bestSeconds;
    if (seconds === undefined || this.best.get(progress.changed) === seconds) return;
    this.best.set(progress.changed, seconds);
    this.options.write(`${changeLine(progress)}\n`);
  }

  finish(): void {
    if (this.last === undefined) return;
    if (this.options.isTerminal) this.redraw(this.last, Infinity);
    else this.options.write(`${statusLine(this.last)}\n`);
  }

  /** Moves the cursor up, clears to the end of the screen, and draws at most `height` lines around the changed row. */
  private redraw(progress: TuneProgress<unknown>, height: number): void {
    const [heading, ...rows] = renderTable(progress.rows, this.options.width ?? 100);
    const room = Math.max(1, height - 3);
    const first = Math.max(0, Math.min(progress.changed - Math.floor(room / 2), rows.length - room));
    const lines = [heading!, ...rows.slice(first, first + room), statusLine(progress)];
    const up = this.drawnLines > 0 ? `\u001b[${this.drawnLines}A\r\u001b[J` : '';
    this.options.write(`${up}${lines.join('\n')}\n`);
    this.drawnLines = lines.length;
  }
}

const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600 };

/** Seconds in `30s`, `5m` or `1.5h`; a bare number is seconds. Throws UserError for other text and above one day. */
export function parseBudget(text: string): number {
  const match = /^(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?$/.exec(text.trim());
  const seconds = match === null ? NaN : Number(match[1]) * UNITS[match[2] ?? 's']!;
  if (!(seconds >= 0 && seconds <= 86_400)) {
    throw new UserError(
      `--budget ${JSON.stringify(text)}: expected a time such as 30s, 5m or 1h, at most a day`,
      'for example: --budget 5m',
    );
  }
  return seconds;
}
