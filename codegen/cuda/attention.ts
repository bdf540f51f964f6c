/**
 * Tree attention on a GPU: one block for each tile of queries of each head, and one pass for each tree that the tile
 * meets.
 */
import type { CudaAttentionSchedule, LaunchShape } from '../../ir/cuda.js';
import type { AttentionKernel, KernelModule } from '../../ir/kernel.js';
import { isFloat, type BufferDType } from '../../ir/types.js';
import { floatLiteral } from './text/literals.js';
import type { CudaOperands, EmittedCuda } from './text/operands.js';
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

/**
 * Longest batch of the mma skeleton: the ends of all its tiles of keys are in static shared memory, 8 bytes for 32
 * tokens.
 */
const MAX_TOKENS = 1 << 16;
/** Static shared memory: those ends, the queries' tokens, ends of keys, and roots. */
const STATIC_BYTES = { simt: 1024, mma: MAX_TOKENS / 4 + 2048 } as const;

const SIMT_WARPS = 4;
const MAX_SIMT_COLUMNS = 512;
/** Accumulators, queries or both must fit in 255 registers. */
const MAX_MMA_HEAD = 256;
/** In longer heads, query fragments are read again from shared memory: the registers saved allow more warps. */
const MAX_HEAD_IN_REGISTERS = 64;
/**
 * Longest head for which the remaining values fit in the registers of MANY_THREADS on a multiprocessor. With longer
 * heads, FEW_THREADS avoid spilling.
 */
const MAX_HEAD_OF_MANY = 128;
const MANY_THREADS = 512;
const FEW_THREADS = 256;
/** With few queries, larger tiles of keys do not fit in shared memory. */
const MOST_BLOCKS = 5;

/**
 * Tiles of keys and values in shared memory. A third tile keeps more loads in flight; it is used if a Hopper
 * multiprocessor still holds as many blocks as its registers allow.
 */
const slotsOf = (d: number, queries: number): number =>
  d <= MAX_HEAD_IN_REGISTERS || (d <= MAX_HEAD_OF_MANY && queries === 128) ? 3 : 2;

/** Number of blocks that must be able to share a multiprocessor's registers. */
const blocksOf = (d: number, threads: number): number =>
  Math.min(MOST_BLOCKS, Math.max(1, Math.floor((d <= MAX_HEAD_OF_MANY ? MANY_THREADS : FEW_THREADS) / threads)));

const is16 = (dtype: BufferDType): dtype is 'bf16' | 'f16' => dtype === 'bf16' || dtype === 'f16';

function dynamicBytes(
  kernel: Pick<AttentionKernel, 'headDim'>,
  { skeleton, queries, keys }: CudaAttentionSchedule,
): number {
  const d = kernel.headDim;
  return skeleton === 'mma'
    ? (queries + 2 * slotsOf(d, queries) * keys) * (d + 8) * 2
    : (queries * d + keys * (2 * d + 1)) * 4;
}

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
    if (kernel.mask.kind !== 'column') return 'only simt takes a materialised bias';
    if (d % 16 !== 0 || d < 16 || d > MAX_MMA_HEAD)
      return `mma wants heads of a multiple of 16, at most ${MAX_MMA_HEAD}, not ${d}`;
    if (!(kernel.scale > 0)) return `mma folds a positive scale into the softmax, not ${kernel.scale}`;
    if (![16, 32, 64, 128].includes(queries)) return 'mma takes 16, 32, 64 or 128 queries';
  } else {
    if (!Number.isSafeInteger(d) || d < 1 || d > MAX_SIMT_COLUMNS)
      return `simt wants heads of at most ${MAX_SIMT_COLUMNS}, not ${d}`;
    if (![4, 8, 16, 32].includes(queries)) return 'simt takes 4, 8, 16 or 32 queries';
  }
  const bytes = dynamicBytes(kernel, schedule) + STATIC_BYTES[skeleton];
  return bytes <= limits.sharedBytes
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${limits.sharedBytes} are there`;
}

/** A legal schedule for a kernel that has not been tuned: on tensor cores if they can be used. */
export function defaultAttentionSchedule(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  limits: AttentionLimits = LEAST_LIMITS,
): CudaAttentionSchedule {
  const candidates = attentionSchedules(kernel, module, limits);
  const [best] = candidates;
  if (best !== undefined) return best;
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
  const all = [
    ...[64, 128, 32, 16].map(
      (queries) => ({ kind: 'attention', skeleton: 'mma', queries, keys: ATTENTION_KEYS.mma }) as const,
    ),
    ...[16, 8, 32, 4].map(
      (queries) => ({ kind: 'attention', skeleton: 'simt', queries, keys: ATTENTION_KEYS.simt }) as const,
    ),
  ];
  return all.filter((schedule) => isLegalAttention(kernel, module, schedule, limits) === true);
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
  const keyRows = operands.rowsOf(kernel.k);
  if (skeleton === 'mma' && keyRows.most > MAX_TOKENS) {
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
  const maskOperand = operands.get(maskBuffers(mask)[0]!);
  const queryRow = kernel.queryRow === undefined ? undefined : operands.get(kernel.queryRow);
  const threads = skeleton === 'mma' ? 2 * queries : 32 * SIMT_WARPS;
  const parameters = new Set(
    [q, k, v, out, maskOperand, ...(queryRow === undefined ? [] : [queryRow])].map(({ name }) => name),
  ).size;
  const values = {
    head: kernelHead({
      symbol,
      extents: operands.extents,
      parameters,
      tensorMaps: [],
      threads,
      blocks: skeleton === 'mma' ? blocksOf(d, threads) : 1,
    }),
    heads,
    kvHeads,
    group: heads / kvHeads,
    d,
    queries,
    keys,
    rows: kernel.rows,
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
    maskIndex: maskOperand.index,
    hasQueryRow: queryRow !== undefined,
    queryRowIndex: queryRow?.index ?? -1,
  };
  const body =
    skeleton === 'mma'
      ? render('attentionMma', {
          ...values,
          tiles: Math.ceil(keyRows.most / keys),
          slots: slotsOf(d, queries),
          ahead: slotsOf(d, queries) > 2 ? 'two tiles' : 'a tile',
          scale: floatLiteral(kernel.scale * Math.LOG2E),
          queriesInRegisters: d <= MAX_HEAD_IN_REGISTERS,
          isWideOut: out.dtype === 'f32',
        })
      : render('attentionSimt', {
          ...values,
          warpQueries: queries / SIMT_WARPS,
          scale: floatLiteral(kernel.scale),
          isColumn: mask.kind === 'column',
          maskStride: maskOperand.stride,
        });
  const launch: LaunchShape = {
    threads,
    sharedBytes: dynamicBytes(kernel, schedule),
    cluster: 1,
    // Heads are adjacent in the grid, so that blocks that run together read whole rows.
    gridX: { kind: 'constant', count: heads },
    gridY: { kind: 'tiles', extent: kernel.rows, per: queries, times: 1 },
  };
  return { source: `${render('attentionWarp', {})}\n${body}`, tensorMaps: [], launch, waitsForPredecessor: true };
}
