/** Buckets of a CUDA executor that become ready while it already works: in the background, or because a call waits. */
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { nameOf, type RuntimeFunction, type RuntimePlan } from '../runtimePlan.js';
import {
  type BucketOf,
  bucketsOfCalls,
  distinctBuckets,
  type FirstCall,
  keyOf,
  largestOf,
  type Readiness,
} from '../stageRunner.js';
import type { PlanKernels } from './bindProgram.js';
import type { Cubins } from './compileQueue.js';
import type { CudaStage } from './stage.js';

/** Whether its calls return anything. Those that only change states come after others. */
const hasOutputs = (fn: RuntimeFunction): boolean => fn.interface.outputs.length > 0;

/**
 * The buckets that an executor waits for: those of the calls that come first, by default of every function that
 * returns something the one that holds all its calls. Those are ready on several stages in any case: their programs say
 * how much memory passes through a pipeline.
 */
export function firstBuckets(plan: RuntimePlan, calls: readonly FirstCall[], stages: number): readonly BucketOf[] {
  return distinctBuckets([
    ...bucketsOfCalls(plan, calls),
    ...(calls.length === 0 || stages > 1 ? plan.functions.filter(hasOutputs).map(largestOf) : []),
  ]);
}

/** Positions 0 to count − 1: the ends, last first, and then always the middle of the widest gap. */
function byHalves(count: number): readonly number[] {
  const order = [...new Set([count - 1, 0])];
  while (order.length < count) {
    const known = [...order].sort((a, b) => a - b);
    const gaps = known.slice(1).map((end, i) => ({ middle: Math.floor((known[i]! + end) / 2), size: end - known[i]! }));
    order.push(gaps.reduce((a, b) => (b.size > a.size ? b : a)).middle);
  }
  return order;
}

/**
 * Every bucket of a plan in the order in which they are to be ready: `first`, then of every function the one that
 * holds all its calls, then the smallest, and then those between by halves, so that soon no call takes one that is
 * much larger than itself.
 */
export function bucketOrder(plan: RuntimePlan, first: readonly BucketOf[]): readonly BucketOf[] {
  const orders = plan.functions.map((fn) => {
    const { bucket: largest } = largestOf(fn);
    const others = [...fn.buckets.keys()].filter((i) => i !== largest);
    return byHalves(others.length + 1).map((at) => ({ fn, bucket: [...others, largest][at]! }));
  });
  const most = Math.max(...orders.map((order) => order.length));
  const rounds = Array.from({ length: most }, (_, i) => orders.flatMap((order) => order[i] ?? []));
  return distinctBuckets([...first, ...rounds.flat()]);
}

/** Symbols of the kernels of a bucket, on all stages. */
export const bucketSymbols = (kernels: PlanKernels, { fn, bucket }: BucketOf): ReadonlySet<string> =>
  new Set((kernels[nameOf(fn)]?.[bucket] ?? []).map(({ symbol }) => symbol));

/** The rank of each kernel: those of the first buckets are equal, 0, and then come those of each further bucket. */
export function kernelRanks(plan: RuntimePlan, kernels: PlanKernels, first: readonly BucketOf[]): Map<string, number> {
  const ranks = new Map<string, number>();
  bucketOrder(plan, first).forEach((of, i) => {
    const rank = Math.max(0, i + 1 - first.length);
    for (const symbol of bucketSymbols(kernels, of)) if (!ranks.has(symbol)) ranks.set(symbol, rank);
  });
  return ranks;
}

/** How background work leaves room for work that callers wait for. */
export interface Background {
  /** Milliseconds between two buckets. */
  readonly pauseMs: number;
  /** After so many, compiling begins: compilers take processors from the first answers, and short work needs none. */
  readonly compileAfterMs: number;
}

const BACKGROUND: Background = { pauseMs: 25, compileAfterMs: 1000 };

export interface BucketLoaderOptions {
  readonly plan: RuntimePlan;
  readonly kernels: PlanKernels;
  readonly cubins: Cubins;
  /** A bucket is ready when it is so on each of them. */
  readonly stages: readonly CudaStage[];
  readonly background?: Background | undefined;
  /** Told a failure that no call has been told when the executor is closed. */
  readonly onUnseen?: (error: Error) => void;
}

export class BucketLoader implements Readiness {
  private readonly options: BucketLoaderOptions;
  private readonly preparing = new Map<string, Promise<void>>();
  private readonly loading = new Set<Promise<void>>();
  private error: Error | undefined;
  private isSeen = false;
  private isStopped = false;
  private readonly pausing = new AbortController();
  private delay: NodeJS.Timeout | undefined;
  private ended: Promise<unknown> = Promise.resolve();

  constructor(options: BucketLoaderOptions) {
    this.options = options;
  }

  get failure(): Error | undefined {
    this.isSeen ||= this.error !== undefined;
    return this.error;
  }

  isReady(fn: RuntimeFunction, bucket: number): boolean {
    return this.options.stages.every((stage) => stage.isReady({ fn, bucket }));
  }

  async prepare(fn: RuntimeFunction, bucket: number): Promise<void> {
    if (this.isReady(fn, bucket)) return;
    const of = { fn, bucket };
    this.options.cubins.prefer(bucketSymbols(this.options.kernels, of));
    try {
      await this.load(of);
    } catch (error) {
      this.isSeen = true;
      throw error;
    }
  }

  /** Makes all other buckets ready in the background, one after another; what is in no cache is compiled later. */
  start(order: readonly BucketOf[]): void {
    const { cubins, kernels } = this.options;
    const { compileAfterMs } = this.options.background ?? BACKGROUND;
    if (compileAfterMs > 0) this.delay = setTimeout(() => cubins.lower(), compileAfterMs);
    else cubins.lower();
    const waiting = order.filter(({ fn, bucket }) => !this.isReady(fn, bucket));
    const isThere = (of: BucketOf): boolean =>
      [...bucketSymbols(kernels, of)].every((symbol) => cubins.known(symbol) !== undefined);
    // What is in the cache need not wait for what is compiled.
    const there = new Set(waiting.filter(isThere));
    this.ended = this.loadAll([...there, ...waiting.filter((of) => !there.has(of))]);
  }

  stop(): void {
    if (this.isStopped) return;
    this.isStopped = true;
    clearTimeout(this.delay);
    this.pausing.abort();
    this.ended = Promise.all([this.ended, this.options.cubins.stop()]);
  }

  /** Resolves when nothing is left of the work in the background. */
  async release(): Promise<void> {
    this.stop();
    await this.ended;
    await Promise.all(this.loading);
    if (this.error !== undefined && !this.isSeen) this.options.onUnseen?.(this.error);
  }

  private async loadAll(order: readonly BucketOf[]): Promise<void> {
    try {
      for (const of of order) {
        // A bucket takes this thread for some milliseconds: most calls that end are to be answered without a wait.
        const { pauseMs } = this.options.background ?? BACKGROUND;
        await (pauseMs > 0 ? sleep(pauseMs, undefined, { signal: this.pausing.signal }) : setImmediate()).catch(
          () => undefined,
        );
        if (this.isStopped) return;
        await this.load(of);
      }
    } catch {
      // It is kept as `failure`.
    }
  }

  private load(of: BucketOf): Promise<void> {
    const key = keyOf(of);
    let job = this.preparing.get(key);
    if (job === undefined) {
      job = this.loadStages(of);
      this.preparing.set(key, job);
      job.catch(() => undefined);
    }
    return job;
  }

  private async loadStages(of: BucketOf): Promise<void> {
    const loads = this.options.stages.map((stage) => stage.prepare(of));
    for (const load of loads) this.track(load);
    try {
      await Promise.all(loads);
    } catch (reason) {
      if (this.isStopped) throw new Error('This executor was closed.', { cause: reason });
      const error = reason instanceof Error ? reason : new Error(String(reason));
      this.error ??= error;
      throw error;
    }
  }

  /** Nothing is released before it has ended. */
  private track(load: Promise<void>): void {
    const ended = load.then(
      () => undefined,
      () => undefined,
    );
    this.loading.add(ended);
    void ended.then(() => this.loading.delete(ended));
  }
}
