/**
 * Which kernels of a bucket compute what adapters add. Calls without adapters have products that know nothing of them.
 * Products that can shrink their own rows do so. A shrink kernel that no product reads is not launched.
 */
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import { extentIn } from '../../../ir/extents.js';
import type { GemmKernel, KernelModule } from '../../../ir/kernel.js';
import type { Bucket, Launch } from '../../../ir/plan.js';
import { at } from '../../../system/at.js';

/** A product whose rows may have adapters, with the shrink kernel before it: signatures of both. */
interface Adapted {
  readonly kernel: GemmKernel;
  readonly product: string;
  readonly shrink: string;
}

/** Whether a product of so many rows can shrink them itself under a schedule. */
const canShrink = (_kernel: GemmKernel, _schedule: CudaGemmSchedule, _rows: number): boolean => false;

/**
 * The schedules of a bucket, by signature, with what they say of adapters: `adapters` of products, `isIdle` of shrink
 * kernels. Whatever they said of it before does not matter. `launches`: of the module's kernels, in their order.
 */
export function settleAdapters(
  module: KernelModule,
  launches: readonly Launch[],
  schedules: Readonly<Record<string, CudaSchedule>>,
  bucket: Bucket,
): Readonly<Record<string, CudaSchedule>> {
  const adapted = adaptedOf(module, launches);
  if (adapted.length === 0) return schedules;
  const use = bucket.withoutAdapters === true ? 'none' : 'shrinks';
  const without = new Set(adapted.map(({ product }) => product));
  if (use === 'shrinks') keepShrinking(adapted, schedules, bucket, without);
  const read = new Set(adapted.filter(({ product }) => !without.has(product)).map(({ shrink }) => shrink));
  const settled = { ...schedules };
  for (const { product, shrink } of adapted) {
    settled[product] = productUse(schedules[product], without.has(product) ? use : undefined);
    settled[shrink] = shrinkUse(schedules[shrink], !read.has(shrink));
  }
  return settled;
}

function adaptedOf({ kernels }: KernelModule, launches: readonly Launch[]): readonly Adapted[] {
  const shrinks = new Map(
    kernels.flatMap((kernel, i) => (kernel.anchor === 'shrink' ? [[kernel.out, at(launches, i).signature]] : [])),
  );
  return kernels.flatMap((kernel, i): Adapted[] => {
    if (kernel.anchor !== 'gemm' || kernel.adapter === undefined) return [];
    const shrink = shrinks.get(kernel.adapter.shrunk);
    if (shrink === undefined) throw new Error(`No kernel shrinks the rows of ${kernel.name}.`);
    return [{ kernel, product: at(launches, i).signature, shrink }];
  });
}

/**
 * Leaves of `products` those that shrink their rows. One that shares its shrink kernel's code with another that cannot
 * reads what that kernel leaves, as the other does: the code is launched for both or for none.
 */
function keepShrinking(
  adapted: readonly Adapted[],
  schedules: Readonly<Record<string, CudaSchedule>>,
  { extents }: Bucket,
  products: Set<string>,
): void {
  for (const { kernel, product } of adapted) {
    const schedule = schedules[product];
    if (schedule?.kind !== 'gemm' || !canShrink(kernel, schedule, extentIn(kernel.rows, extents)))
      products.delete(product);
  }
  for (let before = Infinity; products.size < before;) {
    before = products.size;
    const read = new Set(adapted.filter(({ product }) => !products.has(product)).map(({ shrink }) => shrink));
    for (const { product, shrink } of adapted) if (read.has(shrink)) products.delete(product);
  }
}

function productUse(schedule: CudaSchedule | undefined, use: CudaGemmSchedule['adapters']): CudaSchedule {
  if (schedule?.kind !== 'gemm') throw new Error('A product with adapters has no gemm schedule.');
  const { adapters: _, ...others } = schedule;
  return use === undefined ? others : { ...others, adapters: use };
}

function shrinkUse(schedule: CudaSchedule | undefined, isIdle: boolean): CudaSchedule {
  if (schedule?.kind !== 'loop') throw new Error('A shrink kernel has no loop schedule.');
  const { isIdle: _, ...others } = schedule;
  return isIdle ? { ...others, isIdle } : others;
}
