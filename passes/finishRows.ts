/**
 * Lets a contraction finish its rows. Where a norm follows a product (h + norm(o(x))·w), a loop reads the product and
 * sums of its squares again, all of them of its own row. The contraction can do so itself as soon as all columns of a
 * row are stored: the row then comes from the L2 cache, other tiles are multiplied meanwhile, and one kernel less runs.
 * Kernels in, kernels out.
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

/** Whether `kernel` may finish rows of `columns` columns: it has all of them in one segment, in their natural order. */
const hasRows = (kernel: Kernel, { rows, columns }: LoopKernel): kernel is GemmKernel =>
  kernel.anchor === 'gemm' &&
  kernel.experts === undefined &&
  kernel.finish === undefined &&
  kernel.rows === rows &&
  kernel.segments.length === 1 &&
  kernel.segments[0]!.columns === columns &&
  kernel.segments[0]!.pairing.kind === 'none' &&
  groupWidth(kernel.segments[0]!.outputs) === undefined;

/** The contraction that can run `loop`: the last kernel to write what it reads, where nothing between hinders it. */
function finisherOf(module: KernelModule, at: number, dtypes: ReadonlyMap<string, BufferDType>): number | undefined {
  const { kernels } = module;
  const loop = kernels[at]!;
  if (loop.anchor !== 'loop' || loop.beside !== undefined) return undefined;
  if (loop.headDim !== undefined || loop.versions !== undefined) return undefined;
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

/** Gives every loop over whole rows of a product to the contraction that computes it. */
export function finishRows<M extends KernelModule>(module: M): M {
  const dtypes = dtypesOf(module);
  const taken = new Map<number, LoopKernel>();
  for (const [at, kernel] of module.kernels.entries()) {
    const from = finisherOf(module, at, dtypes);
    if (from !== undefined && kernel.anchor === 'loop' && !taken.has(from)) taken.set(from, kernel);
  }
  if (taken.size === 0) return module;
  const gone = new Set<Kernel>(taken.values());
  return {
    ...module,
    kernels: module.kernels.flatMap((kernel, i): Kernel[] => {
      const loop = taken.get(i);
      if (gone.has(kernel)) return [];
      if (loop === undefined || kernel.anchor !== 'gemm') return [kernel];
      return [{ ...kernel, ops: [...kernel.ops, ...loop.ops], finish: loop.outputs }];
    }),
  };
}
