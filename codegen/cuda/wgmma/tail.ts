/**
 * The epilogue of a block's last tile. No product is left to hide it under, all blocks come to it at once, and the
 * accumulators' own threads have few loads on their way and much code that runs once. So the products go to shared
 * memory, where nobody fills the ring any more, and all consumer warps take them row by row, in a small loop with many
 * rows on their way.
 *
 * For epilogues that read and write whole rows (the residual stream); others are short.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf, readOf } from '../../../ir/scalar.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import type { CudaOperands, Operand } from '../operands.js';
import { indent, programValues } from '../programs.js';
import type { Site } from '../scalarPrinter.js';
import { Body, RowScope } from '../scalarPrinter.js';
import { render } from '../templates.js';
import { elementLoads } from './elementLoads.js';
import { RELAY_WARPS as WARPS } from './held.js';
import { WGMMA_ROWS } from './instruction.js';
import type { WgmmaLayout } from './layout.js';
import { keepNarrow, narrowElement } from './wide.js';

/** Columns of a lane, which lie together. */
const COLUMNS = 8;
/** Rows of a warp whose loads are on their way at once. */
const ROWS_AT_ONCE = 8;
/**
 * Floats behind a row of products in shared memory: the rows that a warp puts down at once, of a multiple of 16
 * columns, begin in different banks.
 */
const PAD = 8;

const isFloatOrByte = ({ dtype }: Operand): boolean =>
  dtype === 'f32' || dtype === 'bf16' || dtype === 'f16' || dtype === 'u8';
const isLong = (operand: Operand): boolean => isFloatOrByte(operand) && operand.stride % COLUMNS === 0;

/** 32-bit words of a lane's columns. */
const wordsOf = ({ dtype }: Operand): number => (COLUMNS * DTYPE_BYTES[dtype]) / 4;

/** C expression of an element of the lane's columns, by place in the pair `pair_`. */
const elementOf = (operand: Operand, name: string, lane: number): string =>
  operand.dtype === 'f32'
    ? `__uint_as_float(${name}[2 * pair_ + ${lane}])`
    : narrowElement(operand, name, 'pair_', lane);

/** Statements that keep the two values of a pair in the words that are stored. */
const keep = (operand: Operand, name: string, values: readonly string[]): string[] =>
  operand.dtype === 'f32'
    ? values.map((value, lane) => `${name}[2 * pair_ + ${lane}] = __float_as_uint(${value});`)
    : [keepNarrow(operand, name, 'pair_', values)];

/** Copies between `words` and memory, 16 bytes at a time where there are so many. */
const moves = (operand: Operand, words: string, at: string, isLoad: boolean): string[] => {
  const count = wordsOf(operand),
    step = Math.min(4, count),
    type = `tw_u${step}`;
  return Array.from({ length: count / step }, (_, i) => {
    const memory = `((${isLoad ? 'const ' : ''}${type} *)(${at}))[${i}]`;
    const each = Array.from({ length: step }, (_word, j) => `${words}[${step * i + j}]`);
    if (!isLoad) return [`${memory} = { ${each.join(', ')} };`];
    return [`{ const ${type} x = ${memory}; ${each.map((word, j) => `${word} = x.${'xyzw'[j]!};`).join(' ')} }`];
  }).flat();
};

/** Nothing is read but the element itself, which lanes and rows past the end leave out. */
const readsOwnElements = (s: Scalar): boolean =>
  s.op === 'load'
    ? s.access.kind === 'element' && s.access.via === undefined
    : readOf(s) === undefined && childrenOf(s).every(readsOwnElements);

interface TailTexts {
  readonly tail: string;
  /**
   * How a narrow tile of the last wave puts its products down, and how a whole one does where there are narrow ones;
   * else empty.
   */
  readonly put: string;
  readonly wholePut: string;
}

/**
 * What the skeleton has in its places for such a last tile; undefined where the epilogue is of another kind, or the
 * products do not fit.
 */
export function tailText(
  segments: readonly Segment[],
  operands: CudaOperands,
  layout: WgmmaLayout,
  { tm, stages, cluster, lastTn }: CudaGemmSchedule,
  rows: string,
): TailTexts | undefined {
  const [segment, ...more] = segments;
  if (
    segment === undefined ||
    more.length > 0 ||
    segment.pairing.kind !== 'none' ||
    segment.columns % ROW_SUM_BLOCK !== 0 ||
    layout.columnBlocks !== 1
  )
    return undefined;
  const loads = elementLoads(segment, operands);
  const stores = segment.outputs.filter(({ kind }) => kind === 'store').map(({ buffer }) => operands.get(buffer));
  const pitch = layout.wn + PAD;
  if (
    loads.length === 0 ||
    !segment.outputs.every(({ value }) => readsOwnElements(value)) ||
    ![...loads, ...stores].every(isLong) ||
    tm * pitch * 4 > stages * layout.stageBytes ||
    tm % (WARPS * ROWS_AT_ONCE) !== 0
  )
    return undefined;
  const common = { ...layout, cluster, rows, pitch, consumerRows: layout.rowBlocks * WGMMA_ROWS };
  const put = (columns: number): string => render('wgmmaPut', { ...common, accumulators: columns / 2 });
  const tail = render('wgmmaTail', {
    ...common,
    isCluster: cluster === 2,
    tn: layout.wn,
    put: put(layout.wn),
    ...programText(segment, operands, loads, stores),
    columns: segment.columns,
    warps: WARPS,
    atOnce: ROWS_AT_ONCE,
    turns: tm / WARPS / ROWS_AT_ONCE,
    rowsOfTurn: WARPS * ROWS_AT_ONCE,
    lanes: layout.wn / COLUMNS,
    lastTn,
    lastLanes: (lastTn ?? 0) / COLUMNS,
  });
  return lastTn === undefined ? { tail, put: '', wholePut: '' } : { tail, put: put(lastTn), wholePut: put(layout.wn) };
}

function programText(
  segment: Segment,
  operands: CudaOperands,
  loads: readonly Operand[],
  stores: readonly Operand[],
): Readonly<Record<'declared' | 'load' | 'program' | 'store', string>> {
  const scope = new RowScope(operands, 'row', 'r');
  const body = new Body(scope, 'v');
  const nameOf = (operand: Operand): string => `l${loads.findIndex(({ name }) => name === operand.name)}_`;
  const site: Site = {
    id: 'x',
    column: 'column',
    lanes: 2,
    acc: (_, lane) => `x_[2 * pair_ + ${lane}]`,
    loaded: (buffer, access, lane) => {
      const own =
        access.kind === 'element' && access.via === undefined ? loads.find(({ name }) => name === buffer) : undefined;
      return own === undefined ? undefined : elementOf(own, `${nameOf(own)}[i]`, lane);
    },
  };
  const values = segment.outputs.map((output) => programValues(output, body, site));
  let [stored, summed] = [0, 0];
  const kept = segment.outputs.flatMap((output, i) =>
    output.kind === 'store'
      ? keep(operands.get(output.buffer), `w${stored++}_`, values[i]!)
      : [`a${summed}_[2 * pair_] = ${values[i]![0]!};`, `a${summed++}_[2 * pair_ + 1] = ${values[i]![1]!};`],
  );
  const usesColumn = [...body.lines, ...kept].some((line) => /\bcolumn\b/.test(line));
  const sums = segment.outputs.filter(({ kind }) => kind === 'rowSum').map(({ buffer }) => operands.get(buffer));
  const at = (operand: Operand): string => `${operands.base(operand)} + (long long)row * ${operand.stride} + first`;
  return {
    declared: indent(
      loads.map((operand) => `unsigned ${nameOf(operand)}[${ROWS_AT_ONCE}][${wordsOf(operand)}];`),
      4,
    ),
    load: indent(
      loads.flatMap((operand) => moves(operand, `${nameOf(operand)}[i]`, at(operand), true)),
      6,
    ),
    program: [
      indent(
        [
          ...stores.map((operand, i) => `unsigned w${i}_[${wordsOf(operand)}] = {};`),
          ...sums.map((_, i) => `float a${i}_[${COLUMNS}];`),
          ...scope.lines,
        ],
        5,
      ),
      '#pragma unroll\n',
      indent(
        [
          `for (int pair_ = 0; pair_ < ${COLUMNS / 2}; pair_++) {`,
          ...(usesColumn ? ['  const int column = first + 2 * pair_;'] : []),
          ...[...body.lines, ...kept].map((line) => `  ${line}`),
          '}',
        ],
        5,
      ),
    ].join(''),
    store: indent(
      [
        ...sums.map(
          (operand, i) =>
            `tw_store_block_sum(${operands.base(operand)} + (long long)row * ${operand.stride} + first / ${ROW_SUM_BLOCK}, a${i}_, lane, isStored);`,
        ),
        'if (isStored) {',
        ...stores.flatMap((operand, i) => moves(operand, `w${i}_`, at(operand), false)).map((line) => `  ${line}`),
        '}',
      ],
      5,
    ),
  };
}
