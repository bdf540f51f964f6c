/**
 * Decides which schedules are legal for a kernel: a pure function of the kernel, the schedule and facts about the
 * target.
 */
import { z } from 'zod';
import { extentIn } from '../../ir/extents.js';
import { CACHE_FORMATS } from '../../ir/function.js';
import {
  type AttentionKernel,
  type BufferDecl,
  type Kernel,
  type KernelModule,
  LOGPROB_BLOCK,
  type WeightDecl,
  type ContractionKernel,
} from '../../ir/kernel.js';
import { panelColumns } from '../../ir/packing.js';
import { type Bucket, CPU_ISAS, type CpuGemmSchedule, type CpuIsa, type CpuSchedule } from '../../ir/plan.js';
import { GROUP, MAX_WHOLE_ROW, QUAD_COLUMNS } from '../../ir/quads.js';
import { layoutProblem } from '../../ir/storage.js';
import { type BufferDType, roundUp } from '../../ir/types.js';
import { scheduleExtent as extent, type Scheduling } from '../scheduling.js';
import { KEY_STEP } from './attention.js';
import { VECTOR_ISAS } from './micro.js';
import { columnStep, leastCommonMultiple, physicalColumns } from './operands.js';
import { FEW_ROWS, manyColumns, QUAD_CHUNK } from './quadTiles.js';
import { evenBlocks } from './workItems.js';

/** What a CPU target provides. */
export interface CpuFacts {
  readonly isas: readonly CpuIsa[];
  /** Bytes of a core's L1 and L2 data caches. */
  readonly l1: number;
  readonly l2: number;
}

export const weightNames = (kernel: ContractionKernel): string[] =>
  kernel.anchor === 'gemm' ? kernel.segments.map((s) => s.weight) : [kernel.weight];

/** The number of columns of a work item of `kernel` must be a multiple of this. */
export function itemStep(kernel: ContractionKernel): number[] {
  return kernel.anchor === 'gemm' ? kernel.segments.map(columnStep) : [LOGPROB_BLOCK];
}

const isCount = (value: number, step = 1): boolean => Number.isSafeInteger(value) && value > 0 && value % step === 0;

/**
 * Bounds on the rows and columns of a work item and on the bytes of its tile. They limit how much memory a plan can
 * make a worker allocate.
 */
const MAX_ITEM = 16384;
const MAX_TILE_BYTES = 64 << 20;

/** Rows of the highest register tile of codes, by instruction set: of few rows, and of many. */
const QUAD_ROWS: Readonly<Record<CpuIsa, number>> = { portable: 4, avx2: 6, avx512: 14, amx: 32 };

function quadProblem(
  kernel: ContractionKernel,
  a: BufferDecl,
  weights: readonly WeightDecl[],
  s: CpuGemmSchedule,
): true | string {
  if (weights.some(({ layout }) => layout !== 'quads')) return 'the weights of one kernel differ in layout';
  if (a.dtype !== 'f32' && a.dtype !== 'bf16') return `codes are made of f32 or bf16, ${a.name} is ${a.dtype}`;
  const isAmx = s.isa === 'amx';
  const isWhole = weights.some(({ format }) => format === 'i8');
  if (isWhole && weights.some(({ format }) => format !== 'i8')) return 'scales are of rows or of groups, not both';
  if (isAmx && !isWhole) return 'amx has no scales for groups';
  if (kernel.rounding?.columns !== (isWhole ? kernel.k : GROUP)) return 'rows are rounded as weights are';
  if (isWhole && kernel.k > MAX_WHOLE_ROW) return `sums of ${kernel.k} products do not fit 32 bits`;
  if (!isCount(s.mr) || !isCount(s.mb, s.mr) || s.mb > MAX_ITEM)
    return `mb must be a multiple of mr, at most ${MAX_ITEM}`;
  if (s.kc !== QUAD_CHUNK) return `codes are widened ${QUAD_CHUNK} at a time`;
  if (!isCount(s.nb, 32) || s.nb > MAX_ITEM) return `nb must be a multiple of 32, at most ${MAX_ITEM}`;
  if (s.mb * (s.nb + 16) * 4 > MAX_TILE_BYTES) return 'the tile of a work item is too large';
  for (const step of itemStep(kernel))
    if (s.nb % step !== 0) return `nb must be a multiple of ${step}: whole heads, pairs and blocks of 32`;
  if (isAmx && s.mr !== 16 && s.mr !== 32) return 'amx tiles are 16 or 32 rows by 32 columns';
  const isFew = s.mb <= FEW_ROWS;
  const nr = isFew ? QUAD_COLUMNS : manyColumns(s.isa);
  const most = isFew ? FEW_ROWS : QUAD_ROWS[s.isa];
  return s.nr === nr && s.mr <= most ? true : `tiles of codes on ${s.isa} are up to ${most} rows by ${nr} columns`;
}

function contractionProblem(kernel: ContractionKernel, module: KernelModule, s: CpuGemmSchedule): true | string {
  const a = module.buffers.find((buffer) => buffer.name === kernel.a);
  if (a === undefined) return `the left operand ${kernel.a} is not declared`;
  const weights: WeightDecl[] = [];
  for (const name of weightNames(kernel)) {
    const weight = module.weights.find((w) => w.name === name);
    if (weight === undefined) return `the weight ${name} is not declared`;
    weights.push(weight);
  }
  if (weights.some(({ layout }) => layout === 'quads')) return quadProblem(kernel, a, weights, s);
  const isAmx = s.isa === 'amx';
  if (isAmx && kernel.anchor === 'gemm' && kernel.heads !== undefined) return 'amx takes no heads one by one';
  for (const weight of weights) {
    if (isAmx !== (weight.layout === 'vnni'))
      return `${s.isa} cannot read weight ${weight.name} in layout ${weight.layout}`;
    if (!isAmx && weight.layout !== 'panels')
      return `${s.isa} cannot read weight ${weight.name} in layout ${weight.layout}`;
    if (weight.format !== weights[0]!.format) return 'the weights of one kernel differ in format';
    const problem = layoutProblem(weight.layout, weight.format);
    if (problem !== undefined) return `${s.isa} cannot read weight ${weight.name}: ${problem}`;
  }
  const wanted = isAmx ? 'bf16' : 'f32';
  if (a.dtype !== wanted) return `${s.isa} wants its left operand in ${wanted}, ${a.name} is ${a.dtype}`;
  if (!isCount(s.mr) || !isCount(s.nr, 16) || !isCount(s.kc, 32))
    return 'mr, nr (a multiple of 16) and kc (a multiple of 32) must be positive';
  if (!isCount(s.mb, s.mr) || s.mb > MAX_ITEM) return `mb must be a multiple of mr, at most ${MAX_ITEM}`;
  if (!isCount(s.nb, 32) || s.nb > MAX_ITEM) return `nb must be a multiple of 32, at most ${MAX_ITEM}`;
  if (s.mb * (s.nb + 16) * 4 > MAX_TILE_BYTES) return 'the tile of a work item is too large';
  for (const step of itemStep(kernel))
    if (s.nb % step !== 0) return `nb must be a multiple of ${step}: whole heads, pairs and blocks of 32`;
  if (isAmx) return (s.mr === 32 || s.mr === 16) && s.nr === 32 ? true : 'amx tiles are 16 or 32 rows by 32 columns';
  const { lanes, registers } = VECTOR_ISAS[s.isa];
  if (s.mr > 32) return 'mr is at most 32';
  const columns = s.nr / lanes;
  if (s.mr * columns + columns + 1 > registers)
    return `${s.mr}×${s.nr} accumulators do not fit the ${registers} registers of ${s.isa}`;
  return true;
}

/** Why a kernel cannot read its keys and values: those without scales have the type of queries. */
function keysProblem({ q, k, v, scales }: AttentionKernel, { buffers }: KernelModule): string | undefined {
  const dtypeOf = (name: string): BufferDType | undefined => buffers.find((b) => b.name === name)?.dtype;
  const stored = dtypeOf(scales === undefined ? q : k);
  const isKnown = scales === undefined ? stored !== undefined : CACHE_FORMATS.some((format) => format === stored);
  if (isKnown && [k, v].every((name) => dtypeOf(name) === stored)) return undefined;
  return scales === undefined ? 'queries, keys and values must have one dtype' : 'keys and values must be codes';
}

/** `true`, or the reason why `schedule` cannot be used for `kernel` on a target with these facts. */
export function isLegal(kernel: Kernel, module: KernelModule, schedule: CpuSchedule, facts: CpuFacts): true | string {
  if (!facts.isas.includes(schedule.isa)) return `the target has no ${schedule.isa}`;
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob':
      return schedule.kind === 'gemm'
        ? contractionProblem(kernel, module, schedule)
        : `a ${kernel.anchor} kernel has a gemm schedule, not ${schedule.kind}`;
    case 'attention':
      if (schedule.kind !== 'attention') return `an attention kernel has an attention schedule, not ${schedule.kind}`;
      if (!isCount(schedule.queries, 16) || schedule.queries > 256)
        return 'queries must be a multiple of 16, at most 256';
      if (!isCount(schedule.keys, KEY_STEP) || schedule.keys > MAX_ITEM)
        return `keys must be a multiple of ${KEY_STEP}, at most ${MAX_ITEM}`;
      return keysProblem(kernel, module) ?? true;
    case 'loop':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
    case 'shrink':
    case 'links':
    case 'scan':
      if (schedule.kind !== 'loop') return `a ${kernel.anchor} kernel has a loop schedule, not ${schedule.kind}`;
      return isCount(schedule.rows) ? true : 'rows must be positive';
    default:
      return kernel satisfies never;
  }
}

// Default schedules for a target that has not been tuned: good, but not optimal.

const REGISTER_TILES: Readonly<Record<CpuIsa, { mr: number; nr: number }>> = {
  portable: { mr: 4, nr: 16 },
  avx2: { mr: 6, nr: 16 },
  avx512: { mr: 14, nr: 32 },
  amx: { mr: 32, nr: 32 },
};

/** The strongest instruction set of the target that can read the kernel's weights. */
function bestIsa(facts: CpuFacts, accept: (isa: CpuIsa) => boolean): CpuIsa {
  return [...CPU_ISAS].reverse().find((isa) => facts.isas.includes(isa) && accept(isa)) ?? 'portable';
}

/** A legal schedule of `kernel` for micro-batches of `bucket`. */
export function defaultSchedule(kernel: Kernel, module: KernelModule, facts: CpuFacts, bucket: Bucket): CpuSchedule {
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob': {
      const first = module.weights.find((weight) => weight.name === weightNames(kernel)[0]);
      const isVnni = first?.layout === 'vnni';
      const isa = bestIsa(facts, (candidate) => (candidate === 'amx') === isVnni);
      const rows = extentIn(kernel.rows, bucket.extents);
      if (first?.layout === 'quads') return defaultQuads(kernel, quadIsa(facts, first, rows), facts, rows);
      const panel = first === undefined ? 16 : panelColumns(first);
      return (
        (isa === 'amx' ? undefined : stream(kernel, isa, rows, panel)) ?? defaultContraction(kernel, isa, facts, rows)
      );
    }
    case 'attention':
      return {
        kind: 'attention',
        isa: bestIsa(facts, (isa) => isa !== 'amx'),
        // The heads that share keys fill 16 lanes for a single query; more lanes would be empty.
        queries:
          extentIn(kernel.rows, bucket.extents) <= (kernel.mask.kind === 'path' ? FEW_PATHS : STREAM_ROWS) ? 16 : 128,
        keys: 512,
      };
    case 'sample':
    case 'sortByExpert':
    case 'links':
    case 'scan':
      return { kind: 'loop', isa: bestIsa(facts, (isa) => isa !== 'amx'), rows: 1 };
    case 'route':
    case 'loop':
    case 'logprobReduce':
    case 'shrink':
      return { kind: 'loop', isa: bestIsa(facts, (isa) => isa !== 'amx'), rows: 16 };
    default:
      return kernel satisfies never;
  }
}

/** Tiles of AMX sum whole rows. Few rows are a stream, which vectors read as fast. */
const quadIsa = (facts: CpuFacts, { format }: WeightDecl, rows: number): CpuIsa =>
  bestIsa(facts, (isa) => isa !== 'amx' || (format === 'i8' && rows > FEW_ROWS));

/** Codes: one tile has all of few rows. More rows share the columns that a tile widens. */
function defaultQuads(kernel: ContractionKernel, isa: CpuIsa, facts: CpuFacts, rows: number): CpuGemmSchedule {
  const step = itemStep(kernel).reduce(leastCommonMultiple, 32);
  const shape = { kind: 'gemm', isa, kc: QUAD_CHUNK } as const;
  if (rows <= FEW_ROWS) {
    const mr = Math.max(1, rows);
    return { ...shape, mr, nr: QUAD_COLUMNS, mb: mr, nb: step };
  }
  const mr = isa === 'avx512' ? tileRows(rows) : REGISTER_TILES[isa].mr;
  const columns = columnsOf(kernel);
  let nb = roundUp(Math.max(step, Math.min(256, columns)), step);
  // A quarter of the L2 cache for the tile, a half for the rows' codes of one pass.
  const most = Math.min(facts.l2 / 4 / (nb * 4), 256);
  let mb = Math.max(2 * mr, Math.min(roundUp(rows, mr), Math.floor(most / mr) * mr));
  const items = (): number => Math.ceil(rows / mb) * Math.ceil(columns / nb);
  while (items() < ENOUGH_ITEMS && nb / 2 >= Math.max(step, 64) && (nb / 2) % step === 0) nb /= 2;
  while (items() < ENOUGH_ITEMS && mb >= 6 * mr) mb = roundUp(mb / 2, mr);
  return { ...shape, mr, nr: manyColumns(isa), mb, nb };
}

/** Columns of the widest segment, in memory. */
const columnsOf = (kernel: ContractionKernel): number =>
  kernel.anchor === 'gemm' && kernel.heads !== undefined
    ? kernel.heads * physicalColumns(kernel.segments[0]!.columns / kernel.heads, { kind: 'none' })
    : kernel.anchor === 'gemm'
      ? Math.max(...kernel.segments.map((s) => physicalColumns(s.columns, s.pairing)))
      : physicalColumns(kernel.vocab, { kind: 'none' });

function defaultContraction(kernel: ContractionKernel, isa: CpuIsa, facts: CpuFacts, rows: number): CpuGemmSchedule {
  const { nr } = REGISTER_TILES[isa];
  const mr = isa === 'avx512' ? tileRows(rows) : REGISTER_TILES[isa].mr;
  const step = itemStep(kernel).reduce(leastCommonMultiple, 32);
  const weightBytes = isa === 'amx' ? 2 : 4;
  const kc = isa === 'amx' ? evenBlocks(kernel.k, 512, 32) : Math.min(roundUp(kernel.k, 32), 256);
  const columns = columnsOf(kernel);
  // Half of the L2 cache for the weights of one pass, a quarter for the tile.
  let nb = roundUp(Math.max(step, Math.min(256, columns, Math.floor(facts.l2 / 2 / (kc * weightBytes)))), step);
  // Tiles of AMX read the rows of a pass once for every 32 columns: a quarter for those of two passes as well.
  const most = facts.l2 / 4 / Math.max(nb * 4, isa === 'amx' ? kc * 4 : 0);
  let mb = Math.max(mr, Math.min(roundUp(Math.max(rows, 1), mr), Math.floor(most / mr) * mr));
  // Enough work items that all threads finish at about the same time: first narrower, then lower, then narrower again.
  const items = (): number => Math.ceil(rows / mb) * Math.ceil(columns / nb);
  const narrow = (least: number): void => {
    while (items() < ENOUGH_ITEMS && nb / 2 >= Math.max(step, least) && (nb / 2) % step === 0) nb /= 2;
  };
  narrow(128);
  while (items() < ENOUGH_ITEMS && mb >= 6 * mr) mb = roundUp(mb / 2, mr);
  narrow(64);
  return { kind: 'gemm', isa, mr, nr, kc, mb, nb };
}

/** Rows up to which a call is a stream of weights: more keep the arithmetic units busy for longer than the memory. */
const STREAM_ROWS = 8;

/** Tokens of a call up to which most of them continue a path each, as decoding does: tiles of 16 were 1.4× as fast. */
const FEW_PATHS = 32;

/**
 * Weights are read from memory once and in order, panel by panel. One register tile has all rows and a whole panel if
 * the registers hold it; otherwise two have half of the rows each, or the columns of half a panel, and read a block of
 * a panel again from the cache.
 */
function stream(kernel: ContractionKernel, isa: CpuIsa, rows: number, panel: number): CpuGemmSchedule | undefined {
  if (rows > STREAM_ROWS) return undefined;
  const { lanes, registers } = VECTOR_ISAS[isa];
  const nb = itemStep(kernel).reduce(leastCommonMultiple, 32);
  for (const tiles of [1, 2]) {
    const mr = Math.ceil(rows / tiles);
    for (const nr of new Set([panel, 16])) {
      const columns = nr / lanes;
      const kc = tiles === 1 && nr === panel ? roundUp(kernel.k, 32) : REREAD_DEPTH;
      if (mr * columns + columns + 1 <= registers) return { kind: 'gemm', isa, mr, nr, kc, mb: mr * tiles, nb };
    }
  }
  return undefined;
}

/** Steps of k of a panel that stay in the first-level cache: 16 KiB. */
const REREAD_DEPTH = 256;

const ENOUGH_ITEMS = 12;

/**
 * Rows of an AVX-512 tile: the height up to 14 that wastes the fewest rows of the last tile. With many rows the waste
 * is small.
 */
function tileRows(rows: number): number {
  return rows >= 128 ? 14 : [14, 12, 10, 8].reduce((best, mr) => (roundUp(rows, mr) < roundUp(rows, best) ? mr : best));
}

// Schedules of the CPU target: their encoding, and which ones are legal for a kernel.

const isa = z.enum(CPU_ISAS);

export const cpuScheduling: Scheduling<CpuSchedule, CpuFacts> = {
  schema: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('gemm'), isa, mr: extent, nr: extent, kc: extent, mb: extent, nb: extent }),
    z.strictObject({ kind: z.literal('attention'), isa, queries: extent, keys: extent }),
    z.strictObject({ kind: z.literal('loop'), isa, rows: extent }),
  ]),
  key: (s) => {
    switch (s.kind) {
      case 'gemm':
        return `${s.isa} ${s.mr}×${s.nr} kc${s.kc} ${s.mb}×${s.nb}`;
      case 'attention':
        return `${s.isa} q${s.queries} k${s.keys}`;
      case 'loop':
        return `${s.isa} r${s.rows}`;
      default:
        return s satisfies never;
    }
  },
  describe: (s) => {
    switch (s.kind) {
      case 'gemm':
        return `${s.isa}, tile ${s.mr}×${s.nr}, k ${s.kc}, item ${s.mb}×${s.nb}`;
      case 'attention':
        return `${s.isa}, ${s.queries} queries × ${s.keys} keys`;
      case 'loop':
        return `${s.isa}, ${s.rows} rows`;
      default:
        return s satisfies never;
    }
  },
  default: defaultSchedule,
  legality: isLegal,
};
