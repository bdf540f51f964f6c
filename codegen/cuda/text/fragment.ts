/**
 * A row of an accumulator fragment of a tensor core (mma.sync, wgmma), as epilogues see it, and which segments and
 * tiles can have one.
 */
import { groupWidth } from '../../../ir/groupSums.js';
import { type Output, ROW_SUM_BLOCK, type Segment } from '../../../ir/kernel.js';
import { type Access, operands as childrenOf, type Scalar } from '../../../ir/scalar.js';
import { defined } from '../../../system/defined.js';
import { groupValues, type GroupValues } from './contraction.js';
import { type CudaOperands, leastCommonMultiple, type Operand, CudaRowScope } from './operands.js';
import { LaneBody, modulo, productPair, programValue, type LaneSite, storeLine } from './scalarPrinter.js';
import { block, Constants, guarded, indent, unrolled } from './statements.js';

/** A pair of values to be stored, for callers that stage results themselves. */
export interface StoreSite {
  readonly operand: Operand;
  /** C expression (float2; uint2 for bytes) of the values at column and column + 1; of a single column a float. */
  readonly value: string;
  /** The values belong to the second half of a rotated pair. */
  readonly isPartner: boolean;
  /** The index that selects the row, see Output. */
  readonly via: string | undefined;
}

/** A thread's part of the sum over a block of columns. */
export interface SumSite {
  readonly operand: Operand;
  /** C expression (float) of the sum of the thread's own values. */
  readonly sum: string;
  /** C expression (int, a constant once loops are unrolled) of the block's number in the fragment. */
  readonly block: string;
}

/**
 * One row of a thread's accumulator fragment: in each group of 8 physical columns, the values at columns 2·quad and
 * 2·quad + 1. All 32 lanes of a warp must run the printed code together.
 */
export interface Fragment {
  /** C expression (int) of a readable row: the thread's own, or any valid one if its own is past the end. */
  readonly row: string;
  /** C expression: whether the thread's own row is within the extent and is therefore stored. */
  readonly isStored: string;
  /** Prefix of the variables. Fragments printed into one block need different prefixes. */
  readonly prefix: string;
  /**
   * Number of 8-column groups: whole pairs (a multiple of 2·width / 8), and whole blocks of logical groups if there are
   * row sums.
   */
  readonly groups: number;
  /** C expression of an accumulator. `group` is a C expression that is constant once loops are unrolled. */
  readonly acc: (group: string, lane: number) => string;
  /** C expression (int): physical column of group 0 within the segment, a multiple of fragmentStep. */
  readonly column: string;
  /** `column` is a multiple of the width of a rotated head, plus a constant. */
  readonly holdsWholeHeads?: boolean;
  /** C expression (int): the thread's position in its quad, 0 to 3 (lane % 4). */
  readonly quad: string;
  /** The caller guarantees that all columns lie inside the segment, so no guards are needed. */
  readonly isWhole: boolean;
  /** From RowPrologue.given. It must contain every expensive row value, because the rows of a warp differ. */
  readonly given: ReadonlyMap<string, string>;
  /**
   * Buffers that the caller stores later: statements that keep the values of any row, stored or not. Undefined for an
   * immediate store to global memory.
   */
  readonly store?: (site: StoreSite) => readonly string[] | undefined;
  /** Guard the statements that keep values in the same way as stores. */
  readonly guardsKept?: boolean;
  /**
   * Row sums completed by the caller, who runs these statements for each block. Undefined for the sum over a quad,
   * stored by one lane.
   */
  readonly close?: (site: SumSite) => readonly string[];
  /**
   * Values that groups of columns share, if the caller has computed them, by printScalar of their program. `group` is a
   * C expression (int): one of the fragment's 8-column groups. Undefined for a fragment of whole groups.
   */
  readonly shared?: (group: string) => ReadonlyMap<string, string>;
  /**
   * Loads that the caller has already made, of the pair of the group; see LaneSite.loaded. `group` is a C
   * expression (int, constant once loops are unrolled): the fragment's 8-column group, of logical columns if
   * interleaved, otherwise of physical columns.
   */
  readonly loaded?: (buffer: string, access: Access, group: () => string) => string | undefined;
}

/** The reason why a segment cannot have a fragment epilogue; undefined if it can. */
export function fragmentProblem({ columns, pairing, outputs }: Segment): string | undefined {
  if (columns === 1) return singleProblem(pairing, outputs);
  if (columns % 2 !== 0) return 'an odd number of columns';
  if (pairing.kind !== 'none' && pairing.width % 8 !== 0)
    return `pairs of width ${pairing.width}, not of a multiple of 8`;
  if (pairing.kind === 'rotate' && outputs.some(({ kind }) => kind === 'rowSum'))
    return 'row sums over rotated columns';
  return undefined;
}

/** A single column, as the gate of a shared expert, is that of the first lane of a row's quad, and no pair. */
function singleProblem(pairing: Segment['pairing'], outputs: Segment['outputs']): string | undefined {
  if (pairing.kind !== 'none') return 'one column in pairs';
  if (outputs.some(({ kind }) => kind === 'rowSum')) return 'row sums over one column';
  return outputs.some(({ value }) => readsElements(value)) ? 'one column that reads elements of its row' : undefined;
}
const readsElements = (s: Scalar): boolean =>
  (s.op === 'load' && s.access.kind === 'element') || childrenOf(s).some(readsElements);

/** The same of all segments of a kernel, as a sentence. */
export function segmentsProblem(segments: readonly Segment[]): string | undefined {
  for (const segment of segments) {
    const problem = fragmentProblem(segment);
    if (problem !== undefined) return `tensor cores cannot end weight ${segment.weight}: ${problem}`;
  }
  return undefined;
}

/**
 * The number of physical columns of a fragment, and its first column, are multiples of this. A block of row sums lies
 * within one thread quad.
 */
export function fragmentStep({ pairing, outputs }: Segment): number {
  const isSummed = outputs.some(({ kind }) => kind === 'rowSum');
  if (pairing.kind === 'none') return isSummed ? ROW_SUM_BLOCK : 8;
  const step = 2 * pairing.width;
  return pairing.kind === 'interleave' && isSummed ? Math.max(step, 2 * ROW_SUM_BLOCK) : step;
}

/** The same for tiles, which also have whole groups of the columns that an epilogue sums. */
export const tileStep = (segment: Segment): number =>
  leastCommonMultiple(fragmentStep(segment), groupWidth(segment.outputs) ?? 1);

// Where a fragment's programs are evaluated: the columns of its groups, alone or in pairs.

export interface Sites {
  /** One site, or the two halves of a rotated pair. */
  readonly list: readonly LaneSite[];
  /** C truth value: whether the columns exist. */
  readonly guard: () => string;
}

/**
 * The sites at which a fragment's programs are evaluated, in terms of `unit_`; adds the constants that they may use.
 */
export function fragmentSites({ pairing, columns }: Segment, fragment: Fragment, constants: Constants): Sites {
  const { acc, column: base, quad, loaded, shared } = fragment;
  const at = (
    id: string,
    column: () => string,
    group: () => string,
    second: () => string,
    rotate?: LaneSite['rotate'],
    suffix?: string,
  ): LaneSite => ({
    id,
    get column() {
      return column();
    },
    lanes: columns === 1 ? 1 : 2,
    acc: (i) => {
      const at = i === 0 ? group() : second();
      return columns === 1 ? acc(at, 0) : productPair(acc, at);
    },
    ...defined({
      loaded: loaded && ((buffer: string, access: Access) => loaded(buffer, access, logical(group))),
    }),
    ...defined({ rotate, suffix }),
    ...defined({ given: shared && shared(pairing.kind === 'none' ? 'unit_' : '2 * unit_') }),
  });
  const logical = (group: () => string): (() => string) => (pairing.kind === 'interleave' ? () => 'unit_' : group);
  switch (pairing.kind) {
    case 'none': {
      const group = constants.add('group_', () => 'unit_');
      const column = constants.add('column', () => `${base} + 8 * ${group()} + 2 * ${quad}`);
      return { list: [at('x', column, group, group)], guard: () => `${column()} < ${columns}` };
    }
    case 'interleave': {
      const across = pairing.width / 8;
      const group = constants.add('group_', () => firstGroup(across));
      const column = constants.add('column', () => `(${base}) / 2 + 8 * unit_ + 2 * ${quad}`);
      const site = at('x', column, group, () => `${group()} + ${across}`);
      return { list: [site], guard: () => `${column()} < ${columns}` };
    }
    case 'rotate': {
      const { headDim, width } = pairing;
      const across = width / 8;
      const group = constants.add('group_', () => firstGroup(across));
      const lying = constants.add('lying_', () => `${base} + ${2 * width} * (unit_ / ${across})`);
      const column = constants.add(
        'column',
        () => `${firstHalf(lying(), headDim, fragment.holdsWholeHeads === true)} + unit_ % ${across} * 8 + 2 * ${quad}`,
      );
      const partner = constants.add('partner', () => `${column()} + ${headDim / 2}`);
      const partnerGroup = (): string => `${group()} + ${across}`;
      const first: LaneSite = at('a', column, group, group, { partner: () => second, isNegated: true }, '_first');
      const second: LaneSite = at(
        'b',
        partner,
        partnerGroup,
        partnerGroup,
        { partner: () => first, isNegated: false },
        '_second',
      );
      return { list: [first, second], guard: () => `${lying()} < ${columns}` };
    }
    default:
      return pairing satisfies never;
  }
}

/** C expression: group of physical columns of the first element of a pair, for pairs of `across` groups each. */
const firstGroup = (across: number): string => `unit_ / ${across} * ${2 * across} + unit_ % ${across}`;

/**
 * Logical column, without the lane, of the first element of the pair at physical column `lying`, a multiple of 16, in
 * heads of `headDim`. In tiles of whole heads, a mask tells the compiler the value before the tile is known. In other
 * tiles a mask would only prolong the lifetime of intermediate values.
 */
export const firstHalf = (lying: string, headDim: number, holdsWholeHeads: boolean): string =>
  `${lying} - ${holdsWholeHeads ? modulo(lying, headDim) : `${lying} % ${headDim}`} / 2`;

// The epilogue that runs on the threads which hold an accumulator fragment of a tensor core (mma.sync, wgmma). All
// skeletons with such fragments print theirs through this module.

/** 8-column groups per block of row sums. */
const SUM_GROUPS = ROW_SUM_BLOCK / 8;

/**
 * The epilogue of `segment` over one row of a fragment, as a block of statements. Requires that fragmentProblem reports
 * no problem.
 */
export function fragmentEpilogue(segment: Segment, operands: CudaOperands, fragment: Fragment, depth: number): string {
  const scope = new CudaRowScope(operands, fragment.row, `${fragment.prefix}r`, fragment.given);
  const { pairing, outputs } = segment;
  const body = new LaneBody(
    scope,
    outputs.map(({ value }) => value),
  );
  const units = pairing.kind === 'none' ? fragment.groups : fragment.groups / 2;
  const hasSums = outputs.some(({ kind }) => kind === 'rowSum');
  const constants = new Constants();
  const own = ownValues(segment, scope, fragment);
  const shared = own?.shared ?? fragment.shared;
  const sites = fragmentSites(segment, { ...fragment, ...defined({ shared }) }, constants);
  const sums: string[] = [];
  const printed = sites.list.map((site, i) => printOutputs(outputs, site, i === 1, body, fragment, sums));
  const stores = printed.flatMap(({ stores: lines }) => lines);
  const kept = printed.flatMap(({ kept: lines }) => lines);
  const adds = printed.flatMap(({ adds: lines }) => lines);
  const [always, ifStored] = fragment.guardsKept === true ? [[], [...kept, ...stores]] : [kept, stores];
  const program = guarded(fragment.isWhole ? undefined : sites.guard(), [
    ...body.lines,
    ...adds,
    ...always,
    ...guarded(fragment.isStored, ifStored),
  ]);
  const unit = [...constants.definitions(), ...program];
  const inner = hasSums
    ? unrolled(`for (int block_ = 0; block_ < ${units / SUM_GROUPS}; block_++)`, [
        ...sums.map((name) => `float ${name} = 0.0f;`),
        ...unrolled(
          `for (int unit_ = ${SUM_GROUPS} * block_; unit_ < ${SUM_GROUPS} * block_ + ${SUM_GROUPS}; unit_++)`,
          unit,
        ),
        ...closeSums(segment, fragment, scope, sums),
      ])
    : unrolled(`for (int unit_ = 0; unit_ < ${units}; unit_++)`, unit);
  return indent(block('', [...scope.lines, ...(own?.lines ?? []), ...inner]), depth);
}

/** The values of the groups of a fragment that has whole groups, unless the caller has computed them. */
function ownValues(
  segment: Segment,
  scope: CudaRowScope,
  fragment: Fragment,
): (Pick<GroupValues, 'lines'> & Pick<Fragment, 'shared'>) | undefined {
  const width = groupWidth(segment.outputs);
  if (width === undefined || fragment.shared !== undefined) return undefined;
  const values = groupValues(segment, scope, { ...fragment, count: (8 * fragment.groups) / width });
  return values === undefined
    ? undefined
    : {
        lines: values.lines,
        shared: (group) => values.given(`(${group}) / ${width / 8}`),
      };
}

/**
 * All outputs at a site are computed before any is stored, because an output may be stored over a buffer that another
 * output reads.
 */
function printOutputs(
  outputs: readonly Output[],
  site: LaneSite,
  isPartner: boolean,
  body: LaneBody,
  fragment: Fragment,
  sums: string[],
): Readonly<Record<'stores' | 'kept' | 'adds', string[]>> {
  const stores: string[] = [];
  const kept: string[] = [];
  const adds: string[] = [];
  const isFirst = sums.length === 0;
  let sum = 0;
  outputs.forEach((output) => {
    const mark = body.row.operands.markOf?.(output.value) ?? '';
    if (output.kind === 'rowSum') {
      const name = `${fragment.prefix}s${sum++}`;
      if (isFirst) sums.push(name);
      const { code, marks } = programValue(output, body, site);
      adds.push(`add_to(${name}, ${code});${marks}${mark}`);
      return;
    }
    const operand = body.row.operands.get(output.buffer);
    const own = fragment.store?.({
      operand,
      get value() {
        return programValue(output, body, site).code;
      },
      isPartner,
      via: output.via,
    });
    if (own !== undefined) kept.push(...own.map((line) => line + mark));
    else stores.push(storeLine(output, body, site) + mark);
  });
  return { stores, kept, adds };
}

function closeSums(
  { outputs, pairing, columns }: Segment,
  fragment: Fragment,
  scope: CudaRowScope,
  sums: readonly string[],
): string[] {
  const base = pairing.kind === 'interleave' ? `(${fragment.column}) / 2` : fragment.column;
  const column = `${base} + ${ROW_SUM_BLOCK} * block_`;
  const targets = outputs.filter(({ kind }) => kind === 'rowSum').map(({ buffer }) => scope.operands.get(buffer));
  const { close } = fragment;
  if (close !== undefined) return targets.flatMap((operand, i) => close({ operand, sum: sums[i]!, block: 'block_' }));
  const stores = targets.map(
    (operand, i) => `${scope.rowPointer(operand, undefined)}[(${column}) / ${ROW_SUM_BLOCK}] = ${sums[i]!};`,
  );
  const guard = [
    `${fragment.quad} == 0`,
    fragment.isStored,
    ...(fragment.isWhole ? [] : [`${column} < ${columns}`]),
  ].join(' && ');
  return [...sums.map((name) => `${name} = quad_sum(${name});`), ...guarded(guard, stores)];
}
