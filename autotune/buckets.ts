/** Classes of micro-batch shapes that schedules are chosen for, and what a micro-batch of each class costs. */
import { at } from '../system/at.js';
import type { Rates } from './peaks.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket, BucketSeconds } from '../ir/plan.js';
import { scoringBucket, scoringSize, TOKENS, tokensIn } from '../ir/scoring.js';
import type { SearchJob } from './searchJob.js';
import { Declarations, kernelWork, sizeOf, type WorkSize } from './work.js';

/** Below this many tokens, launch overhead and reading weights dominate, so one bucket is enough. */
const SMALLEST = 64;
/** Trees of benchmark questions are rarely longer; attention is measured on trees of this length. */
const TYPICAL_LONGEST = 256;

/**
 * Buckets for micro-batches of at most `capacityTokens`: powers of two from 64, and the capacity itself. Doubling is
 * fine enough because a CPU's cost is nearly linear above 256 tokens: a micro-batch between two buckets uses the larger
 * one's schedules, and tiles that suit 512 rows suit 400. `rows` equals `tokens`, because any number of them may be
 * scored. Attention is tuned for paths of `longest` tokens; the last bucket takes any tree that fits. Ascending, at
 * least one bucket.
 */
export function defaultBuckets(capacityTokens: number, capacityRows = capacityTokens): readonly Bucket[] {
  const tokens: number[] = [];
  for (let t = SMALLEST; t < capacityTokens; t *= 2) tokens.push(t);
  // Tuning a bucket just below the capacity would be wasted time.
  if ((tokens.at(-1) ?? 0) > 0.75 * capacityTokens) tokens.pop();
  tokens.push(capacityTokens);
  return tokens.map((t) =>
    scoringBucket({ tokens: t, rows: Math.min(t, capacityRows), longest: Math.min(t, TYPICAL_LONGEST) }),
  );
}

/** Columns of the residual stream up to which a call of twice as many tokens is faster. */
const NARROW = 4096;
/** Multiprocessors of the smallest GPU that capacities are made for. */
const FEWEST_MULTIPROCESSORS = 16;
/** Room for a long context, whatever the GPU. */
const LONG_CONTEXT = 16_384;

/**
 * Bounds of a GPU's default largest micro-batch, in tokens. A row tile of 128 for every other multiprocessor: if the
 * number of column tiles is even, whole waves of tiles keep all multiprocessors busy. The products of a narrow model
 * have few waves, and its experts few tokens each, so it gets twice as many tokens (decision 12). An H100: 8,448 and
 * 16,896 tokens.
 */
export function cudaCapacity(multiprocessors: number, width: number): { readonly min: number; readonly max: number } {
  const waves = 64 * Math.max(FEWEST_MULTIPROCESSORS, multiprocessors);
  return { min: width <= NARROW ? 2 * waves : waves, max: Math.max(2 * waves, LONG_CONTEXT) };
}

/**
 * Buckets for micro-batches on a GPU: the capacity and its halves down to 64 tokens. Most micro-batches fill the
 * capacity, which by default is a whole number of waves of tiles.
 */
export function cudaBuckets(capacityTokens: number): readonly Bucket[] {
  const steps: number[] = [];
  for (let t = capacityTokens; t >= SMALLEST || steps.length === 0; t = Math.ceil(t / 2)) {
    steps.unshift(t);
    if (t === 1) break;
  }
  return steps.map((t) => scoringBucket({ tokens: t, rows: t, longest: Math.min(t, TYPICAL_LONGEST) }));
}

export type { BucketSeconds } from '../ir/plan.js';

/** Seconds of a micro-batch; never decreases in any argument, never negative. */
export type BucketCost = (tokens: number, rows: number, longest: number) => number;

/**
 * Points (x, y) made non-decreasing: neighbours that fall are pooled to their mean (isotonic regression), so that
 * noise cannot make a larger micro-batch look cheaper. Equal x are averaged.
 */
function isotonic(points: readonly (readonly [x: number, y: number])[]): {
  readonly x: readonly number[];
  readonly y: readonly number[];
} {
  const sorted = [...points].sort((a, b) => a[0] - b[0]);
  const pools: { xs: number[]; sum: number; count: number }[] = [];
  for (const [x, y] of sorted) {
    const last = pools.at(-1);
    if (last !== undefined && last.xs.at(-1) === x) {
      last.sum += y;
      last.count++;
    } else {
      pools.push({ xs: [x], sum: y, count: 1 });
    }
    for (;;) {
      const top = pools.at(-1),
        below = pools.at(-2);
      if (top === undefined || below === undefined || below.sum / below.count <= top.sum / top.count) break;
      below.xs.push(...top.xs);
      below.sum += top.sum;
      below.count += top.count;
      pools.pop();
    }
  }
  return { x: pools.flatMap((p) => p.xs), y: pools.flatMap((p) => p.xs.map(() => p.sum / p.count)) };
}

/**
 * Piecewise linear through the points, non-decreasing. Below the first point, the first segment is extended; its value
 * at zero stays between 0 and the first point's. Beyond the last point, the last segment is extended, with at least the
 * slope from the origin in case noise made it flat.
 */
function piecewise(points: readonly (readonly [x: number, y: number])[]): (x: number) => number {
  const { x, y } = isotonic(points.filter((p) => p[0] > 0));
  const [x0, x1] = x;
  const [y0, y1] = y;
  if (x0 === undefined || y0 === undefined) return () => 0;
  const intercept =
    x1 === undefined || y1 === undefined ? 0 : Math.min(y0, Math.max(0, y0 - ((y1 - y0) / (x1 - x0)) * x0));
  const xs = [0, ...x];
  const ys = [intercept, ...y];
  const end = xs.length - 1;
  const [endX, endY] = [at(xs, end), at(ys, end)];
  const last = (endY - at(ys, end - 1)) / (endX - at(xs, end - 1));
  const outward = last > 0 ? last : endY / endX;
  return (wanted) => {
    if (!(wanted > 0)) return wanted === 0 ? intercept : NaN;
    if (wanted >= endX) return endY + outward * (wanted - endX);
    const upper = xs.findIndex((each) => each >= wanted);
    const [fromX, fromY] = [at(xs, upper - 1), at(ys, upper - 1)];
    return fromY + ((at(ys, upper) - fromY) * (wanted - fromX)) / (at(xs, upper) - fromX);
  };
}

/**
 * Interpolates measured buckets. The cost is a sum of three parts, each piecewise linear and non-decreasing in its own
 * measure: kernels over tokens in tokens, kernels over scored rows in rows, attention in tokens × longest path. Throws
 * if no bucket is given or a value is not a finite number of seconds.
 */
export function bucketCostModel(measured: readonly BucketSeconds[]): BucketCost {
  if (measured.length === 0) throw new Error('No bucket was measured: use analyticBucketCost.');
  const parts = measured.map(({ extents, longest, seconds, rowSeconds = 0, attentionSeconds = 0 }) => {
    const { tokens, rows } = scoringSize({ extents });
    const values = [tokens, rows, longest, seconds, rowSeconds, attentionSeconds];
    if (values.some((v) => !Number.isFinite(v) || v < 0))
      throw new Error(`A bucket's cost must be finite and not negative: ${values.join(', ')}.`);
    return {
      tokens,
      rows,
      area: tokens * longest,
      tokenSeconds: Math.max(0, seconds - rowSeconds - attentionSeconds),
      rowSeconds,
      attentionSeconds,
    };
  });
  const byTokens = piecewise(parts.map((p) => [p.tokens, p.tokenSeconds]));
  const byRows = piecewise(parts.map((p) => [p.rows, p.rowSeconds]));
  const byArea = piecewise(parts.map((p) => [p.area, p.attentionSeconds]));
  return (tokens, rows, longest) => byTokens(tokens) + byRows(rows) + byArea(tokens * longest);
}

/** Share of peak that a contraction is assumed to reach before it is measured. */
const ASSUMED_SHARE = 0.5;
/** Elementwise operations per byte of memory bandwidth, roughly: the rate of plain vector arithmetic. */
const SCALAR_OPS_PER_BYTE = 4;
/** Overhead of one launch, its barrier included. */
const LAUNCH_SECONDS = 5e-6;

/** Roofline seconds of one launch. */
function rooflineSeconds(kernel: Kernel, declarations: Declarations, rates: Rates, size: WorkSize): number {
  const { flops, scalarOps, bytes } = kernelWork(kernel, declarations, size);
  const arithmetic =
    flops / (ASSUMED_SHARE * rates.flopsPerSecond) + scalarOps / (SCALAR_OPS_PER_BYTE * rates.bytesPerSecond);
  return Math.max(arithmetic, bytes / rates.bytesPerSecond) + LAUNCH_SECONDS;
}

/** The part of BucketSeconds that a kernel's time belongs to. */
const partOf = ({ anchor, rows }: Kernel): 'attention' | 'rows' | 'tokens' =>
  anchor === 'attention' ? 'attention' : rows === TOKENS ? 'tokens' : 'rows';

/** Roofline seconds of each bucket, split into the parts that bucketCostModel expects. */
export function estimateBuckets(
  module: KernelModule,
  rates: Rates,
  sizes: readonly WorkSize[],
): readonly BucketSeconds[] {
  const declarations = new Declarations(module);
  return sizes.map((size) => {
    const sums = { attention: 0, rows: 0, tokens: 0 };
    for (const kernel of module.kernels) sums[partOf(kernel)] += rooflineSeconds(kernel, declarations, rates, size);
    const { attention, rows, tokens } = sums;
    return {
      extents: size.extents,
      longest: size.longest,
      seconds: tokens + rows + attention,
      rowSeconds: rows,
      attentionSeconds: attention,
    };
  });
}

/**
 * Seconds of each kernel in a micro-batch of `size`. These are roofline estimates. Where buckets were measured, the
 * estimates of attention, of kernels over scored rows and of the other kernels are each scaled to the total measured in
 * the nearest bucket.
 */
export function kernelSeconds(
  module: KernelModule,
  rates: Rates,
  size: WorkSize,
  measured: readonly BucketSeconds[] = [],
): readonly number[] {
  const declarations = new Declarations(module);
  const seconds = module.kernels.map((kernel) => rooflineSeconds(kernel, declarations, rates, size));
  const distance = (bucket: BucketSeconds): number => Math.abs(tokensIn(bucket) - tokensIn(size));
  const [nearest] = [...measured].sort((a, b) => distance(a) - distance(b));
  if (nearest === undefined) return seconds;
  const [estimated] = estimateBuckets(module, rates, [sizeOf(nearest)]);
  const { seconds: all, rowSeconds, attentionSeconds } = nearest;
  const guess = estimated!;
  // Without the split, only the total is known.
  if (rowSeconds === undefined || attentionSeconds === undefined)
    return seconds.map((each) => each * (all / guess.seconds));
  const was = {
    rows: rowSeconds,
    attention: attentionSeconds,
    tokens: Math.max(0, all - rowSeconds - attentionSeconds),
  };
  const guessed = { rows: guess.rowSeconds ?? 0, attention: guess.attentionSeconds ?? 0, tokens: 0 };
  guessed.tokens = guess.seconds - guessed.rows - guessed.attention;
  return seconds.map((each, i) => {
    const part = partOf(at(module.kernels, i));
    return each * (was[part] / guessed[part]);
  });
}

/** The cost before anything is measured: rooflines at half of peak, interpolated in the same way. */
export function analyticBucketCost(module: KernelModule, rates: Rates, capacityTokens: number): BucketCost {
  const sizes: WorkSize[] = [];
  const add = (tokens: number): void => {
    sizes.push(scoringBucket({ tokens, rows: tokens, longest: Math.min(tokens, 256) }));
  };
  for (let tokens = 16; tokens < capacityTokens; tokens *= 2) add(tokens);
  add(capacityTokens);
  return bucketCostModel(estimateBuckets(module, rates, sizes));
}

/** Share of a bucket's predicted time that must be measured before its cost can be trusted. */
const ENOUGH = 0.5;

/**
 * Seconds of each bucket. Measured kernels count as measured; the others as estimated, with the estimates scaled by the
 * ratio of measured to estimated time over all buckets. Empty if less than half of the largest bucket was measured.
 */
export function costOfBuckets<S>(jobs: readonly SearchJob<S>[], buckets: readonly Bucket[]): readonly BucketSeconds[] {
  const sum = (of: readonly SearchJob<S>[], seconds: (job: SearchJob<S>) => number): number =>
    of.reduce((total, job) => total + job.count * seconds(job), 0);
  const estimate = (job: SearchJob<S>): number => job.candidates.cost(job.chosen);
  const measured = jobs.filter((job) => job.standing !== undefined);
  const largest = buckets.reduce((top, bucket, i) => (tokensIn(bucket) > tokensIn(buckets[top]!) ? i : top), 0);
  const inLargest = (job: SearchJob<S>): boolean => job.bucketIndex === largest;
  if (
    measured.length === 0 ||
    sum(measured.filter(inLargest), estimate) < ENOUGH * sum(jobs.filter(inLargest), estimate)
  )
    return [];
  const scale = sum(measured, (job) => job.standing!.seconds) / sum(measured, estimate);
  const seconds = (job: SearchJob<S>): number => job.standing?.seconds ?? scale * estimate(job);
  const isAttention = (job: SearchJob<S>): boolean => job.kernel.anchor === 'attention';
  return buckets.flatMap((bucket, i) => {
    if (bucket.withoutAdapters === true) return [];
    const own = jobs.filter((job) => job.bucketIndex === i);
    return {
      ...bucket,
      seconds: sum(own, seconds),
      attentionSeconds: sum(own.filter(isAttention), seconds),
      rowSeconds: sum(
        own.filter((job) => !isAttention(job) && job.kernel.rows !== TOKENS),
        seconds,
      ),
    };
  });
}
