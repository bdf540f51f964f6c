/**
 * Roofline estimates of a CUDA kernel under a schedule, in whole waves of blocks on the device's multiprocessors. They
 * rank candidates before measuring. The ranking is useful; absolute times are rough.
 */
import { tileOf } from '../../codegen/cuda/attention/tile.js';
import { segmentsOf } from '../../codegen/cuda/text/contraction.js';
import { CONSUMER_WARPS, idleWarps } from '../../codegen/cuda/wgmma/instruction.js';
import { columnTiles, waveCount } from '../../codegen/cuda/wgmma/layout.js';
import type {
  CudaArch,
  CudaAttentionSchedule,
  CudaGemmSchedule,
  CudaGemmSkeleton,
  CudaSchedule,
} from '../../ir/cuda.js';
import { keyDimOf, valueDimOf } from '../../ir/attentionDims.js';
import {
  type AttentionKernel,
  type GemmKernel,
  type Kernel,
  type KernelModule,
  type LogProbKernel,
} from '../../ir/kernel.js';
import { tokensIn } from '../../ir/scoring.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaEvent, CudaMemory } from '../../runtime/cuda/native.js';
import { type Rates, rooflineSeconds } from '../peaks.js';
import { median } from '../records.js';
import { depthOf, kernelWork, type KernelWork, pathShape, rowsOf, scalarCost, type WorkSize } from '../work.js';

export interface CudaMachine {
  readonly multiprocessors: number;
  /** Nominal rate of the tensor cores on 16-bit numbers. */
  readonly flopsPerSecond: number;
  /** Measured rate from device memory. */
  readonly bytesPerSecond: number;
  readonly sharedBytesPerMultiprocessor: number;
}

/** Floating-point operations per cycle of a multiprocessor's tensor cores, dense 16-bit. */
const TENSOR_FLOPS: Readonly<Record<CudaArch, number>> = { sm_80: 2048, sm_90a: 4096 };

/** `clockKHz`: the device's highest clock, which it does not sustain through long contractions. */
export const cudaMachine = (
  arch: CudaArch,
  device: {
    readonly multiprocessors: number;
    readonly clockKHz: number;
    readonly sharedBytesPerMultiprocessor: number;
  },
  bytesPerSecond: number,
): CudaMachine => ({
  multiprocessors: device.multiprocessors,
  flopsPerSecond: TENSOR_FLOPS[arch] * device.multiprocessors * Math.max(1, device.clockKHz) * 1000,
  bytesPerSecond,
  sharedBytesPerMultiprocessor: device.sharedBytesPerMultiprocessor,
});

/** A chip of these facts and rates. Shared memory of a multiprocessor is a little more than a block's. */
export const typicalMachine = (
  { multiprocessors, sharedBytesPerBlock }: { readonly multiprocessors: number; readonly sharedBytesPerBlock: number },
  rates: Rates,
): CudaMachine => ({ multiprocessors, sharedBytesPerMultiprocessor: sharedBytesPerBlock + 1024, ...rates });

/** Share of the nominal rate that a skeleton's inner loop reaches (docs/performance.md). */
const REACH: Readonly<Record<CudaGemmSkeleton, number>> = {
  wgmma: 0.78,
  mma: 0.5,
  skinny: 0.5,
  skinnyWgmma: 0.5,
  grouped: 0.4,
  micro: 0.5,
  simt: 0.03,
};
/**
 * L2 bandwidth as a multiple of memory bandwidth. Tiles of 128×256 without multicast were read at 2.3 times the memory
 * rate.
 */
const L2_OVER_MEMORY = 3;
const LAUNCH_SECONDS = 3e-6;
/** Seconds to fill the pipeline of the first tile, and for the last epilogue. */
const TAIL_SECONDS = 3e-6;
/** Loads and products overlap imperfectly: this share of the hidden time is exposed. */
const EXPOSED = 0.1;
/**
 * Share of memory's rate at which the epilogues of two warpgroups read and write, where products are of E4M3: with 10
 * bytes an element and K = 6,656 they took 0.62 of the product in cooperative tiles on an H200.
 */
const EPILOGUE_RATE = 0.4;
/** Scalar operations per cycle of a multiprocessor, relative to its tensor cores' operations. */
const SCALAR_SHARE = 1 / 64;
/** Rates of attention kernels as a share of the tensor cores' rate. */
const ATTENTION_REACH: Readonly<Record<CudaAttentionSchedule['skeleton'], number>> = {
  wgmma: 0.5,
  mma: 0.3,
  simt: 0.015,
};
/** Time of one softmax step per score, in equivalent tensor operations. */
const SOFTMAX_FLOPS = 600;

const overlap = (...seconds: readonly number[]): number => {
  const top = Math.max(...seconds);
  return top + EXPOSED * (seconds.reduce((sum, s) => sum + s, 0) - top);
};

/** Blocks resident on a multiprocessor. A wgmma tile takes all its shared memory and registers. */
function residentBlocks({ skeleton, tm, tn, tk, stages }: CudaGemmSchedule, machine: CudaMachine): number {
  if (skeleton === 'wgmma') return 1;
  const shared = Math.max(1, stages) * (tm + tn) * tk * (skeleton === 'simt' ? 4 : 2);
  return Math.max(
    1,
    Math.min(4, Math.floor(machine.sharedBytesPerMultiprocessor / shared), Math.floor((64 * 256) / ((tm * tn) / 4))),
  );
}

/** Seconds from a request to memory until its bytes arrive, under load. */
const MEMORY_SECONDS = 8e-7;
/** Seconds of a step of 16 along k: products of one accumulator wait for each other. */
const STEP_SECONDS = 2.5e-8;

/**
 * Few rows: the rate of memory, as far as enough bytes are in flight, and no less than the chain of a block's products.
 */
function skinnySeconds(
  kernel: GemmKernel | LogProbKernel,
  s: CudaGemmSchedule,
  rows: number,
  machine: CudaMachine,
): number {
  const down = Math.ceil(rows / s.tm);
  const blocks = columnTiles(segmentsOf(kernel), s.tn).total * down;
  const stageBytes = (s.tm + s.tn) * s.tk * 2;
  const resident = Math.max(1, Math.min(4, Math.floor(machine.sharedBytesPerMultiprocessor / (s.stages * stageBytes))));
  const atOnce = Math.min(blocks, machine.multiprocessors * resident);
  const inFlight = atOnce * (s.stages - 1) * s.tn * s.tk * 2;
  const reach = Math.min(1, inFlight / (machine.bytesPerSecond * MEMORY_SECONDS));
  const weights = (blocks * s.tn * kernel.k * 2) / (machine.bytesPerSecond * reach);
  // What one multiprocessor takes from L2: its tiles' weights, and the rows again for each tile.
  const l2 = (machine.bytesPerSecond * L2_OVER_MEMORY) / machine.multiprocessors;
  const ownTiles = Math.ceil(blocks / machine.multiprocessors);
  const loads = (ownTiles * (s.tn + Math.min(rows, s.tm) / s.cluster) * kernel.k * 2) / l2;
  const chain = Math.ceil(blocks / atOnce) * (kernel.k / 16) * STEP_SECONDS * Math.max(1, s.tm / 16);
  return TAIL_SECONDS + overlap(weights, loads, chain);
}

/** What is known of products of E4M3: bytes that an epilogue moves for each element of a tile. */
interface NarrowProducts {
  readonly epilogueBytes: number;
}

/** Undefined for products of other types. */
function narrowOf(kernel: GemmKernel, module: KernelModule, size: WorkSize): NarrowProducts | undefined {
  if (!module.buffers.some(({ name, dtype }) => name === kernel.a && dtype === 'e4m3')) return undefined;
  const rows = rowsOf(kernel, size);
  const columns = columnTiles(kernel.segments, 1).total;
  const { bytes } = kernelWork(kernel, module, size);
  return { epilogueBytes: Math.max(0, bytes - (rows + columns) * kernel.k) / (Math.max(1, rows) * columns) };
}

function gemmSeconds(
  kernel: GemmKernel | LogProbKernel,
  s: CudaGemmSchedule,
  rows: number,
  machine: CudaMachine,
  narrow: NarrowProducts | undefined,
): number {
  const isNarrow = narrow !== undefined;
  if (s.skeleton === 'skinny' || s.skeleton === 'skinnyWgmma') return skinnySeconds(kernel, s, rows, machine);
  const bytes = isNarrow ? 1 : 2;
  const perMultiprocessor = machine.flopsPerSecond / machine.multiprocessors;
  const down = Math.ceil(rows / (s.tm * s.cluster)) * s.cluster;
  const across = columnTiles(segmentsOf(kernel), s.tn).total;
  const resident = residentBlocks(s, machine);
  const slots = Math.max(s.cluster, Math.floor(machine.multiprocessors / s.cluster) * s.cluster) * resident;
  const waves = waveCount(segmentsOf(kernel), s, slots / s.cluster, down / s.cluster);
  // Narrow tiles are limited by shared memory bandwidth.
  const width = Math.min(1, 0.55 + 0.45 * Math.sqrt(Math.min(s.tn, 192) / 192)) * Math.min(1, 0.7 + 0.3 * (s.tm / 128));
  const products = (2 * s.tm * s.tn * kernel.k) / (perMultiprocessor * (isNarrow ? 2 : 1) * REACH[s.skeleton] * width);
  const l2 = (machine.bytesPerSecond * L2_OVER_MEMORY) / machine.multiprocessors;
  const loads = ((s.tm + s.tn / s.cluster) * kernel.k * bytes) / l2;
  const outputs =
    kernel.anchor === 'gemm' ? kernel.segments[0]!.outputs.reduce((sum, o) => sum + 4 + scalarCost(o.value), 0) : 24;
  const epilogue = isNarrow
    ? (s.tm * s.tn * narrow.epilogueBytes * machine.multiprocessors) / (machine.bytesPerSecond * EPILOGUE_RATE)
    : (s.tm * s.tn * outputs) / (perMultiprocessor * SCALAR_SHARE);
  // Ping-pong hides one warpgroup's epilogue under the other's product; deferred, under the next product, which is too
  // short in E4M3 for what a few warps have to move.
  const late =
    isNarrow && s.mode === 'deferred' ? (epilogue * CONSUMER_WARPS) / idleWarps(s.epilogueGroups ?? 0) - products : 0;
  const shown = s.mode === 'cooperative' ? epilogue : EXPOSED * epilogue + Math.max(0, late);
  const depth = s.stages >= 4 || s.mode === 'deferred' ? 1 : 1 + 0.05 * (4 - s.stages);
  const arithmetic = waves * resident * (overlap(products * depth, loads) + shown / resident);
  // Weights are read from memory once for each group of row tiles that are visited together.
  const groups = Math.max(1, Math.ceil(down / s.raster));
  const weightBytes = across * s.tn * kernel.k * bytes;
  const rereads = weightBytes * (1 + 0.15 * (groups - 1)) + rows * kernel.k * bytes;
  return TAIL_SECONDS + overlap(arithmetic, rereads / machine.bytesPerSecond);
}

/** Keys that a block takes. It passes over the path of each of its runs. */
function keysOfBlock(
  kernel: AttentionKernel,
  { queries }: CudaAttentionSchedule,
  size: WorkSize,
  tokens: number,
): number {
  switch (kernel.mask.kind) {
    case 'bias':
      return tokens;
    case 'column':
      return Math.min(tokens, depthOf(kernel, size) + queries);
    case 'path':
      return Math.ceil(Math.min(queries, rowsOf(kernel, size)) / pathShape(size).fresh) * depthOf(kernel, size);
    default:
      return kernel.mask satisfies never;
  }
}

function attentionSeconds(
  kernel: Extract<Kernel, { anchor: 'attention' }>,
  s: CudaAttentionSchedule,
  size: WorkSize,
  machine: CudaMachine,
): number {
  const rows = rowsOf(kernel, size);
  const tokens = tokensIn(size);
  const tile = tileOf(kernel, s);
  const blocks = Math.ceil(rows / s.queries) * (tile.isGrouped ? kernel.kvHeads : kernel.heads);
  const keys = keysOfBlock(kernel, s, size, tokens);
  const padded = Math.ceil(keys / s.keys) * s.keys;
  const block =
    (tile.rows * padded * (2 * (keyDimOf(kernel) + valueDimOf(kernel)) + SOFTMAX_FLOPS)) /
    ((machine.flopsPerSecond / machine.multiprocessors) * ATTENTION_REACH[s.skeleton]);
  // Two resident blocks hide each other's waits. Blocks are short, so the last wave is nearly even.
  return TAIL_SECONDS + Math.max(block / tile.workers, (blocks / machine.multiprocessors) * block);
}

/**
 * Estimated seconds of one launch as a function of its schedule. Throws if kernel and schedule are of different kinds.
 */
export function cudaCost(
  kernel: Kernel,
  module: KernelModule,
  size: WorkSize,
  machine: CudaMachine,
): (schedule: CudaSchedule) => number {
  const rows = rowsOf(kernel, size);
  const memory = kernelWork(kernel, module, size).bytes / machine.bytesPerSecond;
  const narrow = kernel.anchor === 'gemm' ? narrowOf(kernel, module, size) : undefined;
  const arithmetic = (schedule: CudaSchedule): number => {
    if (kernel.anchor === 'gemm' || kernel.anchor === 'logprob') {
      if (schedule.kind === 'gemm') return gemmSeconds(kernel, schedule, rows, machine, narrow);
    } else if (kernel.anchor === 'attention') {
      if (schedule.kind === 'attention') return attentionSeconds(kernel, schedule, size, machine);
    } else if (schedule.kind === 'loop') {
      // Memory-bound: blocks of 256 threads balance best.
      return TAIL_SECONDS + memory * (1 + 0.02 * Math.abs(Math.log2(schedule.threads / 256)));
    }
    throw new Error(`Kernel ${kernel.name} is of kind ${kernel.anchor}, but its schedule is for ${schedule.kind}.`);
  };
  return (schedule) => LAUNCH_SECONDS + (rows === 0 ? 0 : overlap(arithmetic(schedule), memory));
}

/** Share of the device's peak at `seconds`: of the tensor cores for contractions, of memory for other kernels. */
export const cudaShareOfPeak = (work: KernelWork, machine: CudaMachine, seconds: number): number =>
  rooflineSeconds(work, machine) / seconds;

const BYTES = 512 << 20;
const REPEATS = 5;

/** Bytes per second of a copy within device memory, counting reads and writes. Throws CudaError if memory is short. */
export function measureBandwidth(addon: CudaAddon, device: CudaDevice): number {
  const bytes = Math.min(BYTES, Math.max(1 << 20, Math.floor(device.memory().freeBytes / 8 / 256) * 256));
  const made: { release(): void }[] = [];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  try {
    const [from, to] = [
      own<CudaMemory>(new addon.Memory(device, bytes)),
      own<CudaMemory>(new addon.Memory(device, bytes)),
    ];
    from.fill(1);
    to.copyFrom(0, from, 0, bytes);
    const marks = Array.from({ length: REPEATS }, () => ({
      begin: own<CudaEvent>(new addon.Event(device)),
      end: own<CudaEvent>(new addon.Event(device)),
    }));
    for (const { begin, end } of marks) {
      begin.record();
      to.copyFrom(0, from, 0, bytes);
      end.record();
    }
    device.synchronize();
    return (2 * bytes) / (Math.max(1e-6, median(marks.map(({ begin, end }) => end.millisecondsSince(begin)))) * 1e-3);
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
