/** Tree attention: each tile of queries against the list of keys that it may see. */
import { type AttentionTail, valueDimOf } from '../../ir/attentionDims.js';
import type { AttentionKernel } from '../../ir/kernel.js';
import { reachOfMask } from '../../ir/mask.js';
import { maskBuffers, scaleBuffers } from '../../ir/kernelAccess.js';
import type { CpuAttentionSchedule, CpuIsa } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { fmaTile } from './micro.js';
import { capOf, type COperands, elementType, floatLiteral } from './operands.js';
import { type Emitted, kernelFunction } from './unit.js';

/** Register tiles: keys × queries for the scores, queries × columns for the values. */
const TILES: Readonly<
  Record<CpuIsa, { scoreRows: number; scoreColumns: number; valueRows: number; valueColumns: number }>
> = {
  portable: { scoreRows: 2, scoreColumns: 16, valueRows: 2, valueColumns: 16 },
  avx2: { scoreRows: 4, scoreColumns: 16, valueRows: 4, valueColumns: 16 },
  avx512: { scoreRows: 8, scoreColumns: 32, valueRows: 8, valueColumns: 32 },
  amx: { scoreRows: 8, scoreColumns: 32, valueRows: 8, valueColumns: 32 },
};

/** The number of keys in a block is a multiple of this. */
export const KEY_STEP = 8;

/** Prints an attention kernel as C. The schedule must be legal for it (isLegal). */
export function emitAttention(
  kernel: AttentionKernel,
  operands: COperands,
  schedule: CpuAttentionSchedule,
  symbol: string,
): Emitted {
  const { heads, kvHeads, headDim: d, mask } = kernel;
  const { queries, keys, isa } = schedule;
  const tiles = TILES[isa];
  const { tail } = kernel;
  const ep = roundUp(valueDimOf(kernel), 16);
  const dp = roundUp(d, 16) + roundUp(tail?.headDim ?? 0, 16);
  const [q, k, v, out] = [
    operands.get(kernel.q),
    operands.get(kernel.k),
    operands.get(kernel.v),
    operands.get(kernel.out),
  ];
  const [first, second, third] = maskBuffers(mask).map((name) => operands.get(name));
  const keyRows = operands.rowsOf(mask.kind === 'path' ? mask.key : kernel.k);
  // Paths are attended to one after another. None has more keys than its context, or than the state that holds them.
  const longest = mask.kind === 'path' ? operands.maxPath(mask.position) : Infinity;
  const capacity = roundUp(Math.min(keyRows.most, operands.maxRows(kernel.k), longest), 64);
  const lanes = queries % 32 === 0 ? 32 : 16;
  const groups = queries / lanes;
  const block = Math.min(keys, capacity);
  const memory: Record<string, number> = {};
  let bytes = 0;
  const take = (name: string, count: number): void => {
    memory[name] = bytes;
    bytes = roundUp(bytes + count * 4, 64);
  };
  take('id', capacity);
  take('end', capacity);
  take('token', queries);
  const { window, chunk } = reachOfMask(mask);
  if (mask.kind === 'column' && mask.position !== undefined) {
    take('place', capacity);
    take('depth', queries);
  }
  if (mask.kind === 'path') {
    take('source', capacity);
    take('row', queries);
    take('head', queries);
  }
  take('k', block * dp);
  take('v', block * ep);
  take('q', queries * dp);
  take('o', queries * ep);
  take('sum', queries);
  take('seen', (groups * capacity) / 8);
  take('s', capacity * queries);
  const scoreColumns = lanes % tiles.scoreColumns === 0 ? tiles.scoreColumns : 16;
  const score = fmaTile({
    isa,
    mr: tiles.scoreRows,
    nr: scoreColumns,
    rs: dp,
    ks: 1,
    panel: 16,
    bk: 16,
    bp: dp * 16,
    ldc: lanes,
    bDtype: 'f32',
    unroll: 4,
    aheadA: 0,
    aheadB: 0,
    ahead: undefined,
  });
  const widths = tiles.valueColumns === 32 ? [32, 16].filter((nr) => nr <= ep && (nr === 32 || ep % 32 !== 0)) : [16];
  const values = widths.map((nr) => ({
    nr,
    helper: fmaTile({
      isa,
      mr: tiles.valueRows,
      nr,
      rs: 1,
      ks: lanes,
      panel: 16,
      bk: ep,
      bp: 16,
      ldc: ep,
      bDtype: 'f32',
      unroll: 4,
      aheadA: 0,
      aheadB: 0,
      ahead: undefined,
    }),
  }));
  const slopes = kernel.slopes === undefined ? undefined : operands.get(kernel.slopes);
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => operands.get(name));
  const sink = kernel.sink === undefined ? undefined : operands.get(kernel.sink);
  const valueOf = (width: number): string | undefined => values.find(({ nr }) => nr === width)?.helper.name;
  const config = {
    rows: operands.extentIndex(kernel.rows),
    keyRows: operands.extentIndex(keyRows.extent),
    heads,
    kvHeads,
    d,
    queries,
    keys: block,
    lanes,
    capacity,
    scale: floatLiteral(kernel.scale),
    cap: kernel.cap === undefined ? undefined : capOf(kernel.cap).value,
    inverseCap: kernel.cap === undefined ? undefined : capOf(kernel.cap).inverse,
    q: q.index,
    k: k.index,
    v: v.index,
    out: out.index,
    qStride: q.stride,
    kStride: k.stride,
    vStride: v.stride,
    outStride: out.stride,
    qType: elementType(q),
    kType: elementType(k),
    outType: elementType(out),
    isScaled: kScale !== undefined,
    kScales: kScale?.index,
    vScales: vScale?.index,
    kScalesStride: kScale?.stride,
    vScalesStride: vScale?.stride,
    ...(kernel.valueDim === undefined ? {} : { valueD: kernel.valueDim }),
    ...(tail === undefined ? {} : tailConfig(tail, operands)),
    maskKind: MASKS[mask.kind],
    mask: first!.index,
    position: second?.index,
    keyList: third?.index,
    maskStride: first!.stride,
    hasQueryRow: kernel.queryRow !== undefined,
    queryRow: kernel.queryRow === undefined ? undefined : operands.get(kernel.queryRow).index,
    window,
    chunk,
    hasSlopes: slopes === undefined ? undefined : true,
    slopes: slopes?.index,
    slopesStride: slopes?.stride,
    slopeFactor: kernel.slopeFactor === undefined ? undefined : floatLiteral(kernel.slopeFactor),
    hasSink: sink !== undefined,
    sink: sink?.index,
    sinkType: sink && elementType(sink),
    scoreRows: tiles.scoreRows,
    scoreColumns,
    valueRows: tiles.valueRows,
    score: score.name,
    value32: valueOf(32),
    value16: valueOf(16),
    memory,
  };
  return {
    includes: ['attention/attention.h'],
    source: kernelFunction({ symbol, tables: [], type: 'AttentionConfig', config, call: 'tw_attention' }),
    helpers: [score, ...values.map(({ helper }) => helper)],
    scratchBytes: roundUp(bytes, 4096),
  };
}

/** Buffers of tails, and their rows. */
function tailConfig(tail: AttentionTail, operands: COperands) {
  const [q, k] = [operands.get(tail.q), operands.get(tail.k)];
  return { tail: tail.headDim, qTail: q.index, kTail: k.index, qTailStride: q.stride, kTailStride: k.stride };
}

const MASKS = { path: 'TW_PATH', column: 'TW_TREE', bias: 'TW_BIAS' } as const;
