/**
 * Lets a kernel finish its rows. Kernels in, kernels out.
 *
 * Where a norm follows a product (h + norm(o(x))·w), a loop reads the product and sums of its squares again, all of
 * them of its own row. The contraction can do so itself as soon as all columns of a row are stored: the row then comes
 * from the L2 cache, other tiles are multiplied meanwhile, and one kernel less runs.
 *
 * Where a loop reduces rows and another reads what was found and the same rows, the first goes on with each row that it
 * has: memory gives the row once.
 *
 * The loop's programs stay as they are, and so do its sums: in parts of ROW_SUM_BLOCK columns, in order of the columns.
 */
import { groupWidth } from '../ir/groupSums.js';
import type { BufferDecl, GemmKernel, Kernel, KernelModule, LoopKernel, Output } from '../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { operands, readOf, type Scalar } from '../ir/scalar.js';
import type { BufferDType } from '../ir/types.js';

/** Types that lanes read and write several columns of at a time. */
const WIDE: ReadonlySet<BufferDType> = new Set(['f32', 'bf16', 'f16', 'u8', 'e4m3']);

/** Whether a program reads what is in `stored` at its own row only. */
const staysInRow = (s: Scalar, stored: ReadonlySet<string>): boolean => {
  const read = readOf(s);
  return !(read?.via !== undefined && stored.has(read.buffer)) && operands(s).every((each) => staysInRow(each, stored));
};

const isWide = (output: Output, dtypes: ReadonlyMap<string, BufferDType>): boolean =>
  output.kind === 'rowSum' || (output.via === undefined && WIDE.has(dtypes.get(output.buffer) ?? 'i32'));

/** Kernels that may finish rows. */
type Finisher = GemmKernel | LoopKernel;

/** Whether `kernel` may finish rows of `columns` columns: it has all of them in one segment, in their natural order. */
const hasRows = (kernel: Kernel, loop: LoopKernel): kernel is Finisher =>
  kernel.anchor === 'loop' ? isAlike(kernel, loop) : isProduct(kernel, loop);

const isPlain = ({ beside, headDim, versions, finish }: LoopKernel): boolean =>
  beside === undefined && headDim === undefined && versions === undefined && finish === undefined;

/** A loop that reduces the same rows. */
const isAlike = (kernel: LoopKernel, { rows, columns }: LoopKernel): boolean =>
  isPlain(kernel) &&
  kernel.rows === rows &&
  kernel.columns === columns &&
  kernel.outputs.some(({ kind }) => kind === 'rowSum');

const isProduct = (kernel: Kernel, { rows, columns }: LoopKernel): kernel is GemmKernel =>
  kernel.anchor === 'gemm' &&
  kernel.experts === undefined &&
  kernel.finish === undefined &&
  kernel.rows === rows &&
  kernel.segments.length === 1 &&
  kernel.segments[0]!.columns === columns &&
  kernel.segments[0]!.pairing.kind === 'none' &&
  groupWidth(kernel.segments[0]!.outputs) === undefined;

/** The kernel that can run `loop`: the last one to write what it reads, where nothing between hinders it. */
function finisherOf(module: KernelModule, at: number, dtypes: ReadonlyMap<string, BufferDType>): number | undefined {
  const { kernels } = module;
  const loop = kernels[at]!;
  if (loop.anchor !== 'loop' || !isPlain(loop)) return undefined;
  if (typeof loop.columns !== 'number' || loop.columns % ROW_SUM_BLOCK !== 0) return undefined;
  const reads = kernelReads(loop);
  const from = kernels.findLastIndex(
    (kernel, i) => i < at && [...kernelWrites(kernel)].some((name) => reads.has(name)),
  );
  const maker = kernels[from];
  if (maker === undefined || !hasRows(maker, loop)) return undefined;
  const stored = kernelWrites(maker);
  const isSuited = loop.outputs.every((output) => isWide(output, dtypes) && staysInRow(output.value, stored));
  return isSuited ? from : undefined;
}

const dtypesOf = ({ buffers }: { readonly buffers: readonly BufferDecl[] }): ReadonlyMap<string, BufferDType> =>
  new Map(buffers.map(({ name, dtype }) => [name, dtype]));

/** Gives every loop over whole rows to the kernel that makes them, or reduces them. */
export function finishRows<M extends KernelModule>(module: M): M {
  const dtypes = dtypesOf(module);
  const taken = new Map<number, LoopKernel>();
  for (const [at, kernel] of module.kernels.entries()) {
    const from = finisherOf(module, at, dtypes);
    const isGone = [...taken.values()].some((loop) => loop === module.kernels[from ?? -1]);
    if (from !== undefined && kernel.anchor === 'loop' && !taken.has(from) && !isGone) taken.set(from, kernel);
  }
  if (taken.size === 0) return module;
  const gone = new Set<Kernel>(taken.values());
  return {
    ...module,
    kernels: module.kernels.flatMap((kernel, i): Kernel[] => {
      const loop = taken.get(i);
      if (gone.has(kernel)) return [];
      if (loop === undefined || (kernel.anchor !== 'gemm' && kernel.anchor !== 'loop')) return [kernel];
      return [{ ...kernel, ops: [...kernel.ops, ...loop.ops], finish: loop.outputs }];
    }),
  };
}
