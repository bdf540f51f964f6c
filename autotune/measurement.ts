/** The interface between the search and whoever measures, for every target. `S`: the target's schedules. */
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';

export interface MeasureRequest<S> {
  readonly kernel: Kernel;
  readonly module: KernelModule;
  readonly bucket: Bucket;
  /** The schedule whose result is correct: code generation's default. */
  readonly reference: S;
  /** Measured in this order. */
  readonly schedules: readonly S[];
  /** Seconds of the best schedule so far. Hopeless candidates are abandoned after a few repeats. */
  readonly bestSeconds?: number;
  /** The first measurement of `reference`. Where clocks vary, other times are scaled to it. */
  readonly referenceSeconds?: number;
  /** When aborted, compilers and measurements end as soon as they can, and nothing more is yielded. */
  readonly signal?: AbortSignal;
}

/** Seconds of each repeat, or why the schedule may not be used. */
export type Measurement<S> =
  | { readonly schedule: S; readonly seconds: readonly number[] }
  | { readonly schedule: S; readonly failure: string };

/** Yields one measurement per schedule, in order, as it is made. The caller may stop iterating at any time. */
export type Measure<S> = (request: MeasureRequest<S>) => AsyncIterable<Measurement<S>>;
