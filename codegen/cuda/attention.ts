/**
 * Attention on a GPU: one block for each tile of queries of each head, and one pass for each tree or path that the tile
 * meets.
 */
import type { CudaAttentionSchedule, LaunchShape, TensorMapDecl } from '../../ir/cuda.js';
import { type AttentionKernel, type Mask, windowOfMask } from '../../ir/kernel.js';
import { maskBuffers, scaleBuffers } from '../../ir/kernelAccess.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import {
  decodeTeamBytes,
  MAX_HEAD_IN_REGISTERS,
  MAX_TOKENS,
  MMA_ROWS,
  PATH_CHUNK,
  rowPieces,
  SIMT_WARPS,
  tileOf,
  WGMMA_KEYS,
} from './attentionTile.js';
import {
  CUDA_TYPES,
  type CudaOperands,
  type EmittedCuda,
  kernelHead,
  type Operand,
  rowOffset,
} from './text/operands.js';
import { BOUNDED_UNIT, capFunctions, capText, floatLiteral, indent, render } from './text/statements.js';
import {
  barrierFunctions,
  descriptorWords,
  operandType,
  SLAB_BYTES,
  slabOf,
  stepOf,
  wgmmaOperands,
} from './wgmma/instruction.js';

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
  const { skeleton, queries, keys, cluster = 1 } = schedule;
  const isPath = mask.kind === 'path';
  // The keys of a path may lie in a state of fixed size. Its list of keys is an input, whose rows belong to the call.
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
  const scales = scaleBuffers(kernel).map((name) => operands.get(name));
  const queryRow = kernel.queryRow === undefined ? undefined : operands.get(kernel.queryRow);
  const { isDecode, isLone, rows, isGrouped, threads, slots, blocks, dynamicBytes } = tileOf(kernel, schedule);
  const parameters = new Set(
    [q, k, v, out, ...scales, ...masks, ...(queryRow === undefined ? [] : [queryRow])].map(({ name }) => name),
  ).size;
  const tensorMaps = skeleton === 'wgmma' ? keyMaps(kernel, operands) : [];
  const values = {
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
  const body =
    skeleton !== 'simt'
      ? renderMma(mmaTemplate(kernel, schedule), {
          ...values,
          ...(isDecode || isLone
            ? decodeValues(kernel, schedule, [...masks, ...(queryRow === undefined ? [] : [queryRow])])
            : {}),
          warps: isDecode ? PATH_CHUNK / keys : rows / MMA_ROWS,
          chunk: PATH_CHUNK,
          tiles: Math.ceil(keyRows.most / keys),
          slots,
          ahead: slots > 2 ? 'two tiles' : 'a tile',
          // With a cap, scores become tanh(s / cap) before the softmax multiplies them.
          scale: floatLiteral((kernel.cap ?? kernel.scale) * Math.LOG2E),
          cap: kernel.cap !== undefined,
          capFactor: floatLiteral((kernel.scale / (kernel.cap ?? 1)) * BOUNDED_UNIT),
          queriesInRegisters: isLone || d <= MAX_HEAD_IN_REGISTERS,
          totalsInRegisters: d <= MAX_HEAD_IN_REGISTERS,
          sharedBytes: dynamicBytes,
          isWideOut: out.dtype === 'f32',
        })
      : render('attentionSimt', {
          ...values,
          // Queries are loaded as they are.
          dtype: q.dtype,
          warpQueries: queries / SIMT_WARPS,
          scale: floatLiteral(kernel.scale),
          ...capText(kernel.cap),
        });
  const hopper = skeleton === 'wgmma' ? hopperText(d, q.dtype) : '';
  const launch: LaunchShape = {
    threads,
    sharedBytes: dynamicBytes,
    cluster,
    // Heads are adjacent in the grid, so that blocks that run together read whole rows. A grid may be 65,535 blocks
    // high, and a call over paths may have more queries of a block each: they lie along x.
    ...(isGrouped
      ? {
          gridX: {
            ...(skeleton === 'wgmma'
              ? ({ kind: 'persistent', blocksPerMultiprocessor: 1 } as const)
              : ({ kind: 'tiles' } as const)),
            extent: kernel.rows,
            per: queries,
            times: kvHeads * cluster,
          },
          gridY: { kind: 'constant', count: 1 },
        }
      : {
          gridX: { kind: 'constant', count: heads },
          gridY: { kind: 'tiles', extent: kernel.rows, per: queries, times: 1 },
        }),
  };
  return {
    source: `${render('attentionWarp', {})}${hopper}${capFunctions(kernel.cap)}\n${body}`,
    tensorMaps,
    launch,
    waitsForPredecessor: true,
  };
}

/** Maps of keys and values. A box is a slab of a tile. */
const keyMaps = ({ k, v }: AttentionKernel, operands: CudaOperands): TensorMapDecl[] =>
  [k, v].map((name) => {
    const { index, stride, columns } = operands.get(name);
    if (typeof columns !== 'number') throw new Error(`The columns of '${name}' are not a number.`);
    return {
      parameter: index,
      dtype: 'bf16',
      rows: operands.dimOf(name),
      columns,
      stride,
      boxRows: WGMMA_KEYS,
      boxColumns: slabOf('bf16'),
      swizzle: SLAB_BYTES,
    };
  });

/** Registers of a thread after setmaxnreg; 504 in total for the three warpgroups of a block. */
const REGISTERS = { producerRegisters: 56, consumerRegisters: 224 } as const;

/** What kernels of warpgroup products call. */
function hopperText(d: number, dtype: string): string {
  const values = wgmmaOperands(d);
  const first = values.accumulators;
  const slabBytes = WGMMA_KEYS * SLAB_BYTES;
  return render('attentionWgmma', {
    barriers: barrierFunctions(),
    product: render('wgmmaProduct', {
      ...wgmmaOperands(WGMMA_KEYS),
      ...stepOf(operandType(dtype)),
      mmaType: dtype,
      n: WGMMA_KEYS,
      multiply: 'tw_wgmma',
    }).trimEnd(),
    ...values,
    mmaType: dtype,
    columns: d,
    a0: first,
    a1: first + 1,
    a2: first + 2,
    a3: first + 3,
    b: first + 4,
    isAdded: first + 5,
    words: descriptorWords(slabBytes),
    slabBytes,
    ...REGISTERS,
  });
}

/** The template of a kernel on tensor cores. */
function mmaTemplate(kernel: AttentionKernel, schedule: CudaAttentionSchedule): MmaTemplate {
  if (kernel.mask.kind !== 'path') return 'attentionMma';
  if (schedule.skeleton === 'wgmma') return 'attentionPathWgmma';
  const { isDecode, isLone } = tileOf(kernel, schedule);
  if (isLone) return schedule.queries > 1 ? 'attentionPathStems' : 'attentionPathLone';
  if (isDecode) return 'attentionPathDecode';
  return schedule.sharesTiles === true ? 'attentionPathShared' : 'attentionPathMma';
}

/** What the template of one query a block reads beside the others. `indices`: buffers that say where keys lie. */
function decodeValues(
  kernel: AttentionKernel,
  { queries, keys, cluster = 1, teams = 1, lone }: CudaAttentionSchedule,
  indices: readonly Operand[],
): object {
  const isStems = queries > 1;
  const wholeRows = 32 % rowPieces(kernel) === 0;
  return {
    cluster,
    teams,
    isCluster: cluster > 1,
    manyTeams: teams > 1,
    isAlone: cluster * teams === 1,
    isStems,
    isHalf: !isStems && kernel.heads / kernel.kvHeads <= MMA_ROWS / 2,
    // Where a row of the operand of scores lies, and whether it has a query.
    ...(isStems
      ? { hasRow: 'tokens[half] >= 0', rowAt: 'q_rows[half]' }
      : { hasRow: 'half < HALVES && row < GROUP', rowAt: 'q + row * D' }),
    readsAhead: indices.every(({ isInput }) => isInput),
    teamBytes: decodeTeamBytes(kernel, keys),
    wholeRows,
    // A lone warp has no registers for it.
    keepsPiece: wholeRows && lone === undefined,
  };
}

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

// Pieces of the kernels of attention on tensor cores. What kernels share is one text, printed as deep as its place
// is; the rest are pieces that can be read by themselves.

/**
 * A kernel on tensor cores: over trees; of one query of a path, by teams or by one warp; of a tile of queries whose
 * paths begin alike, by one warp; of queries of paths, run by run or tile by tile.
 */
export type MmaTemplate =
  | 'attentionMma'
  | 'attentionPathDecode'
  | 'attentionPathLone'
  | 'attentionPathMma'
  | 'attentionPathShared'
  | 'attentionPathStems'
  | 'attentionPathWgmma';

/** The text of a kernel. `values` are what its template and those of its pieces read. */
export function renderMma(template: MmaTemplate, values: object): string {
  return render(template, { ...values, ...partsOf(template, values) });
}

/** The pieces of a kernel by the names that its template gives them. */
function partsOf(template: MmaTemplate, values: object): Readonly<Record<string, string>> {
  switch (template) {
    case 'attentionMma':
      return { root: part('attentionRoot', values), ...tileParts({ ...values, slot: 'slot' }, 4) };
    case 'attentionPathDecode':
      return {
        power2: part('attentionPower2', values),
        ...queryParts(values),
        merge: part('attentionDecodeMerge', values),
      };
    case 'attentionPathLone':
      return {
        ...pathParts({ ...values, isLone: true, slot: 'slot' }, 2, 2),
        ...queryParts(values),
        totals: totals(values),
      };
    case 'attentionPathStems':
      return {
        ...pathParts({ ...values, isLone: true, slot: 'slot' }, 2, 2, 'attentionStemProducts'),
        ...queryParts(values),
        totals: totals(values),
      };
    case 'attentionPathMma':
      return pathParts(values, 4, 3);
    case 'attentionPathShared':
      return { ...pathParts(values, 3, 2), totals: totals(values) };
    case 'attentionPathWgmma':
      return {
        producer: part('attentionWgmmaProducer', { ...values, ...loadParts(values) }, 2),
        consumer: part('attentionWgmmaConsumer', { ...values, softmax: part('attentionWgmmaSoftmax', values, 1) }, 1),
      };
    default:
      return template satisfies never;
  }
}

/** What the warps do that load keys and values for products of warpgroups. */
const loadParts = (values: object): Readonly<Record<string, string>> => ({
  ahead: part('attentionWgmmaAhead', values, 2),
  gather: part('attentionWgmmaGather', values, 1),
  lead: part('attentionWgmmaLead', values, 2),
});

/** A step of the softmax over one tile of keys, and what ends a path. */
function pathParts(
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

/** How a block finds its only query, and holds it. */
const queryParts = (values: object): Readonly<Record<string, string>> => ({
  functions: render('attentionDecodeFunctions', values),
  path: part('attentionOneQuery', values, 1),
  operand: part('attentionQueryOperand', values, 1),
  copy: part('attentionCopyRows', values, 1),
});

const totals = (values: object): string => part('attentionPathTotals', values);

/** The products of one tile of keys and values, and the exponentials between them. `slot`: where the tile lies. */
const tileParts = (
  values: object & { slot: string },
  depth = 0,
  products = 'attentionProducts',
): Readonly<Record<string, string>> => ({
  scores: part('attentionScores', values, depth),
  weights: part('attentionWeights', values, depth),
  products: part(products, values, depth),
});

/** A template as lines of a kernel, `depth` levels deep, without the last line's end. */
const part = (name: string, values: object, depth = 0): string =>
  indent(render(name, values).trimEnd().split('\n'), depth).trimEnd();
