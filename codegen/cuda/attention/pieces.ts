/** What templates of attention read, and pieces that several print. */
import type { CudaAttentionSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import { type AttentionKernel, type Mask, windowOfMask } from '../../../ir/kernel.js';
import { maskBuffers, scaleBuffers } from '../../../ir/kernelAccess.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { type AttentionTile, MAX_HEAD_IN_REGISTERS, MMA_ROWS, PATH_CHUNK } from '../attentionTile.js';
import { CUDA_TYPES, type CudaOperands, kernelHead, type Operand, rowOffset } from '../text/operands.js';
import { BOUNDED_UNIT, floatLiteral, indent, render } from '../text/statements.js';

/** A kernel to print, with what follows from its schedule. */
export interface AttentionCode {
  readonly kernel: AttentionKernel;
  readonly operands: CudaOperands;
  readonly schedule: CudaAttentionSchedule;
  readonly symbol: string;
  readonly tile: AttentionTile;
  /** Rows of keys and values that lists and masks may name. */
  readonly keyRows: ReturnType<CudaOperands['rowsOf']>;
}

/** What all templates read. */
export function attentionValues(
  { kernel, operands, schedule, symbol, tile, keyRows }: AttentionCode,
  tensorMaps: readonly TensorMapDecl[],
): object {
  const { heads, kvHeads, headDim: d, mask } = kernel;
  const { queries, keys } = schedule;
  const [q, k, v, out] = [
    operands.get(kernel.q),
    operands.get(kernel.k),
    operands.get(kernel.v),
    operands.get(kernel.out),
  ];
  const masks = maskBuffers(mask).map((name) => operands.get(name));
  const scales = scaleBuffers(kernel).map((name) => operands.get(name));
  const queryRow = kernel.queryRow === undefined ? undefined : operands.get(kernel.queryRow);
  const { threads, blocks } = tile;
  const parameters = new Set(
    [q, k, v, out, ...scales, ...masks, ...(queryRow === undefined ? [] : [queryRow])].map(({ name }) => name),
  ).size;
  return {
    head: kernelHead({ symbol, extents: operands.extents, parameters, tensorMaps, threads, blocks }),
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
    kUnits: unitsOf(k),
    vUnits: unitsOf(v),
    outStride: out.stride,
    ...keyValues(kernel, [q, k, v], scales),
    ...maskValues(mask, masks),
    window: windowOfMask(mask),
    isKept: typeof operands.dimOf(kernel.k) === 'number',
    hasQueryRow: queryRow !== undefined,
    queryRowIndex: queryRow?.index ?? -1,
  };
}

/** What templates on tensor cores read beside. */
export const tensorCoreValues = ({ kernel, operands, schedule, tile, keyRows }: AttentionCode): object => {
  const { headDim: d } = kernel;
  const { rows, slots, isDecode, isLone, dynamicBytes } = tile;
  return {
    warps: isDecode ? PATH_CHUNK / schedule.keys : rows / MMA_ROWS,
    chunk: PATH_CHUNK,
    tiles: Math.ceil(keyRows.most / schedule.keys),
    slots,
    ahead: slots > 2 ? 'two tiles' : 'a tile',
    // With a cap, scores become tanh(s / cap) before the softmax multiplies them.
    scale: floatLiteral((kernel.cap ?? kernel.scale) * Math.LOG2E),
    cap: kernel.cap !== undefined,
    capFactor: floatLiteral((kernel.scale / (kernel.cap ?? 1)) * BOUNDED_UNIT),
    queriesInRegisters: isLone || d <= MAX_HEAD_IN_REGISTERS,
    totalsInRegisters: d <= MAX_HEAD_IN_REGISTERS,
    sharedBytes: dynamicBytes,
    isWideOut: operands.get(kernel.out).dtype === 'f32',
  };
};

/** Units of 16 bytes from a row of an operand to the next. */
const unitsOf = ({ stride, dtype }: Operand): number => (stride * DTYPE_BYTES[dtype]) / 16;

/** Behind `kv` or the like: what leads to the scales of that head. */
const headOffset = ({ columnStride }: Operand): string => (columnStride === 1 ? '' : ` * ${columnStride}`);

/** What templates read about keys and values: as attention multiplies them, or as codes with `scales`. */
function keyValues(
  kernel: AttentionKernel,
  [q, k, v]: readonly [Operand, Operand, Operand],
  [kScale, vScale]: readonly Operand[],
): object {
  const load = (of: Operand, name: string): string => `tw_load_${of.dtype}(${name} + row * ${of.stride}ll + i % D)`;
  const plain = {
    scaled: false,
    codes: '',
    keyType: CUDA_TYPES[k.dtype],
    keyValue: load(k, 'k'),
    valueValue: load(v, 'v'),
    step: 8,
    queryBytes: 'ROW_BYTES',
    queryPieces: 'PIECES',
  };
  if (kScale === undefined || vScale === undefined) return plain;
  return {
    ...plain,
    scaled: true,
    codes: render('attentionCodes', { isWhole: k.dtype === 'i8' }),
    // Both products are of binary16.
    queryDtype: q.dtype,
    dtype: kernel.scales === undefined || q.dtype === 'f32' ? q.dtype : 'f16',
    kScaleIndex: kScale.index,
    vScaleIndex: vScale.index,
    kScaleAt: rowOffset(kScale, 'at', 'll'),
    vScaleAt: rowOffset(vScale, 'at', 'll'),
    kScaleHead: headOffset(kScale),
    vScaleHead: headOffset(vScale),
    keyValue: `${plain.keyValue} * k_scales[${rowOffset(kScale, 'row', 'll')}]`,
    valueValue: `${plain.valueValue} * v_scales[${rowOffset(vScale, 'row', 'll')}]`,
    step: 16,
    queryBytes: 'QUERY_BYTES',
    queryPieces: 'QUERY_PIECES',
  };
}

/** What templates read about a mask, whose buffers are `operands`. */
function maskValues(mask: Mask, [first, second, third]: readonly Operand[]): object {
  const none = { isColumn: false, isPath: false, maskIndex: -1, maskStride: -1 };
  const { index, stride } = first!;
  switch (mask.kind) {
    case 'column':
      return { ...none, isColumn: true, maskIndex: index, positionIndex: second?.index };
    case 'bias':
      return { ...none, maskIndex: index, maskStride: stride };
    case 'path':
      return { ...none, isPath: true, beginIndex: index, positionIndex: second!.index, keyListIndex: third!.index };
    default:
      return mask satisfies never;
  }
}

/** A step of the softmax over one tile of keys, and what ends a path. */
export function pathParts(
  values: object,
  tileDepth: number,
  storeDepth: number,
  products?: string,
): Readonly<Record<string, string>> {
  const tile = { ...values, ...tileParts({ slot: 'at_slot', ...values }, 0, products) };
  return {
    power2: part('attentionPower2', values),
    tile: part('attentionPathTile', tile, tileDepth),
    store: part('attentionPathStore', values, storeDepth),
  };
}

/** The products of one tile of keys and values, and the exponentials between them. `slot`: where the tile lies. */
export const tileParts = (
  values: object & { slot: string },
  depth = 0,
  products = 'attentionProducts',
): Readonly<Record<string, string>> => ({
  scores: part('attentionScores', values, depth),
  weights: part('attentionWeights', values, depth),
  products: part(products, values, depth),
});

/** A template as lines of a kernel, `depth` levels deep, without the last line's end. */
export const part = (name: string, values: object, depth = 0): string =>
  indent(render(name, values).trimEnd().split('\n'), depth).trimEnd();
