/** Kernels without a contraction: generated loops over rows and columns, and the end of the log-sum-exp. */
import type { CudaLoopSchedule } from '../../ir/cuda.js';
import {
  type LogProbReduceKernel,
  type LoopDomain,
  loopDomains,
  type LoopKernel,
  type Output,
  ROW_SUM_BLOCK,
} from '../../ir/kernel.js';
import { operands as scalarOperands, printScalar, readOf, type Scalar } from '../../ir/scalar.js';
import type { Dim } from '../../ir/types.js';
import { type Functor, functorOf } from './text/functor.js';
import { emitIdle } from './text/idle.js';
import {
  COLUMNS_OF_LANE,
  isRowMaxOf,
  isWholeRow,
  type LaneLoad,
  laneLoads,
  lanePrograms,
  laneWords,
  rowMaxName,
  WARP_COLUMNS,
  wordsOf,
} from './text/lanePrograms.js';
import { pascalCase } from './text/names.js';
import { type CudaOperands, CudaRowScope, type EmittedCuda, emittedPlain, kernelHead } from './text/operands.js';
import { LaneBody, type LaneSite, programValues, storeLine } from './text/scalarPrinter.js';
import { block, unrolled } from './text/statements.js';
import { aboutKernel, buffersText, callText, unitText } from './text/unit.js';

/** Elements of a block at least, if its rows have few columns. */
const ELEMENTS_OF_BLOCK = 1024;

/** Columns that 256 threads take at a time. Few rows that are wider have blocks of twice as many. */
const COLUMNS_AT_ONCE = 256 * COLUMNS_OF_LANE;

/** Threads of a block, untuned. */
export const loopThreads = (kernel: LoopKernel, rows: number, multiprocessors: number): number =>
  rows <= multiprocessors &&
  loopDomains(kernel).every(({ columns }) => typeof columns === 'number' && columns > COLUMNS_AT_ONCE)
    ? 512
    : 256;

/** Rows of a block that others than one read, and rows a multiprocessor from which on a block has so many. */
const [SHARED_ROWS, MANY_ROWS] = [8, 16] as const;

/** Index lists through which `s` reads rows, by what they are rows of. */
function listsOf(s: Scalar, into: Map<string, Set<string>>): void {
  const read = readOf(s);
  if (read?.via !== undefined) into.set(read.buffer, (into.get(read.buffer) ?? new Set()).add(read.via));
  for (const each of scalarOperands(s)) listsOf(each, into);
}

/**
 * Rows of a block, untuned, where L1 should hold them for others: those of a convolution, which reads several rows of
 * one buffer, and its factors.
 */
export function loopRows(kernel: LoopKernel, rows: number, multiprocessors: number): typeof SHARED_ROWS | undefined {
  if (rows < MANY_ROWS * multiprocessors) return undefined;
  const lists = new Map<string, Set<string>>();
  for (const { outputs } of loopDomains(kernel)) for (const { value } of outputs) listsOf(value, lists);
  return [...lists.values()].some(({ size }) => size > 1) ? SHARED_ROWS : undefined;
}

/** A loop kernel: its domains lie one behind another along y. */
export function emitLoop(
  kernel: LoopKernel,
  operands: CudaOperands,
  { threads, rows: shared, isIdle }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  if (isIdle === true) return emitIdle(kernel, operands, threads, symbol);
  const { rows, finish } = kernel;
  const finished = finish === undefined ? {} : { finish };
  const all = loopDomains(kernel);
  const domains = all.map((domain) => ({
    columns: domain.columns,
    ...domainText({ ...domain, ...finished }, operands, threads / 32),
    name: loopName(domain, operands, all.length === 1),
  }));
  const perRow = ({ columns }: { readonly columns: Dim }): number =>
    typeof columns === 'string' ? ELEMENTS_OF_BLOCK : Math.min(columns, ELEMENTS_OF_BLOCK);
  const longest = domains.reduce((a, b) => (perRow(b) > perRow(a) ? b : a));
  const rowsOfBlock = Math.max(
    ...domains.map(({ rowsAtOnce }) => rowsAtOnce),
    shared ?? Math.floor(ELEMENTS_OF_BLOCK / perRow(longest)),
  );
  const blocks = Math.max(1, Math.floor(Math.min(...domains.map(({ resident }) => resident)) / threads));
  const functors = domains.map(({ name, columns, side, lines }) =>
    functorOf(
      operands,
      name,
      [
        {
          head: 'TW_DEVICE void row(int row, int lane, int warp) const',
          lines: [`const int columns = ${columns};`, ...lines],
        },
      ],
      [`static constexpr int side = ${side};`],
    ),
  );
  const { extents } = operands;
  const call = callText('run_loops<config>', [rows, ...functors.map(({ instance }) => instance)]);
  const source = unitText({
    about: aboutKernel(kernel, `${threads} threads`),
    includes: ['loop/loop.cuh'],
    config: { type: 'LoopConfig', fields: { rowsOfBlock, threads } },
    functors: functors.map(({ text }) => text),
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads, blocks }),
    body: `  await_previous();\n  ${call}`,
  });
  return emittedPlain(
    source,
    threads,
    { kind: 'tiles', extent: rows, per: rowsOfBlock, times: 1 },
    { lines: domains.length },
  );
}

/** A loop of one domain as a functor whose rows `warps` warps of another kernel share. */
export function rowsFunctor(kernel: LoopKernel, operands: CudaOperands, name: string, warps: number): Functor {
  const { side, lines } = domainText(kernel, operands, warps);
  const method = { head: 'TW_DEVICE void row(int row, int lane, int warp) const' };
  const columns = `const int columns = ${kernel.columns};`;
  return functorOf(
    operands,
    name,
    [{ ...method, lines: [columns, ...lines] }],
    [`static constexpr int side = ${side};`],
  );
}

/** The name of a domain's functor: `Loop` of a single one, otherwise after what it writes first. */
const loopName = ({ outputs }: LoopDomain, operands: CudaOperands, isAlone: boolean): string =>
  isAlone ? 'Loop' : `${pascalCase(operands.nameOf(operands.get(outputs[0]!.buffer)))}Loop`;

/** Combines the parts of a row's log-sum-exp, one warp per row. */
export function emitLogProbReduce(
  kernel: LogProbReduceKernel,
  operands: CudaOperands,
  { threads }: CudaLoopSchedule,
  symbol: string,
): EmittedCuda {
  const { vocab, parts, target, logProb, isArgmax, draw, totals } = kernel;
  const buffers = buffersText('ReduceBuffers', operands, {
    parts,
    target,
    logProb,
    isArgmax,
    token: draw?.token,
    tokenLogProb: draw?.logProb,
    ids: draw?.ids,
    ...totals,
  });
  const { extents } = operands;
  const source = unitText({
    about: aboutKernel(kernel, `${threads} threads`),
    includes: ['head/reduce.cuh'],
    config: {
      type: 'ReduceConfig',
      fields: {
        vocab,
        partsStride: operands.get(parts).stride,
        draws: draw !== undefined,
        keepsTotals: totals !== undefined,
        threads,
      },
    },
    functors: [],
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads }),
    body: `  await_previous();\n  reduce_head<config>(${kernel.rows}, ${buffers});`,
  });
  return emittedPlain(source, threads, { kind: 'tiles', extent: kernel.rows, per: threads / 32, times: 1 });
}

// What warps compute of a loop's rows: lanes of one, two or eight columns each, and what finishes the rows.

/** 32-bit words of operands that a wide lane has under way at once; a kernel then needs some 64 registers. */
const MAX_WORDS = 16;
/** The same where all of a row's are under way before what depends on the row, such as 1/rms: 80 registers suffice. */
const MAX_ROW_WORDS = 24;
/** The same where words stay in registers until the row is finished, so that memory gives them once. */
const MAX_KEPT_WORDS = 36;
/**
 * Threads of wide lanes that share a multiprocessor: enough loads are then under way to occupy its memory. Compilers
 * would keep what they have unpacked of eight columns, if registers were many. Fewer threads have room for more words.
 */
const RESIDENT = { few: 768, many: 512 } as const;

/** Lines of the loop over a block's rows, which find `row`, `lane`, `warp` and `columns`. */
export interface DomainText {
  readonly lines: readonly string[];
  /** Warps that share a row, columns that each takes at a time, and rows that a block's warps have at once. */
  readonly side: number;
  readonly step: number;
  readonly rowsAtOnce: number;
  readonly isWide: boolean;
  /** Threads that must have room on a multiprocessor; 0 if that does not matter. */
  readonly resident: number;
}

/** `finish`: programs over the same columns, once the outputs of a row are stored. */
export function domainText(
  { finish, ...domain }: LoopDomain & { readonly finish?: readonly Output[] },
  operands: CudaOperands,
  warps: number,
): DomainText {
  const stages = finish === undefined ? [domain] : [domain, { ...domain, outputs: finish }];
  const isWide = stages.every((stage) => hasWideLanes(stage, operands));
  return isWide ? wideText(stages, operands, warps) : narrowText(stages, operands, warps);
}

/** Whether lanes take eight columns each: a row has enough of them for all lanes of a warp. */
function hasWideLanes({ columns, headDim, outputs }: LoopDomain, operands: CudaOperands): boolean {
  if (typeof columns === 'string' || headDim !== undefined || columns < WARP_COLUMNS) return false;
  return outputs.every((output) => {
    if (output.kind === 'rowSum') return columns % ROW_SUM_BLOCK === 0;
    const operand = operands.get(output.buffer);
    return columns % COLUMNS_OF_LANE === 0 && operand.columns !== 1 && isWholeRow(operand);
  });
}

/**
 * How `warps` warps share rows of `columns` columns of which each takes `step` at a time. Rows that are finished, or
 * reduced to one number, belong to one warp, or to all, which then wait for each other.
 */
function sharing(columns: Dim, step: number, warps: number, isWhole: boolean) {
  const pieces = typeof columns === 'string' ? warps : Math.ceil(columns / step);
  const least = pieces === 1 ? 1 : warps;
  const side = isWhole ? least : (divisors(warps).find((count) => count >= pieces) ?? warps);
  return { step, side, rowsAtOnce: warps / side, turns: Math.ceil(pieces / side) };
}

const divisors = (n: number): number[] => Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);

/** Whether a warp, or a block, needs whole rows: another stage follows, or the largest of a row is found. */
const needsRows = (stages: readonly LoopDomain[], operands: CudaOperands): boolean =>
  stages.length > 1 || stages.some(({ outputs }) => outputs.some((output) => isRowMaxOf(output, operands)));

/** What lies between two stages of a row. */
const awaited = (side: number, { hasMet }: RowMaxima): string[] =>
  hasMet ? [] : [side === 1 ? '__syncwarp();' : '__syncthreads();'];

/**
 * Lanes of eight columns. Loads of several turns are under way at once, before what depends on the row if all are. Then
 * what finishes the row finds them in registers.
 */
function wideText(stages: readonly LoopDomain[], operands: CudaOperands, warps: number): DomainText {
  const isFinished = stages.length > 1;
  const { turns, ...shared } = sharing(stages[0]!.columns, WARP_COLUMNS, warps, needsRows(stages, operands));
  const maxima = stages.map(({ outputs }) => rowMaxima(outputs, operands, shared.side));
  const { given } = maxima[0]!;
  const loads = laneLoads(
    stages.flatMap(({ outputs }) => outputs),
    operands,
  );
  const words = loads.reduce((sum, { operand }) => sum + wordsOf(operand), 0);
  const most = isFinished ? MAX_KEPT_WORDS : MAX_ROW_WORDS;
  const isHeld = turns * words <= most;
  const passes = isHeld ? 1 : Math.ceil(turns / Math.max(1, Math.floor(MAX_WORDS / Math.max(1, words))));
  const atOnce = Math.ceil(turns / passes);
  const apart = shared.side * WARP_COLUMNS;
  const each = (lines: readonly string[]): string[] =>
    unrolled(`for (int i = 0; i < ${atOnce}; i++)`, [`const int first = turn + ${apart} * i + 8 * lane;`, ...lines]);
  const texts = stages.map(({ outputs }, i) =>
    lanePrograms({ outputs, loads, atOnce, ...(i > 0 ? { given } : {}) }, operands),
  );
  const own = new Set(stages[0]!.outputs.map(({ buffer }) => operands.get(buffer).name));
  const loadsOf = (which: (load: LaneLoad) => boolean): string[] => {
    const { declared, load } = laneWords(loads, atOnce, operands, which);
    return load.length === 0 ? [] : [...declared, ...each(block('if (first < columns)', load))];
  };
  const programs = texts.map(({ words: kept, program, store }) =>
    each(['const bool is_stored = first < columns;', ...kept, ...program, ...store]),
  );
  const begin = `warp % ${shared.side} * ${WARP_COLUMNS}`;
  const once = (): string[] => [
    `const int turn = ${begin};`,
    ...loadsOf(({ operand }) => !own.has(operand.name)),
    ...texts.flatMap(({ row }, i) => {
      const { begin: before, end } = maxima[i]!;
      return [
        ...(i > 0 ? [...awaited(shared.side, maxima[0]!), ...loadsOf(({ operand }) => own.has(operand.name))] : []),
        ...before,
        ...(isFinished ? block('', [...row, ...programs[i]!]) : [...row, ...programs[i]!]),
        ...end,
      ];
    }),
  ];
  const repeated = (): string[] =>
    texts.flatMap(({ row }, i) => {
      const reads = laneLoads(stages[i]!.outputs, operands);
      const isRead = ({ operand }: LaneLoad): boolean => reads.some((read) => read.operand.name === operand.name);
      const turn = `for (int turn = ${begin}; turn < columns; turn += ${apart * atOnce})`;
      const lines = [...row, ...block(turn, [...loadsOf(isRead), ...programs[i]!])];
      const { begin: before, end } = maxima[i]!;
      const text = [...before, ...(isFinished ? block('', lines) : lines), ...end];
      return i === 0 ? text : [...awaited(shared.side, maxima[0]!), ...text];
    });
  const resident = atOnce * words <= MAX_ROW_WORDS ? RESIDENT.few : RESIDENT.many;
  return { ...shared, isWide: true, resident, lines: isHeld ? once() : repeated() };
}

/** Lanes of one or two columns. */
function narrowText(stages: readonly LoopDomain[], operands: CudaOperands, warps: number): DomainText {
  const isFinished = stages.length > 1;
  const { columns, headDim } = stages[0]!;
  const isSummed = stages.some(({ outputs }) => outputs.some(({ kind }) => kind === 'rowSum'));
  // Partners of two adjacent columns are adjacent if half a head is even.
  const arePairs = headDim === undefined || headDim % 4 === 0;
  const lanes = !isSummed && typeof columns === 'number' && columns % 2 === 0 && arePairs ? 2 : 1;
  // A warp has whole rows alone.
  const isWhole = needsRows(stages, operands);
  const shared = sharing(columns, 32 * lanes, isWhole ? 1 : warps, isWhole);
  const maxima = stages.map(({ outputs }) => rowMaxima(outputs, operands, shared.side));
  const text = stages.flatMap((stage, i) => {
    const lines = narrowStage(stage, operands, lanes, shared.side, i > 0 ? maxima[0]!.given : undefined);
    const { begin, end } = maxima[i]!;
    return [...(i > 0 ? awaited(1, maxima[0]!) : []), ...begin, ...(isFinished ? block('', lines) : lines), ...end];
  });
  return { ...shared, rowsAtOnce: warps / shared.side, isWide: false, resident: 0, lines: text };
}

function narrowStage(
  { headDim, outputs }: LoopDomain,
  operands: CudaOperands,
  lanes: 1 | 2,
  side: number,
  given?: ReadonlyMap<string, string>,
): string[] {
  const row = new CudaRowScope(operands, 'row', 'r', given);
  const body = new LaneBody(
    row,
    outputs.map(({ value }) => value),
  );
  const plain: LaneSite = { id: 'x', column: 'column', lanes };
  const site = headDim === undefined ? plain : withRotation(plain, headDim);
  const values = outputs.map((output) => (output.kind === 'rowSum' ? programValues(output, body, site)[0]! : ''));
  const maxima = outputs.filter((output) => isRowMaxOf(output, operands));
  const sums = outputs.filter((output) => output.kind === 'rowSum').filter((output) => !maxima.includes(output));
  const stores = outputs.flatMap((output) =>
    output.kind === 'store' ? [storeLine(output, body, site) + (operands.markOf?.(output.value) ?? '')] : [],
  );
  const adds = outputs.flatMap((output, i) => {
    if (output.kind !== 'rowSum') return [];
    const place = maxima.indexOf(output);
    if (place < 0) return [`s${sums.indexOf(output)} = ${values[i]!};`];
    return [`${rowMaxName(place)} = max(${rowMaxName(place)}, ${values[i]!});`];
  });
  const closes = sums.flatMap(({ buffer, by }, i) => [
    `s${i} = ${by === 'max' ? 'block_max' : 'block_sum'}(s${i}, ${ROW_SUM_BLOCK});`,
    `if (lane % ${ROW_SUM_BLOCK} == 0 && column < columns) ` +
      `${row.rowPointer(operands.get(buffer), undefined)}[column / ${ROW_SUM_BLOCK}] = s${i};`,
  ]);
  const step = 32 * lanes;
  return [
    ...row.lines,
    ...block(`for (int turn = warp % ${side} * ${step}; turn < columns; turn += ${side * step})`, [
      `const int column = turn + lane * ${lanes};`,
      ...sums.map((_, i) => `float s${i} = 0.0f;`),
      ...block('if (column < columns)', [...body.lines, ...adds, ...stores]),
      ...closes,
    ]),
  ];
}

/** The site with rotateHalf. The partners of its columns are half a head away. */
function withRotation(site: LaneSite, headDim: number): LaneSite {
  const half = headDim / 2;
  const isFirst = `${site.column} % ${headDim} < ${half}`;
  const column = `(${isFirst} ? ${site.column} + ${half} : ${site.column} - ${half})`;
  return {
    ...site,
    rotate: { partner: () => withRotation({ ...site, id: `${site.id}p`, column }, headDim), isNegated: `(${isFirst})` },
  };
}

// The largest values of whole rows: each warp finds that of its columns, and the warps of a row then meet.

/** Statements around the loop over a row's columns. They find `row`, `lane` and `warp`. */
export interface RowMaxima {
  /** Before the loop: what holds the largest values so far. */
  readonly begin: readonly string[];
  /** Behind it: every lane has them, and memory too. */
  readonly end: readonly string[];
  /** Whether all threads of the block have waited for each other in `end`. */
  readonly hasMet: boolean;
  /** C expressions of the values by printScalar of the programs that read them. */
  readonly given: ReadonlyMap<string, string>;
}

/** `side`: warps that share a row, one or all of the block. */
export function rowMaxima(outputs: readonly Output[], operands: CudaOperands, side: number): RowMaxima {
  const maxima = outputs.filter((output) => isRowMaxOf(output, operands));
  const texts = maxima.map(({ buffer, value }, i) => {
    const most = rowMaxName(i);
    const operand = operands.get(buffer);
    const mark = operands.markOf?.(value) ?? '';
    const stored = `${operands.base(operand)}[(long long)row * ${operand.stride}] = ${most};${mark}`;
    const own = `${most} = block_max(${most}, 32);`;
    const begin = `float ${most} = -infinity();`;
    if (side === 1) return { begin: [begin], own: [own], all: [`if (lane == 0) ${stored}`] };
    // Rows take turns at two places, so that no warp writes what another still reads.
    const shared = `${most}of_warps[row & 1]`;
    return {
      begin: [`__shared__ float ${most}of_warps[2][${side}];`, begin],
      own: [own, `if (lane == 0) ${shared}[warp] = ${most};`],
      all: [
        `${most} = block_max(lane < ${side} ? ${shared}[lane] : -infinity(), 32);`,
        `if (threadIdx.x == 0) ${stored}`,
      ],
    };
  });
  const hasMet = side > 1 && maxima.length > 0;
  return {
    begin: texts.flatMap(({ begin }) => begin),
    end: [
      ...texts.flatMap(({ own }) => own),
      ...(hasMet ? ['__syncthreads();'] : []),
      ...texts.flatMap(({ all }) => all),
    ],
    hasMet,
    given: new Map(
      maxima.map(({ buffer }, i) => [printScalar({ op: 'rowSum', by: 'max', buffer }), rowMaxName(i)] as const),
    ),
  };
}
