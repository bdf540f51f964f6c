/** A part of a plan on its own threads: one device of the CPU target. */
import { setImmediate } from 'node:timers/promises';
import { extentIn } from '../../ir/extents.js';
import { loadAddon } from '../addon.js';
import { sizesOf, stageInputs } from '../bindPorts.js';
import { RESERVED_ROWS } from '../../ir/function.js';
import type { FileMappings, LoadProgress } from '../files.js';
import { bytesOfRows, bytesOfStates, type DeviceStates } from '../reservedStates.js';
import type { NativeLibrary, NativeMemory, NativePool, NativeProgram, ProgramResult, Slot } from '../native.js';
import {
  type Crossing,
  crossingsOf,
  nameOf,
  type PlacedState,
  type RuntimeFunction,
  type RuntimePlan,
  type StageRanges,
  stageStates,
  stageWeights,
} from '../runtimePlan.js';
import type { StageCall } from '../stageRunner.js';
import type { TensorSource } from '../tensorSource.js';
import { placeWrites, planWeights, type SlotWrite, type WeightPlan } from '../weightPlan.js';
import { bindBucket, type PlanSymbols } from './buckets.js';
import { loadWeights } from './loadWeights.js';
import { endCount, keepCount, type MemoryUse, roomOnHost } from './memoryUse.js';

/** Bytes that are written to memory without a break: about a millisecond. */
const UNBROKEN_BYTES = 4 << 20;

/** What a stage of a plan needs and where its weights go, known before anything is allocated. */
export interface CpuStagePlan {
  readonly ranges: StageRanges;
  readonly threads: number;
  /** Sets of activations: one for each call that is in the stage. */
  readonly arenas: number;
  readonly arenaBytes: number;
  readonly states: readonly PlacedState[];
  readonly weightPlan: WeightPlan;
  readonly use: MemoryUse;
}

/** Stage `index` of `stages`. */
export function planCpuStage(
  plan: RuntimePlan,
  stages: readonly StageRanges[],
  index: number,
  options: {
    readonly tensors: ReadonlyMap<string, TensorSource>;
    readonly threads: number;
    readonly arenas: number;
    /** Scratch bytes of each worker. */
    readonly scratchBytes: number;
    /** Rows of reserved states that there is memory for at first. */
    readonly tokens: number;
  },
): CpuStagePlan {
  const ranges = stages[index]!;
  const weightPlan = planWeights(stageWeights(plan, ranges), plan.constants, options.tensors);
  const states = stageStates(plan, stages, index);
  const { mappedBytes, packedBytes } = weightPlan;
  const { threads, arenas, scratchBytes, tokens } = options;
  // Functions use it in turn.
  const arenaBytes = Math.max(...plan.functions.map((fn) => fn.arenaBytes));
  const use: MemoryUse = {
    mappedBytes,
    packedBytes,
    arenaBytes: arenas * arenaBytes,
    stateBytes: bytesOfStates(states, tokens),
    scratchBytes: scratchBytes * threads,
  };
  return { ranges, threads, arenas, arenaBytes, states, weightPlan, use };
}

export interface CpuStageOptions {
  readonly plan: RuntimePlan;
  readonly symbols: PlanSymbols;
  readonly files: FileMappings;
  /** Scratch memory of one worker. */
  readonly scratchBytes: number;
  readonly isPinned: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** A function on the stage. */
interface CpuFunction {
  readonly inputs: readonly string[];
  /** The ranges that the next stage reads. */
  readonly crossings: readonly Crossing[];
  /** [arena][bucket] of those that are bound. */
  readonly programs: readonly Map<number, NativeProgram>[];
}

export class CpuStage {
  readonly ranges: StageRanges;
  /** Those that are reserved. */
  states: DeviceStates = { states: [], room: roomOnHost };
  private readonly pool: NativePool;
  private readonly memories: NativeMemory[] = [];
  private readonly arenas: readonly NativeMemory[];
  private readonly bound = new Map<string, CpuFunction>();
  private readonly options: CpuStageOptions;
  /** Weights and states. */
  private shared: readonly ReadonlyMap<string, Slot>[] = [];
  private scratch: Slot | undefined;
  private readonly weightPlan: WeightPlan;
  /** Of weights; undefined where none is packed. */
  private packed: NativeMemory | undefined;

  private constructor(planned: CpuStagePlan, options: CpuStageOptions) {
    const { ranges, threads, arenas, arenaBytes } = planned;
    const { isPinned, plan } = options;
    this.weightPlan = planned.weightPlan;
    this.ranges = ranges;
    this.options = options;
    this.pool = new (loadAddon().Pool)(threads, isPinned);
    this.arenas = Array.from({ length: arenas }, () => this.allocate(arenaBytes));
    for (const fn of plan.functions) {
      const range = ranges[nameOf(fn)]!;
      this.bound.set(nameOf(fn), {
        inputs: stageInputs(fn, range).map(({ name }) => name),
        crossings: crossingsOf(fn, range.end),
        programs: this.arenas.map(() => new Map()),
      });
    }
  }

  /** Allocates memory and loads the stage's weights. Throws as loadWeights does. */
  static async load(options: CpuStageOptions, planned: CpuStagePlan): Promise<CpuStage> {
    const { weightPlan, use, states } = planned;
    const made = new CpuStage(planned, options);
    try {
      made.packed = weightPlan.packedBytes > 0 ? made.allocate(weightPlan.packedBytes) : undefined;
      const weights = await loadWeights(weightPlan, made.pool, options.files, made.packed, options.onProgress);
      if (use.scratchBytes > 0)
        made.scratch = { memory: made.allocate(use.scratchBytes), offset: 0, bytes: use.scratchBytes };
      made.shared = [weights, made.allocateStates(states)];
      return made;
    } catch (error) {
      made.release();
      throw error;
    }
  }

  /** Binds the launches of a bucket in every arena. `libraries`: those of its symbols, by the names that these have. */
  bind(fn: RuntimeFunction, bucket: number, libraries: ReadonlyMap<string, NativeLibrary>): void {
    const { symbols, scratchBytes } = this.options;
    const { Program } = loadAddon();
    const { programs } = this.bound.get(nameOf(fn))!;
    this.arenas.forEach((arena, i) => {
      const binding = bindBucket({
        fn,
        range: this.ranges[nameOf(fn)]!,
        bucket,
        symbols: symbols[nameOf(fn)]![bucket]!,
        pool: this.pool,
        libraries,
        shared: this.shared,
        arena,
        scratch: this.scratch,
        scratchBytes,
      });
      programs[i]!.set(bucket, new Program(binding));
    });
  }

  /** In a bucket that is bound; one at a time. */
  run(arena: number, { fn, bucket, extents, inputs, hasAdapters, kind }: StageCall): Promise<ProgramResult> {
    const bound = this.bound.get(nameOf(fn))!;
    return bound.programs[arena]!.get(bucket)!.run({
      extents: sizesOf(fn.interface, extents),
      inputs: bound.inputs.map((name) => inputs[name]!),
      isTimed: kind === 'profile',
      isChecked: kind === 'search',
      skipsAdapters: !hasAdapters,
    });
  }

  /** Copies the parts of a call that `next` reads into the same arena there. */
  sendTo(next: CpuStage, arena: number, { fn, extents }: StageCall): void {
    for (const { offset, rows, rowBytes } of this.bound.get(nameOf(fn))!.crossings) {
      const bytes = extentIn(rows, extents) * rowBytes;
      next.arenas[arena]!.write(offset, new Uint8Array(this.arenas[arena]!.read(offset, bytes)));
    }
  }

  /** Writes slots whose weights it has. Yields to other work now and then. */
  async writeSlots(writes: readonly SlotWrite[]): Promise<void> {
    let unbroken = 0;
    for (const { offset, data } of placeWrites(this.weightPlan, writes)) {
      this.packed!.write(offset, data);
      unbroken += data.length;
      if (unbroken < UNBROKEN_BYTES) continue;
      unbroken = 0;
      await setImmediate();
    }
  }

  /** Makes running jobs reject at their next launch, before the process exits. */
  stop(): void {
    this.pool.stop();
  }

  release(): void {
    for (const { programs } of this.bound.values())
      for (const program of programs.flatMap((own) => [...own.values()])) program.release();
    for (const memory of this.memories) {
      endCount(memory);
      memory.release();
    }
    this.pool.release();
  }

  /** Memory of the process is zero at first. */
  private allocateStates(states: readonly PlacedState[]): ReadonlyMap<string, Slot> {
    const slots = new Map<string, Slot>();
    const reserved: DeviceStates['states'][number][] = [];
    for (const { name, bytes, rowBytes, isReserved } of states) {
      const memory = isReserved ? this.reserve(bytesOfRows(RESERVED_ROWS, rowBytes)) : this.allocate(bytes);
      slots.set(name, { memory, offset: 0, bytes });
      if (isReserved) reserved.push({ rowBytes, memory });
    }
    this.states = { states: reserved, room: roomOnHost };
    return slots;
  }

  private reserve(bytes: number): NativeMemory {
    const memory = new (loadAddon().Memory)(bytes, 'reserved');
    this.memories.push(memory);
    keepCount(memory);
    return memory;
  }

  private allocate(bytes: number): NativeMemory {
    const memory = new (loadAddon().Memory)(bytes);
    this.memories.push(memory);
    return memory;
  }
}
