/** What a kernel's time depends on: kernels of several buckets and functions share measurements by it. */
import type { Extents } from '../ir/extents.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import type { Bucket } from '../ir/plan.js';
import type { Dim } from '../ir/types.js';

/**
 * The part of a bucket that one launch of a kernel depends on. Attention depends on paths, so it is the whole bucket.
 * All other kernels depend on the extents of what they read and write alone: `longest` is then 1 and there is no `run`.
 */
export function measuredPlace(kernel: Kernel, { buffers }: Pick<KernelModule, 'buffers'>, bucket: Bucket): Bucket {
  if (kernel.anchor === 'attention') return bucket;
  const touched = new Set([...kernelReads(kernel), ...kernelWrites(kernel)]);
  const dims = new Set<Dim>(buffers.flatMap(({ name, rows, columns }) => (touched.has(name) ? [rows, columns] : [])));
  dims.add(kernel.rows);
  const extents: Extents = Object.fromEntries(Object.entries(bucket.extents).filter(([name]) => dims.has(name)));
  return { extents, longest: 1 };
}
