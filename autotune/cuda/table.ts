/** The tuner's table on a GPU: our kernels against the vendor's bare contraction and the best rate measured. */
import { cudaScheduling } from '../../codegen/cuda/schedules.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { TuneRow } from '../searchJob.js';
import { bucketText } from '../table.js';

type Row = TuneRow<CudaSchedule>;

const HEADINGS = [
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
const LEFT = new Set<number>([0, HEADINGS.length - 1]);

/** `0.0431`, `3.02`, `125.0` */
const milliseconds = (seconds: number): string => {
  const ms = seconds * 1000;
  return `${ms < 1 ? ms.toFixed(4) : ms < 100 ? ms.toFixed(2) : ms.toFixed(1)} ms`;
};

/** A bare contraction's time divided by ours: above 1 where ours, epilogue included, is faster. */
export const ratioOf = (row: Row): number | undefined =>
  row.bestSeconds === undefined || row.baseline === undefined ? undefined : row.baseline.seconds / row.bestSeconds;

/** Best floating-point operations and bytes per second over all rows, the vendor's times included. */
export interface BestRates {
  readonly gflops: number;
  readonly bytesPerSecond: number;
}

function bestRates(rows: readonly Row[]): BestRates {
  let gflops = 0,
    bytesPerSecond = 0;
  for (const row of rows) {
    gflops = Math.max(gflops, (row.gflops ?? 0) * Math.max(1, ratioOf(row) === undefined ? 1 : 1 / ratioOf(row)!));
    if ((row.gflops ?? 0) === 0) bytesPerSecond = Math.max(bytesPerSecond, row.bytesPerSecond ?? 0);
  }
  return { gflops, bytesPerSecond };
}

function shareOfBest(row: Row, best: BestRates): number | undefined {
  if (row.bestSeconds === undefined) return undefined;
  const gflops = row.gflops ?? 0;
  if (gflops > 0) return gflops / best.gflops;
  return best.bytesPerSecond > 0 ? (row.bytesPerSecond ?? 0) / best.bytesPerSecond : undefined;
}

function cells(row: Row, best: BestRates): readonly string[] {
  const ratio = ratioOf(row),
    share = shareOfBest(row, best);
  const gain =
    row.bestSeconds === undefined || row.defaultSeconds === undefined
      ? undefined
      : row.defaultSeconds / row.bestSeconds;
  return [
    row.count > 1 ? `${row.kernel} ×${row.count}` : row.kernel,
    bucketText(row.bucket),
    `${row.trials + row.reused}${row.failures > 0 ? ` (${row.failures} bad)` : ''}`,
    row.bestSeconds === undefined ? '–' : milliseconds(row.bestSeconds),
    row.baseline === undefined ? '–' : milliseconds(row.baseline.seconds),
    ratio === undefined ? '–' : ratio.toFixed(3),
    share === undefined ? '–' : `${(100 * share).toFixed(0)} %`,
    gain === undefined ? '–' : `${gain.toFixed(2)}×`,
    row.bestSeconds === undefined ? '–' : cudaScheduling.key(row.schedule),
  ];
}

/**
 * Lines of the whole table: heading, one row per kernel and bucket, and what a ratio means. `library`: its name
 * and version, or why there is none.
 */
export function renderCudaTable(
  rows: readonly Row[],
  library: { readonly name: string } | { readonly absence: string },
): readonly string[] {
  const best = bestRates(rows);
  const table = [HEADINGS, ...rows.map((row) => cells(row, best))];
  const widths = HEADINGS.map((_, i) => Math.max(...table.map((line) => line[i]!.length)));
  const lines = table.map((line) =>
    line
      .map((cell, i) => (LEFT.has(i) ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
      .join('  ')
      .trimEnd(),
  );
  const about =
    'name' in library
      ? `cuBLASLt: ${library.name}, its best bare contraction; ratio: its time ÷ ours with epilogue`
      : `no comparison with cuBLASLt: ${library.absence}`;
  return [...lines, about, ...(best.gflops > 0 ? [`best rate: ${(best.gflops / 1000).toFixed(0)} TFLOP/s`] : [])];
}
