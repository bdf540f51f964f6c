/** A part of a plan on threads of its own: one device of a CPU executor. */
import type { Dim } from '../../ir/types.js';
import { scoringExtents, type ScoringSize } from '../../ir/scoring.js';
import { extentIn } from '../../ir/extents.js';
import type { Stage } from '../../ir/placement.js';
import { rowStride, type LinkedFunction } from '../../ir/plan.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import type { FileMappings, LoadProgress } from '../files.js';
import { boundaryOf, stagePlan } from '../stagePlan.js';
import type { TensorSource } from '../tensorSource.js';
import { planWeights, type WeightPlan } from '../weightPlan.js';
import {
  loadAddon,
  type NativeLibrary,
  type NativeMemory,
  type NativePool,
  type NativeProgram,
  type RunRequest,
  type RunResult,
} from '../addon.js';
import { bindBucket, type LaunchSymbol } from './bindPlan.js';
import { loadWeights } from './loadWeights.js';
import type { MemoryUse } from './memoryUse.js';

/** What a stage of a plan takes and where its weights go, known before anything is allocated. */
export interface CpuStagePlan {
  readonly stage: Stage;
  readonly threads: number;
  /** Sets of activations: micro-batches that have a place in the stage. */
  readonly arenas: number;
  readonly weightPlan: WeightPlan;
  readonly use: MemoryUse;
}

export function planCpuStage(
  plan: LinkedFunction,
  stage: Stage,
  scratchBytes: number,
  options: {
    readonly tensors: ReadonlyMap<string, TensorSource>;
    readonly threads: number;
    readonly arenas: number;
  },
): CpuStagePlan {
  const { weights, constants } = stagePlan(plan, stage);
  const weightPlan = planWeights(weights, constants, options.tensors);
  const { mappedBytes, packedBytes } = weightPlan;
  const { threads, arenas } = options;
  return {
    stage,
    threads,
    arenas,
    weightPlan,
    use: { mappedBytes, packedBytes, arenaBytes: arenas * plan.arenaBytes, scratchBytes: scratchBytes * threads },
  };
}

export interface CpuStageOptions {
  readonly plan: LinkedFunction;
  /** symbols[bucket][launch] of the whole plan. */
  readonly symbols: readonly (readonly LaunchSymbol[])[];
  /** By path, of all symbols. */
  readonly libraries: ReadonlyMap<string, NativeLibrary>;
  readonly files: FileMappings;
  /** Scratch of one worker. */
  readonly scratchBytes: number;
  readonly isPinned: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** Rows of a buffer that the next stage reads. */
interface Crossing {
  readonly offset: number;
  readonly rows: Dim;
  readonly rowBytes: number;
}

export class CpuStage {
  readonly stage: Stage;
  private readonly pool: NativePool;
  private readonly memories: NativeMemory[] = [];
  private readonly arenas: readonly NativeMemory[];
  /** [arena][bucket] */
  private readonly programs: (readonly NativeProgram[])[] = [];
  private readonly crossing: readonly Crossing[];

  private constructor(plan: LinkedFunction, { stage, threads, arenas }: CpuStagePlan, isPinned: boolean) {
    const addon = loadAddon();
    this.stage = stage;
    this.pool = new addon.Pool(threads, isPinned);
    this.arenas = Array.from({ length: arenas }, () => this.allocate(plan.arenaBytes));
    const placements = new Map(plan.placements.map((placement) => [placement.buffer, placement]));
    this.crossing =
      stage.end === plan.launches.length
        ? []
        : boundaryOf(plan, stage.end).map((buffer) => {
            const elementBytes = DTYPE_BYTES[buffer.dtype];
            return {
              offset: placements.get(buffer.name)!.offset,
              rows: buffer.rows,
              rowBytes: rowStride(buffer, plan.capacity.extents, elementBytes) * elementBytes,
            };
          });
  }

  /**
   * Allocates, loads the stage's weights and binds its launches in every bucket and arena. Throws as loadWeights does.
   */
  static async load(options: CpuStageOptions, planned: CpuStagePlan): Promise<CpuStage> {
    const { plan, symbols, libraries, scratchBytes } = options;
    const { stage, weightPlan, use } = planned;
    const made = new CpuStage(plan, planned, options.isPinned);
    try {
      const packed = weightPlan.packedBytes > 0 ? made.allocate(weightPlan.packedBytes) : undefined;
      const weights = await loadWeights(weightPlan, made.pool, options.files, packed, options.onProgress);
      const scratch =
        scratchBytes > 0 ? { memory: made.allocate(use.scratchBytes), offset: 0, bytes: use.scratchBytes } : undefined;
      const { Program } = loadAddon();
      for (const arena of made.arenas) {
        made.programs.push(
          symbols.map(
            (ofBucket, bucket) =>
              new Program(
                bindBucket({
                  plan,
                  stage,
                  bucket,
                  symbols: ofBucket,
                  pool: made.pool,
                  libraries,
                  weights,
                  arena,
                  scratch,
                  scratchBytes,
                }),
              ),
          ),
        );
      }
      return made;
    } catch (error) {
      made.release();
      throw error;
    }
  }

  /** One at a time. */
  run(arena: number, bucket: number, request: RunRequest): Promise<RunResult> {
    return this.programs[arena]![bucket]!.run(request);
  }

  /** Copies what `next` reads of a micro-batch into the same arena there. */
  sendTo(next: CpuStage, arena: number, size: ScoringSize): void {
    const extents = scoringExtents(size);
    for (const { offset, rows: extent, rowBytes } of this.crossing) {
      const bytes = extentIn(extent, extents) * rowBytes;
      next.arenas[arena]!.write(offset, new Uint8Array(this.arenas[arena]!.read(offset, bytes)));
    }
  }

  /** Running jobs reject at their next launch: the process is about to exit. */
  stop(): void {
    this.pool.stop();
  }

  release(): void {
    for (const program of this.programs.flat()) program.release();
    for (const memory of this.memories) memory.release();
    this.pool.release();
  }

  private allocate(bytes: number): NativeMemory {
    const memory = new (loadAddon().Memory)(bytes);
    this.memories.push(memory);
    return memory;
  }
}
