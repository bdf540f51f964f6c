/**
 * Programs over rows whose lanes have eight adjacent columns each: operands are loaded and results stored 16 bytes at a
 * time. Lanes exchange only parts of row sums, which are added in the same order as in fragments.
 */
import { type GemmKernel, isRowMax, type LogProbKernel, type Output, ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import { type Access, operands as childrenOf, type Scalar } from '../../../ir/scalar.js';
import { DTYPE_BYTES, isFloat } from '../../../ir/types.js';
import { functorOf } from './functor.js';
import { type CudaOperands, CudaRowScope, ELEMENT_TYPES, isByte, type Operand } from './operands.js';
import { LaneBody, type LaneSite, programValue } from './scalarPrinter.js';
import { Constants, guarded, indent, unrolled } from './statements.js';
import { configText } from './unit.js';

/** Adjacent columns per lane. */
export const COLUMNS_OF_LANE = 8;
/** Columns of a warp's turn. */
export const WARP_COLUMNS = 32 * COLUMNS_OF_LANE;

/** What programs read at every column: elements of a row, of a row that an index selects, or a vector's. */
export interface LaneLoad {
  readonly operand: Operand;
  readonly access: Access & { readonly kind: 'element' | 'column' };
}

const isFloatOrByte = ({ dtype }: Operand): boolean => isFloat(dtype) || isByte({ dtype });
/** Whether lanes can load or store all of a row of `operand`. */
export const isWholeRow = (operand: Operand): boolean =>
  isFloatOrByte(operand) && operand.stride % COLUMNS_OF_LANE === 0;

const sameAccess = (a: Access, b: Access): boolean =>
  a.kind === b.kind && ('via' in a ? a.via : undefined) === ('via' in b ? b.via : undefined);

/** What `outputs` read at every column in whole lanes, each once. Other loads stay in the programs. */
export function laneLoads(outputs: readonly Output[], operands: CudaOperands): LaneLoad[] {
  const found: LaneLoad[] = [];
  const visit = (s: Scalar): void => {
    childrenOf(s).forEach(visit);
    if (s.op !== 'load' || (s.access.kind !== 'element' && s.access.kind !== 'column')) return;
    const { access } = s;
    const operand = operands.get(s.buffer);
    const isWide = access.kind === 'column' ? isFloatOrByte(operand) : operand.columns !== 1 && isWholeRow(operand);
    const isKnown = found.some((each) => each.operand.name === operand.name && sameAccess(each.access, access));
    if (isWide && !isKnown) found.push({ operand, access });
  };
  outputs.forEach(({ value }) => visit(value));
  return found;
}

/** Whether `output` is the largest value of a whole row, by the buffer that it is written to. */
export const isRowMaxOf = (output: Output, operands: CudaOperands): boolean =>
  isRowMax(output, operands.get(output.buffer).columns);

/** The largest value of a row so far, by the position of its output among those that are. */
export const rowMaxName = (i: number): string => `most${i}_`;

/** Number of 32-bit words that hold a lane's columns. */
export const wordsOf = ({ dtype }: Operand): number => (COLUMNS_OF_LANE * DTYPE_BYTES[dtype]) / 4;

/** The type of a lane's columns: lib/eights.cuh. */
const eightOf = ({ dtype }: Operand): string => `Eight<${ELEMENT_TYPES[dtype]}>`;

export interface LanePrograms {
  /** Words of `atOnce` turns, and how turn `i` loads them. */
  readonly declared: readonly string[];
  readonly load: readonly string[];
  /** What turn `i` computes: its words and sums, what depends on the row alone, and the values of its columns. */
  readonly words: readonly string[];
  readonly row: readonly string[];
  readonly program: readonly string[];
  readonly store: readonly string[];
}

export interface LaneOptions {
  readonly outputs: readonly Output[];
  readonly loads: readonly LaneLoad[];
  /** Turns whose loads are in flight at once. */
  readonly atOnce: number;
  /** C expression (float2) of the accumulators of pair `pair_` of the lane's eight columns. */
  readonly acc?: () => string;
  /** C expressions of row values that are known, by printScalar of their program. */
  readonly given?: ReadonlyMap<string, string>;
  /** What the words of loads are members of: `loaded.`. */
  readonly owner?: string;
}

/** What the words of a load are called. */
function nameOf(loads: readonly LaneLoad[], load: LaneLoad, operands: CudaOperands): string {
  const same = loads.filter(({ operand }) => operand.name === load.operand.name);
  const at = same.indexOf(load);
  return `${operands.nameOf(load.operand)}_words${at === 0 ? '' : `_${at + 1}`}`;
}

/** The words of those `loads` that are `wanted`, and statements that load them at turn `i`. */
export function laneWords(
  loads: readonly LaneLoad[],
  atOnce: number,
  operands: CudaOperands,
  wanted: (load: LaneLoad) => boolean = () => true,
  owner = '',
): Pick<LanePrograms, 'declared' | 'load'> {
  const from = ({ operand, access }: LaneLoad): string => {
    if (access.kind === 'column') return `${operands.base(operand)} + first`;
    if (access.via === undefined) return placeOf(operand, operands);
    return placeOf(operand, operands, `${operands.base(operands.get(access.via))}[row]`);
  };
  const own = loads.filter(wanted);
  return {
    declared: own.map((load) => `${eightOf(load.operand)} ${nameOf(loads, load, operands)}[${atOnce}];`),
    load: own.map((load) => `${owner}${nameOf(loads, load, operands)}[i].load(${from(load)});`),
  };
}

/** Pointer to the lane's first column of a row. */
const placeOf = (operand: Operand, operands: CudaOperands, row = 'row'): string =>
  `${operands.base(operand)} + (long long)${row} * ${operand.stride} + first`;

/**
 * A lane's work for eight columns of a row: declare its words, load them, run the programs, store the results. C names:
 * `row`, `lane`, `first` (the lane's first column), `is_stored`, `i`, the turn, and what rowMaxName says.
 */
export function lanePrograms(options: LaneOptions, operands: CudaOperands): LanePrograms {
  const { outputs, loads, atOnce, acc, given, owner = '' } = options;
  const scope = new CudaRowScope(operands, 'row', 'r', given);
  const body = new LaneBody(
    scope,
    outputs.map(({ value }) => value),
  );
  const markOf = (value: Scalar): string => operands.markOf?.(value) ?? '';
  const constants = new Constants();
  const column = constants.add('column', () => 'first + 2 * pair_');
  const site: LaneSite = {
    id: 'x',
    get column() {
      return column();
    },
    lanes: 2,
    ...(acc === undefined ? {} : { acc }),
    loaded: (buffer, access) => {
      const own = loads.find(({ operand, access: known }) => operand.name === buffer && sameAccess(known, access));
      return own === undefined ? undefined : `${owner}${nameOf(loads, own, operands)}[i].pair(pair_)`;
    },
  };
  const stores = outputs.filter((output) => output.kind === 'store');
  const keptName = (buffer: string): string => `${operands.nameOf(operands.get(buffer))}_kept`;
  const summedName = (buffer: string): string => `${operands.nameOf(operands.get(buffer))}_columns`;
  const kept = outputs.map((output) => {
    const { code, marks } = programValue(output, body, site);
    return output.kind === 'store'
      ? `${keptName(output.buffer)}.keep(pair_, ${code});${marks}`
      : `set_pair(${summedName(output.buffer)}, pair_, ${code});${marks}`;
  });
  const sums = outputs.filter((output) => output.kind === 'rowSum');
  const maxima = sums.filter((output) => isRowMaxOf(output, operands));
  const closing = (output: (typeof sums)[number]): string => {
    const { buffer, by, value } = output;
    const place = maxima.indexOf(output);
    if (place >= 0)
      return `${rowMaxName(place)} = lane_max(${rowMaxName(place)}, ${summedName(buffer)}, is_stored);${markOf(value)}`;
    const part = `${placeOf(operands.get(buffer), operands)} / ${ROW_SUM_BLOCK}`;
    return `store_block_${by ?? 'sum'}(${part}, ${summedName(buffer)}, lane, is_stored);${markOf(value)}`;
  };
  const storing = ({ buffer, via, value }: (typeof stores)[number]): string[] => {
    const operand = operands.get(buffer);
    const index = via === undefined ? undefined : scope.rowIndex(via);
    const line = `${keptName(buffer)}.store(${placeOf(operand, operands, index)});${markOf(value)}`;
    return guarded(index === undefined ? undefined : `${index} >= 0`, [line]);
  };
  const store = [...sums.map(closing), ...guarded('is_stored', stores.flatMap(storing))];
  return {
    ...laneWords(loads, atOnce, operands, undefined, owner),
    words: [
      ...stores.map(({ buffer }) => `${eightOf(operands.get(buffer))} ${keptName(buffer)}{};`),
      ...sums.map(({ buffer }) => `float ${summedName(buffer)}[${COLUMNS_OF_LANE}];`),
    ],
    row: scope.lines,
    program: unrolled(`for (int pair_ = 0; pair_ < ${COLUMNS_OF_LANE / 2}; pair_++)`, [
      ...constants.definitions(),
      ...body.lines,
      ...kept,
    ]),
    store,
  };
}

// Contractions that finish their rows (finish of a GemmKernel). Every skeleton prints the same programs and the same
// way to share rows among warps; a skeleton says what of a row a warp has stored, and when its warps take rows.

/** How a skeleton stores rows. */
export interface StoredRows {
  /** Rows of a block: those of a tile. */
  readonly blockRows: number;
  /** Rows of a step of the grid, and blocks of them. */
  readonly gridRows: number;
  readonly gridBlocks: number;
  /** Shares of a block that warps store, in all. */
  readonly whole: number;
  /** C expression (unsigned): warps of the grid that take pieces. */
  readonly warps: string;
  /** Whether several warps share a row: where there are few rows. */
  readonly isDivided: boolean;
}

/** 32-bit words of operands that a lane has under way at once, of the 120 registers that the narrowest warps have. */
const MAX_WORDS = 64;
/** How often a warp that finds no piece looks again before it ends: less than the time of a tile. */
const PATIENCE = 12;
const MANY = '0x7fffffff';

/** The parts of a kernel that finishes rows (gemm/finish.cuh). */
export class FinishText {
  /** What stands before the kernel's head: finish_config, finish_state, and the programs. */
  readonly functions: string;
  private readonly rows: string;
  private readonly finished: string;
  private readonly warps: string;

  constructor(kernel: GemmKernel, finish: readonly Output[], operands: CudaOperands, stored: StoredRows) {
    const { columns } = kernel.segments[0]!;
    const loads = laneLoads(finish, operands);
    const words = loads.reduce((sum, { operand }) => sum + wordsOf(operand), 0);
    const chunks = Math.ceil(columns / WARP_COLUMNS);
    const turns = Math.ceil(chunks / Math.max(1, Math.floor(MAX_WORDS / Math.max(1, words))));
    const atOnce = Math.ceil(chunks / turns);
    const text = lanePrograms({ outputs: finish, loads, atOnce }, operands);
    const each = (lines: readonly string[]): string[] =>
      unrolled(`for (int i = 0; i < ${atOnce}; i++)`, [
        `const int first = turn + ${WARP_COLUMNS} * i + ${COLUMNS_OF_LANE} * lane;`,
        ...lines,
      ]);
    const programs = functorOf(operands, 'FinishedRows', [
      {
        head: 'TW_DEVICE void turn(int row, int turn, int end, int lane) const',
        lines: [
          ...text.declared,
          ...each(guarded('first < end', text.load)),
          ...text.row,
          ...each(['const bool is_stored = first < end;', ...text.words, ...text.program, ...text.store]),
        ],
      },
    ]);
    const config = {
      columns,
      turnColumns: WARP_COLUMNS * atOnce,
      pieces: stored.isDivided ? turns : 1,
      blockRows: stored.blockRows,
      gridRows: stored.gridRows,
      gridBlocks: stored.gridBlocks,
      shares: stored.whole,
      maxBlocks: Math.ceil(operands.maxRows(finish[0]!.buffer) / stored.gridRows) * stored.gridBlocks,
    };
    this.functions = [
      configText('FinishConfig', config, 'finish_config'),
      '__device__ FinishState<finish_config> finish_state;',
      programs.text,
    ].join('\n\n');
    this.rows = kernel.rows;
    this.finished = programs.instance;
    this.warps = stored.warps;
  }

  /** Statement of a warp that has stored `share` shares of block `block`, C expressions. */
  stored(block: string, share: string): string {
    return `rows_stored(finish_state, ${block}, ${share});\n`;
  }

  /** Statements of a warp that goes on to multiply or store: takes `most` pieces at most, and waits for none. */
  some(most: number): string {
    return this.pieces(String(most), 0);
  }

  /** Statements of a warp that has nothing else to do. `waits`: whether more may come of what others store. */
  rest(waits: boolean): string {
    return `${this.pieces(MANY, waits ? PATIENCE : 0)}rows_ended(finish_state, ${this.warps}, ${this.rows});\n`;
  }

  private pieces(most: string, patience: number): string {
    return `finish_rows(finish_state, finishing, ${this.rows}, ${most}, ${patience}, ${this.finished});\n`;
  }
}

/** The kernel's finish as text; undefined if it has none. */
export const finishText = (
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  stored: StoredRows,
): FinishText | undefined =>
  kernel.anchor === 'gemm' && kernel.finish !== undefined
    ? new FinishText(kernel, kernel.finish, operands, stored)
    : undefined;

/** What a skeleton whose blocks have one tile each prints behind the tile's epilogue, which all `warps` warps run. */
export function finishOfTile(
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  tile: { readonly tm: number; readonly across: number; readonly warps: number; readonly isSmall: boolean },
  rowBlock: string,
): { readonly functions: string; readonly finish: string } {
  const { tm, across, warps, isSmall } = tile;
  const text = finishText(kernel, operands, {
    blockRows: tm,
    gridRows: tm,
    gridBlocks: 1,
    whole: across * warps,
    warps: `gridDim.x * gridDim.y * ${warps}u`,
    isDivided: isSmall,
  });
  if (text === undefined) return { functions: '', finish: '' };
  const lines = `${text.stored(rowBlock, '1')}unsigned finishing = 0;\n${text.rest(isSmall)}`;
  return { functions: text.functions, finish: indent(lines.trimEnd().split('\n'), 1) };
}
