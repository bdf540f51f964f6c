/** A target's description of the schedules of its kernels. */
import { z } from 'zod';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket, Launch } from '../ir/plan.js';

/** `S`: the target's schedules. `F`: the facts about a machine that decide which schedules are legal. */
export interface Scheduling<S, F> {
  /** Schema of a schedule in files: plans and tuning records are read through it. */
  readonly schema: z.ZodType<S>;
  /** A schedule as text: equal texts are equal schedules. */
  key(schedule: S): string;
  /** The same as readable text. */
  describe(schedule: S): string;
  /** A legal default schedule for micro-batches of `bucket`. Throws if the kernel has none. */
  default(kernel: Kernel, module: KernelModule, facts: F, bucket: Bucket): S;
  /**
   * The schedules of a bucket, by signature, with what those of several kernels have to agree on. `launches`: of the
   * module's kernels. Absent: there is nothing of the kind, and calls without adapters have no buckets of their own.
   */
  settle?(
    module: KernelModule,
    launches: readonly Launch[],
    schedules: Readonly<Record<string, S>>,
    bucket: Bucket,
  ): Readonly<Record<string, S>>;
  /** `true`, or the reason why `schedule` cannot be used for `kernel` on a machine with these facts. */
  legality(kernel: Kernel, module: KernelModule, schedule: S, facts: F): true | string;
}

/** Schema of a number of rows, columns or threads in a schedule. */
export const scheduleExtent = z
  .int()
  .min(1)
  .max(1 << 27);
