/**
 * Attention on a GPU: one block for each tile of queries of each head, and one pass for each tree or path that the tile
 * meets.
 */
import type { CudaAttentionSchedule, LaunchShape } from '../../ir/cuda.js';
import type { AttentionKernel, KernelModule, Mask } from '../../ir/kernel.js';
import { isFloat, type BufferDType } from '../../ir/types.js';
import { floatLiteral } from './text/literals.js';
import { MAX_HEAD_IN_REGISTERS, MAX_TOKENS, MMA_ROWS, MOST_ROWS, SIMT_WARPS, tileOf } from './attentionTile.js';
import type { CudaOperands, EmittedCuda, Operand } from './text/operands.js';
import { CUDA_TYPES, kernelHead } from './text/operands.js';
import { maskBuffers } from '../../ir/kernelAccess.js';
import { render } from './text/templates.js';

/**
 * Keys per step of the online softmax. The step determines rounding, so each skeleton has a fixed one, and results do
 * not depend on the schedule.
 */
export const ATTENTION_KEYS: Readonly<Record<CudaAttentionSchedule['skeleton'], number>> = { simt: 32, mma: 32 };

/** The limit on a schedule: bytes of shared memory available to a block. */
export interface AttentionLimits {
  readonly sharedBytes: number;
}

/** Every GPU from sm_80 on grants a block 99 KiB of shared memory. */
const LEAST_LIMITS: AttentionLimits = { sharedBytes: 101_376 };

const MAX_SIMT_COLUMNS = 512;
/** Accumulators, queries or both must fit in 255 registers. */
const MAX_MMA_HEAD = 256;

/**
 * Keys of a path that make one partial result. Partial results are merged in order of position. The size determines
 * rounding, so it is part of what an answer means.
 */
export const PATH_CHUNK = 512;

/** Query counts of a block, the most promising first. */
const QUERIES = { simt: [16, 8, 32, 4], mma: [64, 128, 32, 16] } as const;
/** Under a path mask, mma counts queries, not rows of the tile. */
const PATH_QUERIES = [1, 2, 4, 8, 16, 32, 64, 128] as const;
/** Rows of a tile over a path that are best for prompts. */
const PATH_ROWS = 64;

function queriesOf(
  skeleton: CudaAttentionSchedule['skeleton'],
  { mask, heads, kvHeads }: AttentionKernel,
): readonly number[] {
  if (skeleton === 'simt' || mask.kind !== 'path') return QUERIES[skeleton];
  const distance = (queries: number): number => Math.abs(Math.log2((queries * heads) / kvHeads / PATH_ROWS));
  return PATH_QUERIES.toSorted((a, b) => distance(a) - distance(b));
}

/** Largest call that is taken for one in which many paths have few queries each. */
const MOST_SPARSE_ROWS = 128;

const inWords = (values: readonly number[]): string => {
  const sorted = [...values].sort((a, b) => a - b);
  return `${sorted.slice(0, -1).join(', ')} or ${sorted.at(-1)!}`;
};

const is16 = (dtype: BufferDType): dtype is 'bf16' | 'f16' => dtype === 'bf16' || dtype === 'f16';

/** `true`, or the reason why `schedule` cannot be used for `kernel`. */
export function isLegalAttention(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  schedule: CudaAttentionSchedule,
  limits: AttentionLimits = LEAST_LIMITS,
): true | string {
  const { skeleton, queries, keys } = schedule;
  const { headDim: d, heads, kvHeads } = kernel;
  const dtypes = new Set(
    [kernel.q, kernel.k, kernel.v].map((name) => module.buffers.find((b) => b.name === name)?.dtype),
  );
  const [dtype] = dtypes;
  if (dtypes.size !== 1 || dtype === undefined) return 'queries, keys and values must be declared with one dtype';
  if (!isFloat(dtype)) return `queries are ${dtype}, not floats`;
  const out = module.buffers.find((b) => b.name === kernel.out)?.dtype;
  if (out === undefined || !isFloat(out)) return `the result ${kernel.out} is not declared as floats`;
  if (heads % kvHeads !== 0) return `${heads} heads cannot share ${kvHeads} heads of keys evenly`;
  if (keys !== ATTENTION_KEYS[skeleton])
    return `${skeleton} takes ${ATTENTION_KEYS[skeleton]} keys at a time: answers must not depend on the schedule`;
  if (skeleton === 'mma') {
    if (!is16(dtype)) return `tensor cores want queries, keys and values in 16 bits, not ${dtype}`;
    if (kernel.mask.kind === 'bias') return 'only simt takes a materialised bias';
    if (d % 16 !== 0 || d < 16 || d > MAX_MMA_HEAD)
      return `mma wants heads of a multiple of 16, at most ${MAX_MMA_HEAD}, not ${d}`;
    if (!(kernel.scale > 0)) return `mma folds a positive scale into the softmax, not ${kernel.scale}`;
  } else {
    if (!Number.isSafeInteger(d) || d < 1 || d > MAX_SIMT_COLUMNS)
      return `simt wants heads of at most ${MAX_SIMT_COLUMNS}, not ${d}`;
  }
  const counts = queriesOf(skeleton, kernel);
  if (!counts.includes(queries)) return `${skeleton} takes ${inWords(counts)} queries`;
  const { rows, dynamicBytes, staticBytes } = tileOf(kernel, schedule);
  if (skeleton === 'mma' && rows > MOST_ROWS)
    return `${queries} queries of ${heads / kvHeads} heads are ${rows} rows, ${MOST_ROWS} at most`;
  const bytes = dynamicBytes + staticBytes;
  return bytes <= limits.sharedBytes
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${limits.sharedBytes} are there`;
}

/**
 * A legal schedule for a kernel that has not been tuned: on tensor cores if they can be used. `rows`: queries of a
 * call, as far as they are known.
 */
export function defaultAttentionSchedule(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  limits: AttentionLimits = LEAST_LIMITS,
  rows = Infinity,
): CudaAttentionSchedule {
  const candidates = attentionSchedules(kernel, module, limits);
  // Few queries are mostly queries of different paths. A block for each keeps most loads in flight.
  const isSparse = kernel.mask.kind === 'path' && rows <= MOST_SPARSE_ROWS;
  const best = candidates.find(({ skeleton, queries }) => isSparse && skeleton === 'mma' && queries === 1);
  const schedule = best ?? candidates[0];
  if (schedule !== undefined) return schedule;
  const why = isLegalAttention(
    kernel,
    module,
    { kind: 'attention', skeleton: 'simt', queries: 4, keys: ATTENTION_KEYS.simt },
    limits,
  );
  throw new Error(`Kernel ${kernel.name} (${kernel.path}) has no legal attention schedule: ${String(why)}.`);
}

/** Every legal schedule, the most promising first. */
export function attentionSchedules(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  limits: AttentionLimits = LEAST_LIMITS,
): CudaAttentionSchedule[] {
  return (['mma', 'simt'] as const)
    .flatMap((skeleton) =>
      queriesOf(skeleton, kernel).map(
        (queries) => ({ kind: 'attention', skeleton, queries, keys: ATTENTION_KEYS[skeleton] }) as const,
      ),
    )
    .filter((schedule) => isLegalAttention(kernel, module, schedule, limits) === true);
}

/**
 * Prints an attention kernel as CUDA, without the shared prelude. The schedule must be legal for it (isLegalAttention).
 * Throws if a batch may be longer than the kernel's static shared memory allows.
 */
export function emitAttention(
  kernel: AttentionKernel,
  operands: CudaOperands,
  schedule: CudaAttentionSchedule,
  symbol: string,
): EmittedCuda {
  const { heads, kvHeads, headDim: d, mask } = kernel;
  const { skeleton, queries, keys } = schedule;
  const isPath = mask.kind === 'path';
  // Of a path, the list of keys has rows of the call; the keys themselves may lie in a state of fixed size.
  const keyRows = operands.rowsOf(isPath ? mask.key : kernel.k);
  if (skeleton === 'mma' && !isPath && keyRows.most > MAX_TOKENS) {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) cannot attend over ${keyRows.most} tokens in a batch, ` +
        `${MAX_TOKENS} at most: compile with a smaller --batch-tokens.`,
    );
  }
  const [q, k, v, out] = [
    operands.get(kernel.q),
    operands.get(kernel.k),
    operands.get(kernel.v),
    operands.get(kernel.out),
  ];
  const masks = maskBuffers(mask).map((name) => operands.get(name));
  const queryRow = kernel.queryRow === undefined ? undefined : operands.get(kernel.queryRow);
  const { rows, isGrouped, threads, slots, blocks, dynamicBytes } = tileOf(kernel, schedule);
  const parameters = new Set(
    [q, k, v, out, ...masks, ...(queryRow === undefined ? [] : [queryRow])].map(({ name }) => name),
  ).size;
  const values = {
    head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps: [], threads, blocks }),
    heads,
    kvHeads,
    group: heads / kvHeads,
    d,
    queries,
    keys,
    rows: kernel.rows,
    queryRows: operands.rowsOf(kernel.q).extent,
    keyRows: keyRows.extent,
    dtype: q.dtype,
    type: CUDA_TYPES[q.dtype],
    outDtype: out.dtype,
    outType: CUDA_TYPES[out.dtype],
    qIndex: q.index,
    kIndex: k.index,
    vIndex: v.index,
    outIndex: out.index,
    qStride: q.stride,
    kStride: k.stride,
    vStride: v.stride,
    outStride: out.stride,
    ...maskValues(mask, masks),
    hasQueryRow: queryRow !== undefined,
    queryRowIndex: queryRow?.index ?? -1,
  };
  const body =
    skeleton === 'mma'
      ? render(isPath ? 'attentionPathMma' : 'attentionMma', {
          ...values,
          warps: rows / MMA_ROWS,
          chunk: PATH_CHUNK,
          tiles: Math.ceil(keyRows.most / keys),
          slots,
          ahead: slots > 2 ? 'two tiles' : 'a tile',
          scale: floatLiteral(kernel.scale * Math.LOG2E),
          queriesInRegisters: d <= MAX_HEAD_IN_REGISTERS,
          isWideOut: out.dtype === 'f32',
        })
      : render('attentionSimt', {
          ...values,
          warpQueries: queries / SIMT_WARPS,
          scale: floatLiteral(kernel.scale),
        });
  const launch: LaunchShape = {
    threads,
    sharedBytes: dynamicBytes,
    cluster: 1,
    // Heads are adjacent in the grid, so that blocks that run together read whole rows.
    gridX: { kind: 'constant', count: isGrouped ? kvHeads : heads },
    gridY: { kind: 'tiles', extent: kernel.rows, per: queries, times: 1 },
  };
  return { source: `${render('attentionWarp', {})}\n${body}`, tensorMaps: [], launch, waitsForPredecessor: true };
}

/** What templates read about a mask, whose buffers are `operands`. */
function maskValues(mask: Mask, [first, second, third]: readonly Operand[]): object {
  const none = { isColumn: false, isPath: false, maskIndex: -1, maskStride: -1 };
  const { index, stride } = first!;
  switch (mask.kind) {
    case 'column':
      return { ...none, isColumn: true, maskIndex: index };
    case 'bias':
      return { ...none, maskIndex: index, maskStride: stride };
    case 'path':
      return { ...none, isPath: true, beginIndex: index, positionIndex: second!.index, keyListIndex: third!.index };
    default:
      return mask satisfies never;
  }
}
