/** The epilogue of a wgmma tile: one row of a consumer thread's accumulators, in batches of columns. */
import { groupWidth } from '../../../ir/groupSums.js';
import { ROW_SUM_BLOCK, type Segment } from '../../../ir/kernel.js';
import { type Access, operands as childrenOf, type Scalar } from '../../../ir/scalar.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { groupValues, type GroupValues } from '../text/contraction.js';
import { type Fragment, fragmentEpilogue, fragmentStep, type SumSite } from '../text/fragment.js';
import { type CudaOperands, type Operand, physicalColumns, CudaRowScope } from '../text/operands.js';
import { indent } from '../text/statements.js';
import { columnValue } from './columnValues.js';
import { elementLoads, type WgmmaContext } from './config.js';
import {
  AHEAD_GROUPS,
  declaredAhead,
  firstLoads,
  type LoadBatch,
  loadsAhead,
  QUAD,
  takeBatch,
  type VectorContext,
  VectorLoads,
  VectorStores,
} from './epilogueAccess.js';
import type { WgmmaLayout } from './layout.js';

/**
 * 8-column groups of an epilogue that are processed together, by the number of accumulators per thread. More groups
 * mean more loads in flight, within the registers available. `batch`: groups whose operands are loaded before the first
 * is used; `narrow`: the same if no operand is wider than 16 bits; `rotated`: the same for rotated pairs, which read
 * two table entries each.
 */
const DEPTHS = [
  { accumulators: 128, batch: 8, narrow: 16, rotated: 32 },
  { accumulators: 192, batch: 8, narrow: 4, rotated: 2 },
  { accumulators: Infinity, batch: 4, narrow: 4, rotated: 2 },
] as const;
/** The same for the warps that run deferred epilogues. A row half of products takes 40 of their 120 registers. */
const DEFERRED_DEPTH = { batch: 8, narrow: 16, rotated: 8 } as const;
/** The same where seven warps run them, which have 88 registers. */
const SHARED_DEPTH = { batch: 4, narrow: 8, rotated: 4 } as const;
/** Groups whose results are kept for wide stores when nothing is loaded. */
const BATCH = 8;
const DEPTH = 0;
/** Most accumulators per thread that leave registers for pending sums. */
const MAX_FOR_SUMS = 192;

/** The values that are the same for all batches of a segment. */
interface BatchContext extends VectorContext, SumContext {
  readonly layout: WgmmaLayout;
  /** Row values, keyed as fragments refer to them. */
  readonly given: ReadonlyMap<string, string>;
  /** Buffers that programs read at the element itself. */
  readonly loads: readonly Operand[];
  /** Statements at the beginning of a batch whose loads were begun ahead; undefined if batches begin their own. */
  readonly takes: ((batch: LoadBatch) => string[]) | undefined;
  /** C expression of a column value in shared memory, at a group of 8 columns of the tile; see columnValue. */
  readonly column: (buffer: string, group: string) => string | undefined;
  /** Tables whose entries are loaded once for a row; undefined if each pair loads its own. */
  readonly tables: RowTables | undefined;
  /** Values that groups of columns share, computed for the whole row of the tile. */
  readonly groups: GroupValues | undefined;
}

/** The statements of an epilogue. */
export interface EpilogueText {
  /** For a row. */
  readonly epilogue: string;
  /**
   * If the epilogue loads ahead, and takes its products itself: what is loaded, and the loads of a warp's first row.
   */
  readonly ahead: { readonly declared: readonly string[]; readonly load: readonly string[] } | undefined;
}

/**
 * Statements for row `row` of a tile of `tn` columns, with the names of a functor's `row` (gemm/hopperEpilogue.cuh).
 * Remainder tiles are narrower than the schedule's tiles but begin at multiples of their columns.
 */
export function epilogueText(
  { operands, prologue, options, segments }: WgmmaContext,
  segment: Segment,
  tn = options.tn,
): EpilogueText {
  const start = options.tn;
  // Only deferred epilogues have remainder tiles, which are one instruction wide.
  const layout: WgmmaLayout = tn === options.tn ? options : { ...options, wn: tn };
  const groups = tn / 8;
  const step = fragmentStep(segment) / 8;
  const physical = physicalColumns(segment.columns, segment.pairing);
  const given = prologue.given('values');
  const isWhole = physical % tn === 0 && start % tn === 0 && physical === lyingColumns(segment);
  const scope = new CudaRowScope(operands, 'row', 'gr', given);
  const width = groupWidth(segment.outputs) ?? tn;
  const holdsWholeHeads =
    segment.pairing.kind === 'rotate' && tn % segment.pairing.headDim === 0 && start % segment.pairing.headDim === 0;
  const access = { segment, operands, isWhole, holdsWholeHeads, isBranched: !layout.isDeferred };
  const loads = segment.pairing.kind === 'none' ? elementLoads(segment, operands) : [];
  const isPlain = segments.length === 1 && tn === options.tn && groupWidth(segment.outputs) === undefined;
  const ahead = mayLoadAhead(options) && isPlain ? loadsAhead(access, loads, groups) : undefined;
  const context: BatchContext = {
    ...access,
    layout,
    given,
    groups: groupValues(segment, scope, {
      prefix: 'g',
      count: tn / width,
      column: 'column0',
      quad: 'quad',
      isWhole,
      acc: accumulator(''),
    }),
    loads,
    takes: ahead && ((each) => takeBatch(access, ahead, each)),
    sums:
      segment.pairing.kind === 'none' && accumulatorsOf(layout) <= MAX_FOR_SUMS
        ? segment.outputs.filter(({ kind }) => kind === 'rowSum').map(({ buffer }) => operands.get(buffer))
        : [],
    tables: options.mmaType === 'e4m3' && holdsWholeHeads ? tablesOf(segment, operands, layout) : undefined,
    column: (buffer, group) =>
      options.hasColumnValues ? columnValue(segment, operands, start, buffer, group) : undefined,
  };
  const batch = Math.max(step, Math.floor(groupsAtOnce(context) / step) * step);
  const declared = indent(
    [
      ...context.sums.map((operand) => `BlockSums ${sumsName(operand, operands)};`),
      ...(context.tables?.lines() ?? []),
      ...(context.groups === undefined ? [] : [...scope.lines, ...context.groups.lines]),
      ...(context.groups !== undefined && layout.isDeferred ? ['products.forget();'] : []),
    ],
    DEPTH,
  );
  const before = ahead && { declared: declaredAhead(ahead, operands), load: firstLoads(access, ahead) };
  const sums = indent(lastSums(context, groups), DEPTH);
  // What loads ahead has several batches.
  if (groups <= batch)
    return {
      epilogue: declared + batchText(context, { batch: '0', count: groups }, '0', DEPTH) + sums,
      ahead: before,
    };
  const whole = Math.floor(groups / batch);
  const rest = groups - whole * batch;
  const epilogue = [
    declared,
    indent(['#pragma unroll', `for (int batch_ = 0; batch_ < ${whole}; batch_++) {`], DEPTH),
    batchText(context, { batch: 'batch_', count: batch }, `batch_ * ${batch}`, DEPTH + 1),
    indent(['}'], DEPTH),
    ...(rest === 0 ? [] : [batchText(context, { batch: String(whole), count: rest }, String(whole * batch), DEPTH)]),
    sums,
  ].join('');
  return { epilogue, ahead: before };
}

/**
 * Products of 16 bits take twice as long, and hide their epilogues: loads ahead only compete with those of the product.
 * In a run of 8B, o took 3 % longer with them.
 */
const mayLoadAhead = ({ mmaType, isDeferred, epilogueGroups }: WgmmaContext['options']): boolean =>
  mmaType === 'e4m3' && isDeferred && epilogueGroups === 0;

/** The tables of a segment's rows, if a thread has registers for their entries. */
function tablesOf(segment: Segment, operands: CudaOperands, layout: WgmmaLayout): RowTables | undefined {
  const tables = new RowTables(segment, operands);
  const most = layout.isDeferred
    ? layout.epilogueGroups === 0
      ? MAX_TABLE_WORDS
      : 0
    : MAX_BESIDE_TABLES - accumulatorsOf(layout);
  return tables.isEmpty || tables.words > most ? undefined : tables;
}

/** Registers for entries of tables: of those that run deferred epilogues, and with accumulators in other modes. */
const MAX_TABLE_WORDS = 32;
const MAX_BESIDE_TABLES = 160;

/** Accumulators of a thread. */
const accumulatorsOf = ({ rowBlocks, wn, columnBlocks }: WgmmaLayout): number => (rowBlocks * wn * columnBlocks) / 2;

/** Groups that are best processed together, before rounding to whole steps. */
function groupsAtOnce(context: BatchContext): number {
  const { takes, loads, segment, tables, layout } = context;
  if (takes !== undefined) return AHEAD_GROUPS;
  if (loads.length > 0) return loadDepth(context);
  return segment.pairing.kind === 'rotate' && tables === undefined ? Math.max(BATCH, depthOf(layout).rotated) : BATCH;
}

const loadDepth = ({ layout, loads }: BatchContext): number =>
  loads.every(({ dtype }) => DTYPE_BYTES[dtype] <= 2) ? depthOf(layout).narrow : depthOf(layout).batch;

const depthOf = (layout: WgmmaLayout): { readonly batch: number; readonly narrow: number; readonly rotated: number } =>
  layout.isDeferred
    ? layout.epilogueGroups === 0
      ? DEFERRED_DEPTH
      : SHARED_DEPTH
    : DEPTHS.find(({ accumulators }) => accumulatorsOf(layout) <= accumulators)!;

/** The groups of a batch, from group `first` on: first their loads, then their programs, then their stores. */
function batchText(context: BatchContext, { batch, count }: LoadBatch, first: string, depth: number): string {
  const { segment, operands, loads, isWhole, holdsWholeHeads, given } = context;
  const origin = first === '0' ? 'column0' : `column0 + 8 * (${first})`;
  const vectorLoads = new VectorLoads(context, loads, origin, count);
  const vectorStores = new VectorStores(context, origin, count);
  const { rotated } = depthOf(context.layout);
  const part = segment.pairing.kind === 'rotate' && count % rotated === 0 ? rotated : count;
  const programs: string[] = [];
  for (let start = 0; start < count; start += part) {
    vectorStores.startAt(start);
    const offset = [...(first === '0' ? [] : [first]), ...(start === 0 ? [] : [String(start)])];
    const inTile = (group: string): string => {
      const from = offset.join(' + ');
      if (from === '') return group;
      return `${segment.pairing.kind === 'interleave' ? `(${from}) / 2` : from} + ${group}`;
    };
    const fragment: Fragment = {
      row: 'row',
      isStored: 'is_stored',
      prefix: 'e',
      groups: part,
      column: `(${start === 0 ? origin : `${origin} + ${8 * start}`})`,
      quad: 'quad',
      isWhole,
      holdsWholeHeads,
      given,
      acc: accumulator(offset.join(' + ')),
      ...sharedOf(context, offset),
      loaded: (buffer: string, access: Access, group: () => string) =>
        access.kind === 'element' && access.via === undefined
          ? vectorLoads.pair(buffer, group)
          : access.kind === 'column'
            ? context.column(buffer, inTile(group()))
            : context.tables?.pair(buffer, access, inTile(group())),
      store: (site) => vectorStores.store(site),
      // A branch between rotated pairs stops the assembler from loading all their table entries at once, which would
      // displace accumulators.
      guardsKept: segment.pairing.kind === 'rotate' && context.isBranched && context.tables === undefined,
      ...(context.sums.length === 0
        ? {}
        : {
            close: (site: SumSite) =>
              takeSum(
                context,
                site,
                `(${offset.length === 0 ? '0' : offset.join(' + ')}) / ${SUM_GROUPS} + ${site.block}`,
              ),
          }),
    };
    // Keeps the compiler from moving the loads of one part before the last part: they would displace accumulators from
    // registers.
    if (start > 0) programs.push(indent(['keep_order();'], depth + 1));
    programs.push(fragmentEpilogue(segment, operands, fragment, depth + 1));
  }
  const inner = (lines: readonly string[]): string => indent(lines, depth + 1);
  return [
    indent(['{'], depth),
    inner([...(context.takes?.({ batch, count }) ?? vectorLoads.lines()), ...vectorStores.declarations()]),
    ...programs,
    inner(vectorStores.stores()),
    indent(['}'], depth),
  ].join('');
}

/** C expressions of a thread's products, `first` 8-column groups further. */
const accumulator =
  (first: string): Fragment['acc'] =>
  (group, lane) =>
    `products(${[...(first === '' ? [] : [first]), group].join(' + ')}, ${lane})`;

/** The values of groups, as a fragment sees them that begins `offset` 8-column groups into the tile. */
function sharedOf({ segment, groups }: BatchContext, offset: readonly string[]): Pick<Fragment, 'shared'> {
  const width = groupWidth(segment.outputs);
  if (groups === undefined || width === undefined) return {};
  return { shared: (group) => groups.given(`(${[...offset, group].join(' + ')}) / ${width / 8}`) };
}

/** Number of physical columns before padding. */
const lyingColumns = ({ columns, pairing }: Segment): number =>
  pairing.kind === 'interleave' ? 2 * pairing.width * Math.ceil(columns / pairing.width) : columns;

// Row sums of an epilogue: a quad stores those of four blocks of columns together.

/** What stores of sums depend on. `sums`: buffers of row sums that quads store four blocks at a time. */
export interface SumContext extends Pick<VectorContext, 'segment' | 'operands' | 'isWhole'> {
  readonly sums: readonly Operand[];
}

/** 8-column groups per block of row sums. */
export const SUM_GROUPS = ROW_SUM_BLOCK / 8;

/**
 * A thread's share of a block of row sums, with blocks counted from the tile's first. When the fourth of four blocks is
 * complete, the quad stores them together.
 */
export function takeSum(
  { segment, operands, sums, isWhole }: SumContext,
  { operand, sum }: SumSite,
  block: string,
): string[] {
  const name = sumsName(
    sums.find((each) => each.name === operand.name)!,
    operands,
  );
  return [`${name}.take<${limitOf({ segment, isWhole })}>(${block}, ${sum}, ${partsOf(operand, operands)});`];
}

/** Completes the last blocks of a row if they are fewer than four. */
export function lastSums({ segment, operands, sums, isWhole }: SumContext, groups: number): string[] {
  const blocks = groups / SUM_GROUPS;
  return blocks % QUAD === 0
    ? []
    : sums.map(
        (operand) =>
          `${sumsName(operand, operands)}.end<${blocks}, ${limitOf({ segment, isWhole })}>(` +
          `${partsOf(operand, operands)});`,
      );
}

const sumsName = (operand: Operand, operands: CudaOperands): string => `${operands.nameOf(operand)}_sums`;
/** Columns of a row; 0 where every tile lies inside the segment. */
const limitOf = ({ segment, isWhole }: Pick<SumContext, 'segment' | 'isWhole'>): number =>
  isWhole ? 0 : segment.columns;
const partsOf = (operand: Operand, operands: CudaOperands): string =>
  `quad, ${operands.base(operand)} + (long long)row * ${operand.stride}, column0 / ${ROW_SUM_BLOCK}, is_stored`;

// Tables that rotated pairs read, such as cosines and sines of a row's position. All heads of a row read the same
// entries: a thread loads its own once for a row of the tile, all at once, where it has registers for them. Only for
// products of E4M3, whose epilogues have half the time.

interface RowTable {
  readonly operand: Operand;
  readonly via: string | undefined;
}

/** A thread's entries of the tables of a row. */
export class RowTables {
  private readonly tables: readonly RowTable[];
  private readonly segment: Segment;
  private readonly operands: CudaOperands;
  /** Entries of two columns that a thread has of each. */
  private readonly entries: number;

  /** For tiles of whole heads, whose pairs are 8 columns wide. */
  constructor(segment: Segment, operands: CudaOperands) {
    const { pairing } = segment;
    this.segment = segment;
    this.operands = operands;
    this.entries = pairing.kind === 'rotate' && pairing.width === 8 ? pairing.headDim / 2 / 8 : 0;
    this.tables = this.entries === 0 ? [] : this.find();
  }

  get isEmpty(): boolean {
    return this.tables.length === 0;
  }

  /** Registers that the entries take. */
  get words(): number {
    return 2 * this.entries * this.tables.length;
  }

  /** Statements that load a row's entries. */
  lines(): string[] {
    const scope = new CudaRowScope(this.operands, 'row', 'tr');
    const loads = this.tables.flatMap(({ operand, via }) => [
      `RowTable<${this.entries}> ${this.nameOf(operand)};`,
      `${this.nameOf(operand)}.load(${scope.rowPointer(operand, via)}, quad);`,
    ]);
    return [...scope.lines, ...loads];
  }

  /** C expression (float2) of a table's values at group `group` of 8 physical columns of the tile. */
  pair(buffer: string, access: Access, group: string): string | undefined {
    if (!this.isTable(access)) return undefined;
    const own = this.tables.find(({ operand, via }) => operand.name === buffer && via === access.via);
    return own === undefined ? undefined : `${this.nameOf(own.operand)}.pair(${group})`;
  }

  private nameOf(operand: Operand): string {
    return `${this.operands.nameOf(operand)}_table`;
  }

  /** Both halves of a head read the same entries. */
  private isTable(access: Access): access is Access & { readonly kind: 'periodic' } {
    return access.kind === 'periodic' && access.period === 8 * this.entries;
  }

  private find(): RowTable[] {
    const found = new Map<string, RowTable>();
    const visit = (s: Scalar): void => {
      if (s.op === 'load' && this.isTable(s.access))
        found.set(`${s.buffer} ${s.access.via ?? ''}`, { operand: this.operands.get(s.buffer), via: s.access.via });
      childrenOf(s).forEach(visit);
    };
    this.segment.outputs.forEach(({ value }) => visit(value));
    return [...found.values()];
  }
}
