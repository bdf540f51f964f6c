/** What a target says about the schedules of its kernels. */
import { z } from 'zod';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';

/** `S`: the target's schedules. `F`: the facts of a machine that schedules are judged by. */
export interface Scheduling<S, F> {
  /** What a file may hold: plans and tuning records are read through it. */
  readonly schema: z.ZodType<S>;
  /** A schedule as text: equal texts are equal schedules. */
  key(schedule: S): string;
  /** The same for people, in words. */
  describe(schedule: S): string;
  /** A legal schedule for micro-batches of `bucket`, before anyone has tuned. Throws where the kernel has none. */
  default(kernel: Kernel, module: KernelModule, facts: F, bucket: Bucket): S;
  /** `true`, or why `schedule` cannot be used for `kernel` on a machine with these facts. */
  legality(kernel: Kernel, module: KernelModule, schedule: S, facts: F): true | string;
}

/** A number of rows, columns or threads in a schedule. */
export const scheduleExtent = z
  .int()
  .min(1)
  .max(1 << 27);
