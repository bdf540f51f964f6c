/** Default schedules for a target that has not been tuned: good, but not optimal. */
import { extentIn } from '../../ir/extents.js';
import type { Kernel, KernelModule, WeightDecl } from '../../ir/kernel.js';
import type { Bucket, CpuGemmSchedule, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { CPU_ISAS } from '../../ir/plan.js';
import { panelColumns } from '../../ir/packing.js';
import { QUAD_COLUMNS } from '../../ir/quads.js';
import { roundUp } from '../../ir/types.js';
import { evenBlocks } from './gemmItems.js';
import { VECTOR_ISAS } from './intrinsics.js';
import { leastCommonMultiple, physicalColumns } from './layout.js';
import type { CpuFacts } from './legality.js';
import { manyColumns } from './quadMany.js';
import { FEW_ROWS, QUAD_CHUNK } from './quadTile.js';
import { itemStep, weightNames, type Contraction } from './legality.js';

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
      if (first?.layout === 'quads') return quadContraction(kernel, quadIsa(facts, first, rows), facts, rows);
      const panel = first === undefined ? 16 : panelColumns(first);
      return (isa === 'amx' ? undefined : stream(kernel, isa, rows, panel)) ?? contraction(kernel, isa, facts, rows);
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
      return { kind: 'loop', isa: bestIsa(facts, (isa) => isa !== 'amx'), rows: 1 };
    case 'route':
    case 'loop':
    case 'logprobReduce':
      return { kind: 'loop', isa: bestIsa(facts, (isa) => isa !== 'amx'), rows: 16 };
    default:
      return kernel satisfies never;
  }
}

/** Tiles of AMX sum whole rows. Few rows are a stream, which vectors read as fast. */
const quadIsa = (facts: CpuFacts, { format }: WeightDecl, rows: number): CpuIsa =>
  bestIsa(facts, (isa) => isa !== 'amx' || (format === 'i8' && rows > FEW_ROWS));

/** Codes: one tile has all of few rows. More rows share the columns that a tile widens. */
function quadContraction(kernel: Contraction, isa: CpuIsa, facts: CpuFacts, rows: number): CpuGemmSchedule {
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
const columnsOf = (kernel: Contraction): number =>
  kernel.anchor === 'gemm'
    ? Math.max(...kernel.segments.map((s) => physicalColumns(s.columns, s.pairing)))
    : physicalColumns(kernel.vocab, { kind: 'none' });

function contraction(kernel: Contraction, isa: CpuIsa, facts: CpuFacts, rows: number): CpuGemmSchedule {
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
function stream(kernel: Contraction, isa: CpuIsa, rows: number, panel: number): CpuGemmSchedule | undefined {
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
