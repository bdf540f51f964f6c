/**
 * Values that a group of columns shares, such as 1/rms of a head, for the epilogues of all skeletons. A lane of a quad
 * adds its two columns of every eight from the first eight of the group to the last, then the quad adds its lanes. No
 * tile changes that order.
 */
import { groupSumsOf, groupValuesOf, groupWidth } from '../../../ir/groupSums.js';
import type { Pairing, Segment } from '../../../ir/kernel.js';
import { printScalar } from '../../../ir/scalar.js';
import type { RowScope } from './rowScope.js';
import { Body, type Site } from './scalarPrinter.js';
import { Constants, guarded, unrolled } from './statements.js';

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
export function groupValues(segment: Segment, scope: RowScope, columns: GroupedColumns): GroupValues | undefined {
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
  const adding = new Body(scope, `${prefix}v`);
  const site: Site = {
    id: 'x',
    get column() {
      return column();
    },
    lanes: 2,
    acc: (_, lane) => acc(`${width / EIGHT} * each_ + ${lying()}`, lane),
  };
  const adds = sums.map(({ a }, i) => {
    const [x, y] = adding.floats(a, site);
    return `${prefix}g${i} = tw_add(${prefix}g${i}, tw_add(${x!}, ${y!}));`;
  });
  const program = [...adding.lines, ...adds];
  const shared = new Body(scope, `${prefix}w`);
  const totals = new Map(sums.map((s, i) => [printScalar(s), `${prefix}g${i}`]));
  const group: Site = { id: 'g', column: '0', lanes: 1, given: totals };
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
      ...sums.map((_, i) => `${prefix}g${i} = tw_quad_sum(${prefix}g${i});`),
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
