/**
 * Lets a kernel finish its rows. Kernels in, kernels out.
 *
 * Where a norm follows a product (h + norm(o(x))·w), a loop reads the product and sums of its squares again, all of
 * them of its own row. The contraction can do so itself as soon as all columns of a row are stored: the row then comes
 * from the L2 cache, other tiles are multiplied meanwhile, and one kernel less runs.
 *
 * A product that takes less time than its rows do leaves them to the loop (isDeep).
 *
 * Where a loop reduces rows and another reads what was found and the same rows, the first goes on with each row that it
 * has: memory gives the row once.
 *
 * The loop's programs stay as they are, and so do its sums: in parts of ROW_SUM_BLOCK columns, in order of the columns.
 */
import { groupWidth } from '../ir/groupSums.js';
import {
  type BufferDecl,
  type GemmKernel,
  type Kernel,
  type KernelModule,
  type LoopKernel,
  type Output,
  ROW_SUM_BLOCK,
} from '../ir/kernel.js';
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

/**
 * Least depth k of products that finish their rows, by the type of their operands. Three warps of a multiprocessor
 * finish rows, after the epilogues of tiles, while others multiply. A product of E4M3 takes 1.28 fs of a whole H200 for
 * each of its k multiplications, and an epilogue of the residual stream and what finishes its rows take 14.2 ps an
 * element at 8,448 rows (docs/log/contractions.md), which is k = 11,100. A loop of its own reads 3 bytes of the stream
 * and writes a code, 1 ps an element, and leaves 0.95 of the product's rate. So both cost the same where
 * 1.28 fs · k / 0.95 + 1 ps = 14.2 ps: k = 9,800.
 *
 * Products of 16 bits take twice as long at equal depth, and loops behind them move three times as many bytes, a
 * product in f32 among them. There the finish paid at every depth that was measured.
 */
const MIN_DEPTH: Partial<Record<BufferDType, number>> = { e4m3: 9_800 };

/** Which products finish their rows: those that are deep enough, or all. */
export type Finishing = 'deep' | 'all';

/** Kernels that may finish rows. */
type Finisher = GemmKernel | LoopKernel;

/** What is asked for each loop: the types of buffers, and which products finish rows. */
interface FinishRules {
  readonly dtypes: ReadonlyMap<string, BufferDType>;
  readonly finishing: Finishing;
}

/** Whether `kernel` may finish rows of `columns` columns: it has all of them in one segment, in their natural order. */
const hasRows = (kernel: Kernel, loop: LoopKernel, setting: FinishRules): kernel is Finisher =>
  kernel.anchor === 'loop' ? isAlike(kernel, loop) : isProduct(kernel, loop) && isDeep(kernel, setting);

/** Whether multiplying takes at least as long as what the warps beside do with the rows. */
const isDeep = ({ a, k }: GemmKernel, { dtypes, finishing }: FinishRules): boolean =>
  finishing === 'all' || k >= (MIN_DEPTH[dtypes.get(a) ?? 'f32'] ?? 0);

const isPlain = ({ beside, headDim, versions, finish }: LoopKernel): boolean =>
  beside === undefined && headDim === undefined && versions === undefined && finish === undefined;

/** A loop that reduces the same rows. */
const isAlike = (kernel: LoopKernel, { rows, columns }: LoopKernel): boolean =>
  isPlain(kernel) &&
  kernel.rows === rows &&
  kernel.columns === columns &&
  kernel.outputs.some(({ kind }) => kind === 'rowSum');

/** Warps beside a product finish pieces of rows, so a loop that finds the largest of rows remains one. */
const isProduct = (kernel: Kernel, { rows, columns, outputs }: LoopKernel): kernel is GemmKernel =>
  outputs.every((output) => output.kind === 'store' || output.by === undefined) &&
  kernel.anchor === 'gemm' &&
  kernel.heads === undefined &&
  kernel.experts === undefined &&
  kernel.finish === undefined &&
  kernel.rows === rows &&
  kernel.segments.length === 1 &&
  kernel.segments[0]!.columns === columns &&
  kernel.segments[0]!.pairing.kind === 'none' &&
  groupWidth(kernel.segments[0]!.outputs) === undefined;

/**
 * The kernel that can run `loop`: the last one to write what it reads, where nothing between hinders it. `writers`: the
 * last kernel before the loop that writes each buffer.
 */
function finisherOf(
  { kernels }: KernelModule,
  loop: Kernel,
  writers: ReadonlyMap<string, number>,
  setting: FinishRules,
): number | undefined {
  if (loop.anchor !== 'loop' || !isPlain(loop)) return undefined;
  if (typeof loop.columns !== 'number' || loop.columns % ROW_SUM_BLOCK !== 0) return undefined;
  const from = Math.max(-1, ...[...kernelReads(loop)].map((name) => writers.get(name) ?? -1));
  const maker = kernels[from];
  if (maker === undefined || !hasRows(maker, loop, setting)) return undefined;
  const stored = kernelWrites(maker);
  const isSuited = loop.outputs.every((output) => isWide(output, setting.dtypes) && staysInRow(output.value, stored));
  return isSuited ? from : undefined;
}

const dtypesOf = ({ buffers }: { readonly buffers: readonly BufferDecl[] }): ReadonlyMap<string, BufferDType> =>
  new Map(buffers.map(({ name, dtype }) => [name, dtype]));

/** Gives loops over whole rows to the kernels that make them, or reduce them. */
export function fuseRowNorms<M extends KernelModule>(module: M, finishing: Finishing = 'deep'): M {
  const setting: FinishRules = { dtypes: dtypesOf(module), finishing };
  const taken = new Map<number, LoopKernel>();
  const gone = new Set<Kernel>();
  const writers = new Map<string, number>();
  for (const [at, kernel] of module.kernels.entries()) {
    const from = finisherOf(module, kernel, writers, setting);
    if (from !== undefined && kernel.anchor === 'loop' && !taken.has(from) && !gone.has(module.kernels[from]!)) {
      taken.set(from, kernel);
      gone.add(kernel);
    }
    for (const name of kernelWrites(kernel)) writers.set(name, at);
  }
  if (taken.size === 0) return module;
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
