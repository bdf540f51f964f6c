/**
 * Roofline estimates of a kernel under a schedule, to rank candidates before measuring. The model knows register tiles,
 * remainders, cache levels and how work items spread over threads. Its ranking is useful; its absolute times are rough.
 */
import { VECTOR_ISAS } from '../../codegen/cpu/micro.js';
import { physicalColumns } from '../../codegen/operands.js';
import { keyDimOf, valueDimOf } from '../../ir/attentionDims.js';
import {
  type AttentionKernel,
  type ContractionKernel,
  type Kernel,
  type KernelModule,
  type Segment,
} from '../../ir/kernel.js';
import type { CpuAttentionSchedule, CpuGemmSchedule, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { tokensIn } from '../../ir/scoring.js';
import { DTYPE_BYTES, roundUp } from '../../ir/types.js';
import type { Addon } from '../../runtime/addon.js';
import type { NativePool } from '../../runtime/native.js';
import type { Rates } from '../peaks.js';
import { depthOf, kernelWork, pathShape, rowsOf, scalarCost, type KernelWork, type WorkSize } from '../work.js';
import { weightBytes } from './candidates.js';

/** The machine's measured rates and its cache sizes. */
export interface CpuMachine {
  readonly threads: number;
  /** Floating-point operations per second of the contractions' micro-kernel, all threads. */
  readonly flopsPerSecond: number;
  /** Bytes per second from memory, all threads. */
  readonly bytesPerSecond: number;
  /** Clock frequency of a core. */
  readonly cyclesPerSecond: number;
  /** Data cache sizes in bytes: L1 of a core, L2 of a core, shared L3. */
  readonly l1: number;
  readonly l2: number;
  readonly l3: number;
}

/** Floating-point operations per core and cycle: two FMA units; AMX makes one 16×16×32 product in 16 cycles. */
const FLOPS_PER_CYCLE: Readonly<Record<CpuIsa, number>> = { portable: 8, avx2: 32, avx512: 64, amx: 1024 };

/** A model from peak rates (the runtime's `peak`). The clock is derived from the rate of `isa`. */
export function cpuMachine(
  facts: { readonly l1: number; readonly l2: number; readonly l3?: number },
  rates: {
    readonly isa: CpuIsa;
    readonly threads: number;
    readonly flopsPerSecond: number;
    readonly bytesPerSecond: number;
  },
): CpuMachine {
  const cycles = rates.flopsPerSecond / rates.threads / FLOPS_PER_CYCLE[rates.isa];
  return {
    threads: rates.threads,
    flopsPerSecond: rates.flopsPerSecond,
    bytesPerSecond: rates.bytesPerSecond,
    cyclesPerSecond: Math.min(6e9, Math.max(5e8, cycles)),
    l1: facts.l1,
    l2: facts.l2,
    l3: facts.l3 ?? 4 * facts.l2,
  };
}

/** Sustained bytes per cycle from a core's L2. */
const L2_BYTES = 32;
const L3_BYTES = 8;
/** Loads and products overlap imperfectly: this share of the hidden time is exposed. */
const EXPOSED = 0.15;
/** Seconds to take a work item and touch its first cache lines. */
const ITEM_SECONDS = 3e-7;
/** Seconds to wake the workers and pass the barrier at the end. */
const LAUNCH_SECONDS = 4e-6;

/** The largest value plus the exposed share of the others. */
const overlap = (...cycles: readonly number[]): number => {
  const top = Math.max(...cycles);
  return top + EXPOSED * (cycles.reduce((sum, c) => sum + c, 0) - top);
};

/** Cycles of one k step of a register tile: bound by products, loads or the accumulators' dependency chain. */
export function tileCycles(isa: CpuIsa, mr: number, nr: number): number {
  if (isa === 'amx') {
    // One step covers 32 of k. Cycles: 16 per product, 8 per tile load, 52 between dependent products.
    const rows = Math.ceil(mr / 16),
      columns = Math.ceil(nr / 16);
    return Math.max(16 * rows * columns, 8 * (rows + columns), 52) / 32;
  }
  const { lanes } = VECTOR_ISAS[isa];
  // A `portable` vector takes several registers: four lanes each on most machines.
  const width = isa === 'portable' ? 4 : lanes;
  const vectors = nr / width;
  return Math.max((mr * vectors) / 2, (mr + vectors) / 2, 4);
}

/** Cycles of one k step over `rows` rows in register tiles of mr rows; the last tile may be shorter. */
function rowCycles(isa: CpuIsa, mr: number, nr: number, rows: number): number {
  const whole = Math.floor(rows / mr);
  const rest = rows - whole * mr;
  const tail = rest === 0 ? 0 : isa === 'amx' ? (rest <= 16 ? 16 : 32) : mr % 2 === 0 ? roundUp(rest, 2) : rest;
  return whole * tileCycles(isa, mr, nr) + (tail === 0 ? 0 : tileCycles(isa, tail, nr));
}

/** Columns as they lie in the packed weight, and the epilogue's scalar operations for one row of them. */
interface PackedColumns {
  readonly physical: number;
  readonly perRow: number;
}

const columnsOf = (segment: Segment): PackedColumns => ({
  physical: physicalColumns(segment.columns, segment.pairing),
  perRow: segment.columns * segment.outputs.reduce((sum, o) => sum + 1 + scalarCost(o.value), 0),
});

function gemmSeconds(
  kernel: ContractionKernel,
  module: KernelModule,
  s: CpuGemmSchedule,
  rows: number,
  machine: CpuMachine,
): number {
  const segments: readonly PackedColumns[] =
    kernel.anchor === 'gemm'
      ? kernel.segments.map(columnsOf)
      : [{ physical: physicalColumns(kernel.vocab, { kind: 'none' }), perRow: 16 * kernel.vocab }];
  const aBytes = DTYPE_BYTES[module.buffers.find((b) => b.name === kernel.a)?.dtype ?? 'f32'];
  const bBytes = weightBytes(kernel, module);
  const { k } = kernel;
  const kc = Math.min(s.kc, k);
  const passes = Math.ceil(k / kc);
  // Blocks of equal height, as in the generated driver.
  const height = roundUp(Math.ceil(rows / Math.ceil(rows / s.mb)), s.mr);
  const down = Math.ceil(rows / height);
  const items = segments.reduce((sum, { physical }) => sum + down * Math.ceil(physical / s.nb), 0);
  let cycles = 0;
  for (let i = 0; i < down; i++) {
    const mn = Math.min(height, rows - i * height);
    for (const { physical, perRow } of segments) {
      const across = Math.ceil(physical / s.nb);
      const nb = physical / across;
      // Columns are covered in whole register tiles. Narrower tiles, each at its own rate, cover the remainder.
      const wholeTiles = Math.floor(nb / s.nr),
        restColumns = nb - wholeTiles * s.nr;
      const steps =
        wholeTiles * rowCycles(s.isa, s.mr, s.nr, mn) +
        (restColumns > 0 ? rowCycles(s.isa, s.mr, Math.max(16, roundUp(restColumns, 16)), mn) : 0);
      const compute = k * steps;
      const tilesDown = Math.ceil(mn / s.mr);
      const block = nb * kc * bBytes,
        tile = mn * nb * 4;
      // Only the active strip of activations and accumulators competes with the block for the cache.
      const fitsL2 = block + s.mr * (kc * aBytes + nb * 4) <= 0.7 * machine.l2;
      // Weights are read again for each register tile of rows, from the cache that holds a block of them.
      const weights = tilesDown * nb * k * bBytes;
      const weightCycles = block <= machine.l1 / 2 ? 0 : fitsL2 ? weights / L2_BYTES : weights / L3_BYTES;
      // A strip of mr rows of activations stays in L1, if it fits, while its columns are computed.
      const strip = s.mr * kc * aBytes;
      const again = strip <= machine.l1 / 2 ? 0 : Math.max(0, nb / s.nr - 1);
      const activationCycles = mn * k * aBytes * (1 / L3_BYTES + again / L2_BYTES);
      // Accumulators are stored and reloaded once per pass, and read once more by the epilogue.
      const accumulator = 4 * mn * nb * 2 * passes;
      const accumulatorCycles = accumulator / (tile <= 0.5 * machine.l2 ? L2_BYTES : L3_BYTES);
      const epilogue = (mn * perRow) / across / 16;
      const firstTouch = (nb * k * bBytes) / L3_BYTES;
      cycles += across * (overlap(compute, weightCycles + firstTouch, activationCycles, accumulatorCycles) + epilogue);
    }
  }
  const rounds = Math.ceil(items / machine.threads);
  return rounds * (cycles / items / machine.cyclesPerSecond + ITEM_SECONDS);
}

/**
 * Keys of a tile of queries: the ancestors of its first token, and every token up to its last; or the keys of each of
 * its paths.
 */
function keysOfTile(kernel: AttentionKernel, queries: number, size: WorkSize, spread: number): number {
  const tokens = tokensIn(size);
  switch (kernel.mask.kind) {
    case 'bias':
      return tokens;
    case 'column':
      return Math.min(tokens, depthOf(kernel, size) + queries * spread);
    case 'path':
      return Math.ceil(Math.min(queries, rowsOf(kernel, size)) / pathShape(size).fresh) * depthOf(kernel, size);
    default:
      return kernel.mask satisfies never;
  }
}

function attentionSeconds(
  kernel: AttentionKernel,
  s: CpuAttentionSchedule,
  size: WorkSize,
  machine: CpuMachine,
): number {
  const rows = rowsOf(kernel, size);
  const tokens = tokensIn(size);
  const spread = kernel.queryRow === undefined ? 1 : Math.max(1, tokens / Math.max(1, rows));
  const tiles = Math.ceil(rows / s.queries);
  const group = kernel.heads / kernel.kvHeads;
  const keys = keysOfTile(kernel, s.queries, size, spread);
  const width = (roundUp(keyDimOf(kernel), 16) + roundUp(valueDimOf(kernel), 16)) / 2;
  const product = (keys * s.queries * width) / 16 / 1.6;
  const scores = keys * s.queries * 4;
  const softmax = ((keys * s.queries) / 16) * 14;
  const spill = scores <= 0.5 * machine.l2 ? (3 * scores) / L2_BYTES : (3 * scores) / L3_BYTES;
  const isWhole = keys <= s.keys;
  const fetches = isWhole ? 1 : 2 * group;
  const blockBytes = 2 * Math.min(keys, s.keys) * width * 4;
  // Keys and values are read again for each register tile of queries.
  const reread =
    ((s.queries / 16) * keys * width * 4) /
    (blockBytes <= machine.l1 / 2 ? 2 * L2_BYTES : blockBytes <= 0.5 * machine.l2 ? L2_BYTES : L3_BYTES);
  const perHead = overlap(2 * product, reread) + softmax + spill + (s.queries * width) / 4;
  const item = group * perHead + ((fetches * keys * width * 2) / 16) * 3 + keys * 3;
  const rounds = Math.ceil((tiles * kernel.kvHeads) / machine.threads);
  return rounds * (item / machine.cyclesPerSecond + ITEM_SECONDS);
}

/**
 * Estimated seconds of one launch as a function of its schedule. The estimate is at least the compulsory traffic
 * divided by memory bandwidth. It does not decrease when the extents of the micro-batch grow by whole tiles, and does
 * not increase with faster rates. The function throws if kernel and schedule are of different kinds.
 */
export function cpuCost(
  kernel: Kernel,
  module: KernelModule,
  size: WorkSize,
  machine: CpuMachine,
): (schedule: CpuSchedule) => number {
  const rows = rowsOf(kernel, size);
  const work = kernelWork(kernel, module, size);
  const memory = work.bytes / machine.bytesPerSecond;
  const arithmetic = (schedule: CpuSchedule): number => {
    if (kernel.anchor === 'gemm' || kernel.anchor === 'logprob') {
      if (schedule.kind === 'gemm') return gemmSeconds(kernel, module, schedule, rows, machine);
    } else if (kernel.anchor === 'attention') {
      if (schedule.kind === 'attention') return attentionSeconds(kernel, schedule, size, machine);
    } else if (schedule.kind === 'loop') {
      const rounds = Math.ceil(Math.ceil(rows / schedule.rows) / machine.threads);
      const perItem = ((work.scalarOps / rows) * Math.min(schedule.rows, rows)) / 16 / machine.cyclesPerSecond;
      return rounds * (perItem + ITEM_SECONDS);
    }
    throw new Error(`Kernel ${kernel.name} is of kind ${kernel.anchor}, but its schedule is for ${schedule.kind}.`);
  };
  return (schedule) => LAUNCH_SECONDS + (rows === 0 ? 0 : overlap(arithmetic(schedule), memory));
}

/** cpuCost of one schedule. */
export const estimateSeconds = (
  kernel: Kernel,
  module: KernelModule,
  schedule: CpuSchedule,
  size: WorkSize,
  machine: CpuMachine,
): number => cpuCost(kernel, module, size, machine)(schedule);

/**
 * Share of the machine's peak at `seconds`: of peak arithmetic for contractions, of memory bandwidth for other kernels.
 */
export const cpuShareOfPeak = ({ flops, bytes }: KernelWork, machine: CpuMachine, seconds: number): number =>
  (flops > 0 ? flops / machine.flopsPerSecond : bytes / machine.bytesPerSecond) / seconds;

/**
 * All threads of `pool` together: floating-point operations of `isa` and bytes read from memory, per second. The best
 * of several tries each, because other programs and clocks that have not risen yet only make a try slower. On a machine
 * so busy that tries take long, only one is made.
 */
export async function measurePeaks(
  addon: Pick<Addon, 'peak'>,
  pool: NativePool,
  isa: CpuIsa,
  { seconds = 0.1, tries = 3 }: { readonly seconds?: number; readonly tries?: number } = {},
): Promise<Rates> {
  const best = async (kind: Parameters<Addon['peak']>[1]): Promise<number> => {
    let rate = 0;
    const begin = performance.now();
    for (let i = 0; i < tries && performance.now() - begin < 2000 * tries * seconds; i++)
      rate = Math.max(rate, await addon.peak(pool, kind, seconds));
    return rate;
  };
  return { flopsPerSecond: await best(isa), bytesPerSecond: await best('read') };
}
