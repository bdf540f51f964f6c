/** The kernels of a plan for display: what each does, what it costs, and its source. */
import { type Peaks, ratesOf, rooflineSeconds } from '../autotune/peaks.js';
import { Declarations, kernelWork, type KernelWork, sizeOf, type WorkSize } from '../autotune/work.js';
import type { Machine } from '../driver/targets/cpuDevice.js';
import type { CompiledModel, ExaminedKernel, PrintedKernel, TimesOptions } from '../driver/targets/target.js';
import { UsageError } from '../errors.js';
import type { StateDecl } from '../ir/function.js';
import { type Kernel, loopDomains } from '../ir/kernel.js';
import { type Mask, reachOfMask } from '../ir/mask.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { type Bucket, leadingExtent, type LinkedFunction, scoreOf, stateBytes } from '../ir/plan.js';
import { scoringExtents, tokensIn } from '../ir/scoring.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { planWeights } from '../runtime/weightPlan.js';

export interface KernelRow {
  readonly name: string;
  readonly path: string;
  readonly anchor: Kernel['anchor'];
  /** Equal for kernels with the same text. */
  readonly signature: string;
  /** `[T × 704] k 256`. */
  readonly shape: string;
  /** The graph ops fused into it, in order. */
  readonly ops: readonly string[];
  /** For the requested size. */
  readonly flops: number;
  readonly bytes: number;
}

const matrices = (pairing: { readonly kind: string }): string => (pairing.kind === 'interleave' ? '2×' : '');

const maskText = (mask: Mask): string => {
  const { window, chunk } = reachOfMask(mask);
  const reach = window === undefined ? (chunk === undefined ? '' : `, chunks of ${chunk}`) : `, window of ${window}`;
  return `${mask.kind} mask${reach}`;
};

/** Iteration domain in one line. */
function shapeOf(kernel: Kernel): string {
  switch (kernel.anchor) {
    case 'gemm': {
      const columns = kernel.segments.map((s) => `${matrices(s.pairing)}${s.columns}`).join('+');
      const experts = kernel.experts === undefined ? '' : `, ${kernel.experts.count} experts`;
      return `[${kernel.rows} × ${columns}] k ${kernel.k}${experts}`;
    }
    case 'attention': {
      const { rows, heads, headDim, kvHeads, mask, slopes, tail, valueDim } = kernel;
      const sloped = slopes === undefined ? '' : ', ALiBi';
      const more = tail === undefined ? '' : `+${tail.headDim}`;
      const width = `${headDim}${more}${valueDim === undefined ? '' : `→${valueDim}`}`;
      return `[${rows} × ${heads}×${width}] kv heads ${kvHeads}, ${maskText(mask)}${sloped}`;
    }
    case 'logprob':
      return `[${kernel.rows} × ${kernel.vocab}] k ${kernel.k}`;
    case 'logprobReduce':
    case 'sample':
      return `[${kernel.rows} × ${kernel.vocab}]`;
    case 'links':
      return `[${kernel.rows}]`;
    case 'scan':
      return `[${kernel.rows} × ${kernel.heads} heads of ${kernel.keyDim}×${kernel.valueDim}]`;
    case 'shrink':
      return `[${kernel.rows} × ${kernel.parts}×${kernel.rank}] k ${kernel.k}`;
    case 'route':
    case 'sortByExpert':
      return `[${kernel.rows} × ${kernel.chosen}] of ${kernel.count} experts`;
    case 'loop':
      return `[${kernel.rows} × ${loopDomains(kernel)
        .map(({ columns }) => columns)
        .join('+')}]`;
    default:
      return kernel satisfies never;
  }
}

/** Half of a benchmark's tokens are scored, and trees are rarely longer than 256 tokens. */
export const typicalSize = (tokens: number): WorkSize => ({
  extents: scoringExtents({ tokens, rows: Math.ceil(tokens / 2) }),
  longest: Math.min(tokens, 256),
});

/** Every kernel, in launch order. */
export function kernelRows(plan: LinkedFunction<unknown>, size: WorkSize): readonly KernelRow[] {
  const declarations = new Declarations(plan);
  return plan.kernels.map((kernel, i) => {
    const work: KernelWork = kernelWork(kernel, declarations, size);
    return {
      name: kernel.name,
      path: kernel.path,
      anchor: kernel.anchor,
      signature: plan.launches[i]!.signature,
      shape: shapeOf(kernel),
      ops: kernel.ops,
      flops: work.flops,
      bytes: work.bytes,
    };
  });
}

/** A kernel with what is known of its time. */
export interface TimedRow extends KernelRow {
  /** Seconds by the model that ranks the tuner's candidates, for the requested size, with the plan's schedule. */
  readonly predictedSeconds: number;
  /** Median seconds in the bucket that such a call runs in, if the tuner has measured that schedule here. */
  readonly measuredSeconds: number | undefined;
  /** Least time that the roofline allows in the bucket, divided by the measured one. */
  readonly shareOfPeak: number | undefined;
}

/** Every kernel with its times, in launch order, and what they are compared with. */
export async function timedRows(
  model: CompiledModel,
  machine: Machine,
  size: WorkSize,
  options: TimesOptions,
): Promise<{ readonly rows: readonly TimedRow[]; readonly peaks: Peaks; readonly bucket: Bucket }> {
  const plan = scoreOf(model.plan);
  const times = await model.target.tuner.times(model, machine, options);
  const { index, bucket } = bucketFor(plan, tokensIn(size));
  const declarations = new Declarations(plan);
  type Timed = Omit<TimedRow, keyof KernelRow>;
  const known = new Map<string, Timed>();
  const timesOf = (kernel: Kernel, signature: string): Timed => {
    const schedule = plan.schedules[index]?.[signature];
    if (schedule === undefined) throw new Error(`bucket ${index} has no schedule for ${kernel.name}`);
    const measuredSeconds = times.measured(plan, kernel, schedule, bucket);
    const least = rooflineSeconds(kernelWork(kernel, declarations, sizeOf(bucket)), ratesOf(times.peaks));
    return {
      predictedSeconds: times.predict(plan, kernel, schedule, size),
      measuredSeconds,
      shareOfPeak: measuredSeconds === undefined ? undefined : least / measuredSeconds,
    };
  };
  const rows = kernelRows(plan, size).map((row, i): TimedRow => {
    const found = known.get(row.signature) ?? timesOf(plan.kernels[i]!, row.signature);
    known.set(row.signature, found);
    return { ...row, ...found };
  });
  return { rows, peaks: times.peaks, bucket };
}

/** Kernels with the same text in several layers. */
export interface KernelGroup<R extends KernelRow = KernelRow> {
  /** `layers.{0..7}.attention.qkv`, or a single kernel's path. */
  readonly path: string;
  readonly rows: readonly R[];
}

/** A number, or ranges without gaps: `3`, `0..7`, `0..5,7`. */
function ranges(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < numbers.length;) {
    let end = i;
    while (numbers[end + 1] === numbers[end]! + 1) end++;
    parts.push(end === i ? String(numbers[i]) : `${numbers[i]}..${numbers[end]}`);
    i = end + 1;
  }
  return parts.join(',');
}

const LAYER = /^layers\.(\d+)\.(.*)$/;

/** Kernels with one signature and, apart from the layer, one path, in order of their first launch. */
export function groupKernels<R extends KernelRow>(rows: readonly R[]): readonly KernelGroup<R>[] {
  const groups = new Map<string, R[]>();
  for (const row of rows) {
    const key = `${row.signature} ${LAYER.exec(row.path)?.[2] ?? `=${row.path}`}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  return [...groups.values()].map((members) => {
    const [first] = members;
    const layers = members.map(({ path }) => Number(LAYER.exec(path)?.[1] ?? NaN));
    const path =
      members.length === 1 || layers.some(Number.isNaN)
        ? first!.path
        : `layers.{${ranges(layers)}}.${LAYER.exec(first!.path)![2]!}`;
    return { path, rows: members };
  });
}

/** A kernel by name or path. Throws UsageError with similar names. */
export function findKernel(
  plan: LinkedFunction<unknown>,
  wanted: string,
): { readonly kernel: Kernel; readonly signature: string } {
  const at = plan.kernels.findIndex(({ name, path }) => name === wanted || path === wanted);
  const kernel = plan.kernels[at];
  if (kernel !== undefined) return { kernel, signature: plan.launches[at]!.signature };
  const words = wanted
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== '');
  const close = plan.kernels
    .filter(({ name }) => words.length > 0 && words.every((word) => name.includes(word)))
    .map(({ name }) => name);
  const listed = close.length > 0 ? close : plan.kernels.map(({ name }) => name);
  throw new UsageError(
    `there is no kernel ${JSON.stringify(wanted)}`,
    `kernels: ${listed.slice(0, 8).join(', ')}${listed.length > 8 ? `, … (${listed.length}; see --kernels)` : ''}`,
  );
}

/** The bucket that a micro-batch of `tokens` runs in. */
export function bucketFor(
  plan: LinkedFunction<unknown>,
  tokens: number,
): { readonly index: number; readonly bucket: Bucket } {
  const found = plan.buckets.findIndex((bucket) => tokensIn(bucket) >= tokens);
  const index = found === -1 ? plan.buckets.length - 1 : found;
  return { index, bucket: plan.buckets[index]! };
}

export interface KernelSource extends PrintedKernel, ExaminedKernel {
  readonly name: string;
  readonly path: string;
  readonly signature: string;
  readonly bucket: Bucket;
  readonly schedule: unknown;
  /** The schedule as readable text. */
  readonly scheduleText: string;
}

/** The source of one kernel as it runs in a micro-batch of `tokens`. */
export async function kernelSource(model: CompiledModel, wanted: string, tokens: number): Promise<KernelSource> {
  const plan = scoreOf(model.plan);
  const { kernel, signature } = findKernel(plan, wanted);
  const { index, bucket } = bucketFor(plan, tokens);
  const schedule = plan.schedules[index]?.[signature];
  if (schedule === undefined) throw new Error(`bucket ${index} has no schedule for ${kernel.name}`);
  const printed = model.target.compiler.print(kernel, plan, schedule);
  const examined = await model.target.compiler.examine?.(printed, model.device);
  const scheduleText = model.target.compiler.scheduling.describe(schedule);
  return { ...printed, ...examined, name: kernel.name, path: kernel.path, signature, bucket, schedule, scheduleText };
}

/** Buffers that share one place in the arena at different times. */
export interface ArenaSlot {
  readonly offset: number;
  readonly sizeBytes: number;
  /** In order of first use. */
  readonly buffers: readonly string[];
  /** Launches, first and last inclusive, during which one of the buffers is live. Ascending and disjoint. */
  readonly alive: readonly (readonly [first: number, last: number])[];
}

export interface MemoryReport {
  /** Of the first extent: the largest call, and what it counts. */
  readonly capacity: { readonly most: number; readonly counts: string };
  readonly launches: number;
  readonly arenaBytes: number;
  /** Bytes of all buffers without sharing. */
  readonly withoutReuseBytes: number;
  /** Sorted by offset. */
  readonly slots: readonly ArenaSlot[];
  /** Memory that outlives calls, which all functions of the plan share. */
  readonly states: readonly (StateDecl & { readonly sizeBytes: number })[];
  /** Absent if the checkpoint is not available. */
  readonly weights: { readonly mappedBytes: number; readonly packedBytes: number } | undefined;
}

/** First and last launch that uses each arena buffer. Inputs and outputs live throughout. */
function lifetimes(plan: LinkedFunction<unknown>): ReadonlyMap<string, readonly [number, number]> {
  const range = new Map<string, [number, number]>();
  plan.kernels.forEach((kernel, at) => {
    for (const name of [...kernelReads(kernel), ...kernelWrites(kernel)]) {
      const known = range.get(name);
      if (known === undefined) range.set(name, [at, at]);
      else known[1] = at;
    }
  });
  const end = plan.kernels.length - 1;
  for (const { name, space } of plan.buffers) if (space === 'input' || space === 'output') range.set(name, [0, end]);
  return range;
}

/** A buffer's place in the arena, and the launches that need it, first and last inclusive. */
export interface ArenaBuffer {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

/** In the order of the plan. */
export function arenaBuffers(plan: LinkedFunction<unknown>): readonly ArenaBuffer[] {
  const alive = lifetimes(plan);
  const end = plan.kernels.length - 1;
  return plan.placements.map(({ buffer, offset, sizeBytes }) => {
    const [first, last] = alive.get(buffer) ?? [0, end];
    return { name: buffer, offset, bytes: sizeBytes, first, last };
  });
}

/** Weights as they are stored for kernels, and those that stay in the checkpoint's files. */
export function weightBytes(
  plan: LinkedFunction<unknown>,
  checkpoint: Checkpoint | undefined,
): MemoryReport['weights'] {
  if (checkpoint === undefined) return undefined;
  const { mappedBytes, packedBytes } = planWeights(plan.weights, plan.constants, checkpoint.tensors);
  return { mappedBytes, packedBytes };
}

/** Joins ranges that touch or overlap. */
function merge(sorted: readonly (readonly [number, number])[]): readonly (readonly [number, number])[] {
  const merged: [number, number][] = [];
  for (const [first, last] of sorted) {
    const before = merged.at(-1);
    if (before !== undefined && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else merged.push([first, last]);
  }
  return merged;
}

/** `tokens`: whose keys and values there is memory for at most. */
export function memoryReport(
  plan: LinkedFunction<unknown>,
  checkpoint: Checkpoint | undefined,
  tokens = 0,
): MemoryReport {
  const { most, counts } = leadingExtent(plan);
  const slots = new Map<
    string,
    { offset: number; sizeBytes: number; buffers: { name: string; life: readonly [number, number] }[] }
  >();
  for (const { name, offset, bytes: sizeBytes, first, last } of arenaBuffers(plan)) {
    const key = `${offset} ${sizeBytes}`;
    const slot = slots.get(key) ?? { offset, sizeBytes, buffers: [] };
    slot.buffers.push({ name, life: [first, last] });
    slots.set(key, slot);
  }
  return {
    capacity: { most, counts },
    launches: plan.kernels.length,
    arenaBytes: plan.arenaBytes,
    withoutReuseBytes: plan.placements.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
    slots: [...slots.values()]
      .sort((a, b) => a.offset - b.offset || a.sizeBytes - b.sizeBytes)
      .map(({ offset, sizeBytes, buffers }) => {
        const ordered = buffers.sort((a, b) => a.life[0] - b.life[0]);
        return {
          offset,
          sizeBytes,
          buffers: ordered.map(({ name }) => name),
          alive: merge(ordered.map(({ life }) => life)),
        };
      }),
    states: plan.states.map((state) => ({ ...state, sizeBytes: stateBytes(state, tokens) })),
    weights: weightBytes(plan, checkpoint),
  };
}
