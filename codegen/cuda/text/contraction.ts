/** The common parts of kernels with a contraction: a left operand, packed weights, and row programs. */
import { groupSumsOf, groupValuesOf, groupWidth } from '../../../ir/groupSums.js';
import type { AdapterRows } from '../../../ir/adapterRows.js';
import type { ContractionKernel, ExpertRows, GemmKernel, LogProbKernel, Pairing, Segment } from '../../../ir/kernel.js';
import { oncePer } from '../../../ir/oncePer.js';
import { isRowInvariant, operands as childrenOf, printScalar, type Scalar } from '../../../ir/scalar.js';

import { type CudaOperands, CudaRowScope } from './operands.js';
import { LaneBody, type LaneSite, productPair } from './scalarPrinter.js';
import { block, Constants, guarded, indent, unrolled } from './statements.js';
import type { ConfigFields } from './unit.js';

/** Segments of a contraction. The vocabulary contraction has one segment without outputs. */
export const segmentsOf = (kernel: ContractionKernel): readonly Segment[] =>
  kernel.anchor === 'gemm' ? kernel.segments : vocabularyOf(kernel);

const vocabularyOf = oncePer((kernel: LogProbKernel): readonly Segment[] => [
  { weight: kernel.weight, columns: kernel.vocab, pairing: { kind: 'none' }, outputs: [] },
]);

/** Whether the kernel reads what it has written: its rows, once they are complete. */
export const finishesRows = (kernel: ContractionKernel): boolean =>
  kernel.anchor === 'gemm' && kernel.finish !== undefined;

/** Programs whose row values an epilogue keeps: the argument of rowPrologue. */
export const rowProgramsOf = (kernel: ContractionKernel): readonly Scalar[] =>
  kernel.anchor === 'gemm' ? programsOf(kernel.segments) : [kernel.rowScale];

/** The experts whose matrices its rows are multiplied by. */
/** Of heads with matrices of their own: the fields of a config, and the kernel with the columns of one head. */
export function headsOf(kernel: GemmKernel): {
  readonly fields: ConfigFields;
  readonly each: GemmKernel;
  readonly count: number;
} {
  const { heads } = kernel;
  if (heads === undefined) return { fields: {}, each: kernel, count: 1 };
  const segments = kernel.segments.map((segment) => ({ ...segment, columns: segment.columns / heads }));
  return { fields: { heads, headColumns: segments[0]!.columns }, each: { ...kernel, segments }, count: heads };
}

export const expertsOf = (kernel: ContractionKernel): ExpertRows | undefined =>
  kernel.anchor === 'gemm' ? kernel.experts : undefined;

/** The adapters that its rows have. */
export const adapterOf = (kernel: ContractionKernel): AdapterRows | undefined =>
  kernel.anchor === 'gemm' ? kernel.adapter : undefined;

// The row prologue of a contraction: what its programs compute from the row alone, once a row.

/** The row values of all programs of a block, kept in shared memory as `values.length` floats per row. */
export interface RowPrologue {
  /** The programs, in the order of their floats. */
  readonly scalars: readonly Scalar[];
  /**
   * Statements that a whole converged warp runs for one row. `row` is a C expression (int) of a readable row, `sums`
   * one of what adds up its parts (gemm/rowValues.cuh). The statements end with lane 0 writing to[0 … scalars.length);
   * `to` is a C expression (float *). Empty if there are no scalars.
   */
  readonly text: (row: string, to: string, sums: string, depth: number) => string;
  /** Columns of the rows of parts that are added up or compared, each once. */
  readonly partColumns: readonly number[];
  /**
   * The same for threads with a row each, which write for themselves. Undefined where a row's parts are added up or
   * compared: that takes a warp.
   */
  readonly ofThread: RowPrologue['text'] | undefined;
  /** The `given` of a Fragment or RowScope. `from` is a C expression (const float *) of the row's floats. */
  readonly given: (from: string) => ReadonlyMap<string, string>;
}

/** The values that `programs` compute from the row alone and from memory: 1/rms from row sums, row scales. */
export function rowPrologue(programs: readonly Scalar[], operands: CudaOperands): RowPrologue {
  const scalars = rowScalars(programs, operands);
  const textWhere =
    (condition: string | undefined): RowPrologue['text'] =>
    (row, to, sums, depth) => {
      if (scalars.length === 0) return '';
      const scope = new CudaRowScope(operands, row, 'y', new Map(), sums);
      const body = new LaneBody(scope, scalars);
      const stores = scalars.map(
        (s, i) => `(${to})[${i}] = ${body.floats(s, { id: 'row', column: '0', lanes: 1 })[0]!};`,
      );
      return indent(block('', [...scope.lines, ...body.lines, ...guarded(condition, stores)]), depth);
    };
  return {
    scalars,
    text: textWhere('threadIdx.x % 32 == 0'),
    ofThread: scalars.some((s) => readsManyParts(s, operands)) ? undefined : textWhere(undefined),
    partColumns: partsOf(scalars).map((buffer) => Number(operands.get(buffer).columns)),
    given: (from) => new Map(scalars.map((s, i) => [printScalar(s), `(${from})[${i}]`])),
  };
}

/** What is added up or compared by `scalars`, each once. */
function partsOf(scalars: readonly Scalar[]): string[] {
  const found = new Map<string, string>();
  const visit = (s: Scalar): void => {
    if (s.op === 'rowSum') found.set(printScalar(s), s.buffer);
    childrenOf(s).forEach(visit);
  };
  scalars.forEach(visit);
  return [...found.values()];
}

/** Whether a row value is made of more than one number of a buffer's row. */
const readsManyParts = (s: Scalar, operands: CudaOperands): boolean =>
  (s.op === 'rowSum' && operands.get(s.buffer).columns !== 1) ||
  childrenOf(s).some((child) => readsManyParts(child, operands));

/** The programs of all segments of a kernel: the argument of rowPrologue. */
export const programsOf = (segments: readonly Pick<Segment, 'outputs'>[]): Scalar[] =>
  segments.flatMap(({ outputs }) => outputs.map(({ value }) => value));

// Which parts of programs are computed once a row.

/** Leaves that make a row value expensive, so that it is worth computing once per row for all columns. */
const isDear = (s: Scalar): boolean => s.op === 'rowSum' || s.op === 'load' || childrenOf(s).some(isDear);

/** Also a vector's element: a column of its own. */
const isRowOnly = (s: Scalar, operands: CudaOperands): boolean =>
  isRowInvariant(
    s,
    (each) => each.op === 'load' && each.access.kind === 'element' && operands.get(each.buffer).columns === 1,
  );

/**
 * The largest sub-programs of `programs` that depend on the row alone and read memory (1/rms of a row), each once. A
 * block computes them once per row and passes them to RowScope as `given`.
 */
export function rowScalars(programs: readonly Scalar[], operands: CudaOperands): Scalar[] {
  const found = new Map<string, Scalar>();
  const visit = (s: Scalar): void => {
    if (isRowOnly(s, operands)) {
      if (isDear(s)) found.set(printScalar(s), s);
    } else if (s.op !== 'sin' && s.op !== 'cos') childrenOf(s).forEach(visit);
  };
  programs.forEach(visit);
  return [...found.values()];
}

// Values that a group of columns shares, such as 1/rms of a head, for the epilogues of all skeletons. A lane of a
// quad adds its two columns of every eight from the first eight of the group to the last, then the quad adds its
// lanes. No tile changes that order.

/** Columns that each lane of a quad has two of. */
const EIGHT = 8;

/** Whole groups of columns of one row, of which a quad of lanes has the products. */
export interface GroupedColumns {
  /** Prefix of the variables. */
  readonly prefix: string;
  /** Number of groups. */
  readonly count: number;
  /** C expression (int): first column within the segment, a multiple of the groups' width. */
  readonly column: string;
  /** C expression of a product, as Fragment has them: `group` is a group of 8 physical columns, from the first on. */
  readonly acc: (group: string, lane: number) => string;
  /** C expression (int): the thread's position in its quad. */
  readonly quad: string;
  /** All columns lie inside the segment. */
  readonly isWhole: boolean;
}

export interface GroupValues {
  /** Statements for all 32 lanes of a warp. */
  readonly lines: readonly string[];
  /** What a site sees of them. `group`: C expression (int) of the number of the column's group. */
  readonly given: (group: string) => ReadonlyMap<string, string>;
}

/** The group values of a segment, or undefined if its programs need none. `scope` gets what belongs to the row. */
export function groupValues(segment: Segment, scope: CudaRowScope, columns: GroupedColumns): GroupValues | undefined {
  const { outputs, pairing } = segment;
  const width = groupWidth(outputs);
  if (width === undefined) return undefined;
  const { prefix, count, acc, quad, isWhole } = columns;
  const [sums, values] = [groupSumsOf(outputs), groupValuesOf(outputs)];
  const constants = new Constants();
  const lying = constants.add('lying_', () => lyingEight(pairing, 'eight_', width));
  const column = constants.add(
    'column',
    () => `${columns.column} + ${width} * each_ + ${EIGHT} * eight_ + 2 * ${quad}`,
  );
  const adding = new LaneBody(
    scope,
    sums.map(({ a }) => a),
  );
  const site: LaneSite = {
    id: 'x',
    get column() {
      return column();
    },
    lanes: 2,
    acc: () => productPair(acc, `${width / EIGHT} * each_ + ${lying()}`),
  };
  const adds = sums.map(({ a }, i) => {
    const [x, y] = adding.floats(a, site);
    return `${prefix}g${i} = add(${prefix}g${i}, add(${x!}, ${y!}));`;
  });
  const program = [...adding.lines, ...adds];
  const shared = new LaneBody(scope, values);
  const totals = new Map(sums.map((s, i) => [printScalar(s), `${prefix}g${i}`]));
  const group: LaneSite = { id: 'g', column: '0', lanes: 1, given: totals };
  const stores = values.map((s, i) => `${prefix}h${i}[each_] = ${shared.floats(s, group)[0]!};`);
  const inside = isWhole ? undefined : `${columns.column} + ${width} * each_ < ${segment.columns}`;
  const eights = unrolled(`for (int eight_ = 0; eight_ < ${width / EIGHT}; eight_++)`, [
    ...constants.definitions(),
    ...program,
  ]);
  const lines = [
    ...values.map((_, i) => `float ${prefix}h${i}[${count}];`),
    ...unrolled(`for (int each_ = 0; each_ < ${count}; each_++)`, [
      ...sums.map((_, i) => `float ${prefix}g${i} = 0.0f;`),
      ...guarded(inside, eights),
      ...sums.map((_, i) => `${prefix}g${i} = quad_sum(${prefix}g${i});`),
      ...shared.lines,
      ...stores,
    ]),
  ];
  return { lines, given: (at) => new Map(values.map((s, i) => [printScalar(s), `${prefix}h${i}[${at}]`])) };
}

/** C expression: where the eight columns number `eight` of a group lie among its physical ones, in eights. */
function lyingEight(pairing: Pairing, eight: string, width: number): string {
  if (pairing.kind !== 'rotate') return eight;
  const [half, across] = [width / 2 / EIGHT, pairing.width / EIGHT];
  return (
    `${eight} % ${half} / ${across} * ${2 * across} + ${eight} % ${half} % ${across} + ` +
    `${eight} / ${half} * ${across}`
  );
}
