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

/** The schedule with which a product of so many rows shrinks them itself, and is as one without; undefined if none. */
export type Shrinking = (
  kernel: GemmKernel,
  module: KernelModule,
  schedule: CudaGemmSchedule,
  rows: number,
) => CudaGemmSchedule | undefined;

/**
 * The schedules of a bucket, by signature, with what they say of adapters: `adapters` of products, `isIdle` of shrink
 * kernels. Whatever they said of it before does not matter. `launches`: of the module's kernels, in their order.
 */
export function settleAdapters(
  module: KernelModule,
  launches: readonly Launch[],
  schedules: Readonly<Record<string, CudaSchedule>>,
  bucket: Bucket,
  shrinking: Shrinking,
): Readonly<Record<string, CudaSchedule>> {
  const adapted = adaptedOf(module, launches);
  if (adapted.length === 0) return schedules;
  const settled = { ...schedules };
  for (const { product } of adapted) settled[product] = unsettled(schedules[product]);
  const plain = (product: string): CudaGemmSchedule => ({ ...unsettled(schedules[product]), adapters: 'none' });
  const products =
    bucket.withoutAdapters === true
      ? new Map(adapted.map(({ product }) => [product, plain(product)]))
      : shrinkingProducts(module, adapted, schedules, bucket, shrinking);
  const read = new Set(adapted.filter(({ product }) => !products.has(product)).map(({ shrink }) => shrink));
  for (const [product, schedule] of products) settled[product] = schedule;
  for (const { shrink } of adapted) settled[shrink] = shrinkUse(schedules[shrink], !read.has(shrink));
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
 * The products that shrink their rows, and their schedules. One that shares its shrink kernel's code with another that
 * cannot reads what that kernel leaves, as the other does: the code is launched for both or for none.
 */
function shrinkingProducts(
  module: KernelModule,
  adapted: readonly Adapted[],
  schedules: Readonly<Record<string, CudaSchedule>>,
  { extents }: Bucket,
  shrinking: Shrinking,
): ReadonlyMap<string, CudaGemmSchedule> {
  const products = new Map(
    adapted.flatMap(({ kernel, product }) => {
      const own = shrinking(kernel, module, unsettled(schedules[product]), extentIn(kernel.rows, extents));
      return own === undefined ? [] : [[product, own] as const];
    }),
  );
  for (let before = Infinity; products.size < before;) {
    before = products.size;
    const read = new Set(adapted.filter(({ product }) => !products.has(product)).map(({ shrink }) => shrink));
    for (const { product, shrink } of adapted) if (read.has(shrink)) products.delete(product);
  }
  return products;
}

/** The schedule of a product that says nothing of adapters. */
function unsettled(schedule: CudaSchedule | undefined): CudaGemmSchedule {
  if (schedule?.kind !== 'gemm') throw new Error('A product with adapters has no gemm schedule.');
  const { adapters: _, ...others } = schedule;
  return others;
}

function shrinkUse(schedule: CudaSchedule | undefined, isIdle: boolean): CudaSchedule {
  if (schedule?.kind !== 'loop') throw new Error('A shrink kernel has no loop schedule.');
  const { isIdle: _, ...others } = schedule;
  return isIdle ? { ...others, isIdle } : others;
}
