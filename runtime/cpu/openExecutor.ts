/** Opens an executor on the CPU: a plan, its kernels and its weights, on threads of this process. */
import { loadAddon } from '../addon.js';
import type { NativeLibrary } from '../nativeObjects.js';
import { Executor } from '../executor.js';
import { FileMappings, type LoadProgress } from '../files.js';
import { nameOf, type RuntimePlan } from '../runtimePlan.js';
import { stageRanges, type PlanStages } from '../stagePlan.js';
import type { TensorSource } from '../tensorSource.js';
import { scratchOf, type PlanSymbols } from './bindPlan.js';
import { bytesToPack } from './loadWeights.js';
import { requireMemory, type MemoryUse } from './memoryUse.js';
import { CpuStage, planCpuStage, type CpuStagePlan } from './stage.js';
import { CpuStages } from './stageRunner.js';

export interface CpuExecutorOptions {
  readonly plan: RuntimePlan;
  /** The generated code of each launch. */
  readonly symbols: PlanSymbols;
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** Threads of all stages together; each stage has at least one. */
  readonly threads: number;
  /**
   * Parts of the plan that work at the same time, on threads and activations of their own. Default: one with all
   * launches.
   */
  readonly stages?: PlanStages;
  /** Longest tree path (context) of the model, in tokens. Default: as many as fit in a call. */
  readonly maxLength?: number;
  /** Pins one thread to each processor, for measurements on a machine that does nothing else. */
  readonly isPinned?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: MemoryUse) => void;
}

/** Native objects of an executor, released together. */
interface Resources {
  readonly files: FileMappings;
  readonly libraries: Map<string, NativeLibrary>;
  readonly stages: CpuStage[];
}

function release({ stages, libraries, files }: Resources): void {
  for (const stage of stages) stage.release();
  for (const library of libraries.values()) library.release();
  files.release();
}

/** As even as whole threads allow, at least one each. */
const threadsOf = (stage: number, stages: number, threads: number): number =>
  Math.max(1, Math.floor((threads * (stage + 1)) / stages) - Math.floor((threads * stage) / stages));

function sumOf(planned: readonly CpuStagePlan[]): MemoryUse {
  const sum = (of: (use: MemoryUse) => number): number => planned.reduce((total, { use }) => total + of(use), 0);
  return {
    mappedBytes: sum((use) => use.mappedBytes),
    packedBytes: sum((use) => use.packedBytes),
    arenaBytes: sum((use) => use.arenaBytes),
    stateBytes: sum((use) => use.stateBytes),
    scratchBytes: sum((use) => use.scratchBytes),
  };
}

/**
 * Loads the weights and binds every bucket of every function on every stage. Memory is reported and checked before it
 * is taken. Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little memory;
 * RangeError for stages that are not the plan.
 */
export async function openCpuExecutor(options: CpuExecutorOptions): Promise<Executor<MemoryUse>> {
  const { plan, symbols, threads, tensors } = options;
  const stages = stageRanges(plan, options.stages);
  for (const fn of plan.functions) {
    const count = symbols[nameOf(fn)]?.length ?? 0;
    if (count !== fn.buckets.length || count === 0)
      throw new Error(`${count} sets of symbols for ${fn.buckets.length} buckets of ${nameOf(fn)}.`);
  }
  const addon = loadAddon();
  const scratchBytes = scratchOf(symbols);
  const arenas = stages.length === 1 ? 1 : 2;
  const planned = stages.map((_, i) =>
    planCpuStage(plan, stages, i, { tensors, threads: threadsOf(i, stages.length, threads), arenas, scratchBytes }),
  );
  const use = sumOf(planned);
  options.onMemory?.(use);
  requireMemory(use);
  const resources: Resources = { files: new FileMappings(), libraries: new Map(), stages: [] };
  const totalBytes = planned.reduce((total, { weightPlan }) => total + bytesToPack(weightPlan), 0);
  const done = planned.map(() => 0);
  try {
    for (const { library } of Object.values(symbols).flat(2))
      if (!resources.libraries.has(library)) resources.libraries.set(library, new addon.Library(library));
    const loaded = await Promise.allSettled(
      planned.map((each, i) =>
        CpuStage.load(
          {
            plan,
            symbols,
            libraries: resources.libraries,
            files: resources.files,
            scratchBytes,
            isPinned: options.isPinned ?? false,
            onProgress: ({ doneBytes, ...rest }) => {
              done[i] = doneBytes;
              options.onProgress?.({ ...rest, doneBytes: done.reduce((a, b) => a + b, 0), totalBytes });
            },
          },
          each,
        ),
      ),
    );
    for (const stage of loaded) if (stage.status === 'fulfilled') resources.stages.push(stage.value);
    const failed = loaded.find((stage) => stage.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const runner = new CpuStages(resources.stages, arenas, () => release(resources));
    return new Executor({ plan, runner, memory: use, maxLength: options.maxLength });
  } catch (error) {
    release(resources);
    throw error;
  }
}
