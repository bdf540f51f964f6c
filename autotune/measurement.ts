/** What the search asks of whoever measures, whatever the target: `S` are its schedules. */
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';

export interface MeasureRequest<S> {
  readonly kernel: Kernel;
  readonly module: KernelModule;
  readonly bucket: Bucket;
  /** The schedule whose result is right: code generation's default. */
  readonly reference: S;
  /** Measured in this order. */
  readonly schedules: readonly S[];
  /** Seconds that must be beaten: hopeless candidates are given up after a few repeats. */
  readonly bestSeconds?: number;
  /** What `reference` took when it was first measured: where clocks wander, others are told in its terms. */
  readonly referenceSeconds?: number;
  /** Aborted: compilers and measurements end as soon as they can, and nothing more is yielded. */
  readonly signal?: AbortSignal;
}

/** Seconds of each repeat, or why the schedule may not be used. */
export type Measurement<S> =
  { readonly schedule: S; readonly seconds: readonly number[] } | { readonly schedule: S; readonly failure: string };

/** Yields one measurement a schedule, in order, as it is made; whoever has seen enough stops asking. */
export type Measure<S> = (request: MeasureRequest<S>) => AsyncIterable<Measurement<S>>;
