/**
 * The epilogue that runs on the threads which hold an accumulator fragment of a tensor core (mma.sync, wgmma). All
 * skeletons with such fragments print theirs through this module.
 */
import { defined } from '../../../system/defined.js';
import { groupWidth } from '../../../ir/groupSums.js';
import type { Output, Segment } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import type { Fragment } from './fragment.js';
import { fragmentSites } from './fragmentSites.js';
import { groupValues, type GroupValues } from './groupValues.js';
import type { CudaOperands } from './operands.js';
import { RowScope } from './rowScope.js';
import { Body, type Site } from './scalarPrinter.js';
import { block, Constants, guarded, indent, unrolled } from './statements.js';
import { programValues, storeLine } from './stores.js';

/** 8-column groups per block of row sums. */
const SUM_GROUPS = ROW_SUM_BLOCK / 8;

/**
 * The epilogue of `segment` over one row of a fragment, as a block of statements. Requires that fragmentProblem reports
 * no problem.
 */
export function fragmentEpilogue(segment: Segment, operands: CudaOperands, fragment: Fragment, depth: number): string {
  const scope = new RowScope(operands, fragment.row, `${fragment.prefix}r`, fragment.given);
  const body = new Body(scope, `${fragment.prefix}v`);
  const { pairing, outputs } = segment;
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
  scope: RowScope,
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
  site: Site,
  isPartner: boolean,
  body: Body,
  fragment: Fragment,
  sums: string[],
): Readonly<Record<'stores' | 'kept' | 'adds', string[]>> {
  const stores: string[] = [];
  const kept: string[] = [];
  const adds: string[] = [];
  const isFirst = sums.length === 0;
  let sum = 0;
  outputs.forEach((output) => {
    const values = programValues(output, body, site);
    const mark = body.row.operands.markOf?.(output.value) ?? '';
    if (output.kind === 'rowSum') {
      const name = `${fragment.prefix}s${sum++}`;
      if (isFirst) sums.push(name);
      adds.push(...values.map((value) => `${name} = tw_add(${name}, ${value});${mark}`));
      return;
    }
    const operand = body.row.operands.get(output.buffer);
    const own = fragment.store?.({ operand, values, isPartner, via: output.via });
    if (own !== undefined) kept.push(...own.map((line) => line + mark));
    else stores.push(storeLine(operand, body.row, site, values, output.via) + mark);
  });
  return { stores, kept, adds };
}

function closeSums(
  { outputs, pairing, columns }: Segment,
  fragment: Fragment,
  scope: RowScope,
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
  return [...sums.map((name) => `${name} = tw_quad_sum(${name});`), ...guarded(guard, stores)];
}
