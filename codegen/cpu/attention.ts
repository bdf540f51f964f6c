/** Tree attention: each tile of queries against the list of keys that it may see. */
import { type AttentionKernel, windowOfMask } from '../../ir/kernel.js';
import { maskBuffers, scaleBuffers } from '../../ir/kernelAccess.js';
import type { CpuAttentionSchedule, CpuIsa } from '../../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import { fmaTile } from './micro.js';
import { C_TYPES, capOf, floatLiteral, type Operand, type COperands } from './operands.js';
import { render } from './templates.js';
import type { Emitted } from './unit.js';

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
  const dp = roundUp(d, 16);
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
  const scratch: { name: string; type: string; offset: number }[] = [];
  let bytes = 0;
  const take = (name: string, type: string, count: number): void => {
    scratch.push({ name, type, offset: bytes });
    bytes = roundUp(bytes + count * 4, 64);
  };
  take('id', 'int32_t', capacity);
  take('end', 'int32_t', capacity);
  take('token', 'int32_t', queries);
  const window = windowOfMask(mask);
  if (mask.kind === 'column' && window !== undefined) {
    take('place', 'int32_t', capacity);
    take('depth', 'int32_t', queries);
  }
  if (mask.kind === 'path') {
    take('source', 'int32_t', capacity);
    take('row', 'int32_t', queries);
    take('head', 'int32_t', queries);
  }
  take('k', 'float', block * dp);
  take('v', 'float', block * dp);
  take('q', 'float', queries * dp);
  take('o', 'float', queries * dp);
  take('sum', 'float', queries);
  take('seen', 'uint8_t', (groups * capacity) / 8);
  take('s', 'float', capacity * queries);
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
  const widths = tiles.valueColumns === 32 ? [32, 16].filter((nr) => nr <= dp && (nr === 32 || dp % 32 !== 0)) : [16];
  const values = widths.map((nr) => ({
    nr,
    helper: fmaTile({
      isa,
      mr: tiles.valueRows,
      nr,
      rs: 1,
      ks: lanes,
      panel: 16,
      bk: dp,
      bp: 16,
      ldc: dp,
      bDtype: 'f32',
      unroll: 4,
      aheadA: 0,
      aheadB: 0,
      ahead: undefined,
    }),
  }));
  const data = ({ index, dtype }: Operand): string => `(const ${C_TYPES[dtype]} *)launch->buffers[${index}]`;
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => operands.get(name));
  const source = render('attention', {
    symbol,
    heads,
    kvHeads,
    group: heads / kvHeads,
    d,
    dp,
    isPartial: d % 16 !== 0,
    queries,
    keys: block,
    rows: operands.extentIndex(kernel.rows),
    keyRows: operands.extentIndex(keyRows.extent),
    lanes,
    groups,
    capacity,
    lineElements: 64 / DTYPE_BYTES[k.dtype],
    vectors: lanes / 16,
    scale: floatLiteral(kernel.scale),
    cap: kernel.cap === undefined ? undefined : capOf(kernel.cap),
    qData: data(q),
    kData: data(k),
    vData: data(v),
    outIndex: out.index,
    qStride: q.stride,
    kStride: k.stride,
    vStride: v.stride,
    outStride: out.stride,
    kType: C_TYPES[k.dtype],
    kDtype: k.dtype,
    // Queries of another type have a load of their own.
    qType: C_TYPES[q.dtype],
    qDtype: q.dtype,
    queryLoad: q.dtype === k.dtype ? 'load_k' : 'load_q',
    isScaled: kScale !== undefined,
    kScales: kScale && `(${data(kScale)})`,
    vScales: vScale && `(${data(vScale)})`,
    kScaleStride: kScale?.stride,
    vScaleStride: vScale?.stride,
    outType: C_TYPES[out.dtype],
    outDtype: out.dtype,
    isColumn: mask.kind !== 'bias',
    isPath: mask.kind === 'path',
    window,
    isTree: mask.kind === 'column',
    // Positions of keys and of queries. On a path they are their numbers.
    keyPosition: mask.kind === 'path' ? 'id' : 'place',
    queryPosition: mask.kind === 'path' ? 'token' : 'depth',
    keyRow: mask.kind === 'path' ? 'source' : 'id',
    queryRow: mask.kind === 'path' ? 'row' : 'token',
    maskIndex: first!.index,
    maskStride: first!.stride,
    positionIndex: second?.index,
    keyListIndex: third?.index,
    hasQueryRow: kernel.queryRow !== undefined,
    queryRowIndex: kernel.queryRow === undefined ? -1 : operands.get(kernel.queryRow).index,
    width: heads * d,
    paddedWidth: roundUp(heads * d, 32),
    hasPad: (heads * d) % 32 !== 0,
    scratch,
    scoreRows: tiles.scoreRows,
    scoreColumns,
    scoreTile: score.name,
    valueRows: tiles.valueRows,
    valueTiles: values.map(({ nr, helper }) => ({ nr, name: helper.name })),
  });
  return {
    includes: ['lib/elementary.h'],
    source,
    helpers: [score, ...values.map(({ helper }) => helper)],
    scratchBytes: roundUp(bytes, 4096),
  };
}
