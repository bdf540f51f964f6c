/** Opens an executor on the CPU: a plan, its kernels and its weights, on threads of this process. */
import { STEP } from '../../ir/function.js';
import { Executor } from '../executor.js';
import { FileMappings, type LoadProgress } from '../files.js';
import { NO_TOKENS, ReservedStates, type StateTokens } from '../reservedStates.js';
import { nameOf, type PlanStages, type RuntimeFunction, type RuntimePlan, stageRanges } from '../runtimePlan.js';
import { type BucketOf, bucketsOfCalls, type FirstCall } from '../stageRunner.js';
import type { TensorSource } from '../tensorSource.js';
import { type CompileLibrary, CpuReadiness, Libraries, type PlanSymbols, scratchOf } from './buckets.js';
import { bytesToPack } from './loadWeights.js';
import { memoryError, type MemoryUse, requireMemory, residentBytes } from './memoryUse.js';
import { CpuStage, type CpuStagePlan, planCpuStage } from './stage.js';
import { CpuStages } from './stageRunner.js';

export interface CpuExecutorOptions {
  readonly plan: RuntimePlan;
  /** The generated code of each launch. */
  readonly symbols: PlanSymbols;
  /**
   * Compiles libraries of symbols as they are needed, so that buckets become ready one after another. Absent: every
   * library is there.
   */
  readonly compile?: CompileLibrary | undefined;
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** Threads of all stages together; each stage has at least one. */
  readonly threads: number;
  /**
   * Parts of the plan that work at the same time, on threads and activations of their own. Default: one with all
   * launches.
   */
  readonly stages?: PlanStages;
  /** Rows of reserved states that there is memory for at first; none by default. */
  readonly tokens?: StateTokens | undefined;
  /** Longest tree path (context) of the model, in tokens. Default: as many as fit in a call. */
  readonly maxLength?: number;
  /** The calls that come first, where that is known: what they need is compiled while weights load. */
  readonly first?: readonly FirstCall[] | undefined;
  /** Pins one thread to each processor, for measurements on a machine that does nothing else. */
  readonly isPinned?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Weights are loaded; what is left are the kernels of the bucket that holds every call. */
  readonly onLoaded?: () => void;
  /** Memory that other models of this process hold; none by default. */
  readonly besideBytes?: number | undefined;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: MemoryUse) => void;
}

/** Memory of states comes and goes in so many bytes of one, or more. */
const PIECE_BYTES = 64 << 10;

/** Native objects of an executor, released together. */
interface ExecutorResources {
  readonly files: FileMappings;
  readonly libraries: Libraries;
  readonly stages: CpuStage[];
}

async function release({ stages, libraries, files }: ExecutorResources): Promise<void> {
  await libraries.release();
  for (const stage of stages) stage.release();
  files.release();
}

interface First {
  readonly buckets: readonly BucketOf[];
  /** The only one holds every call. */
  readonly isForAll: boolean;
}

/**
 * What is compiled while weights load. Where nothing is known of the calls that come, those of one function alone begin
 * with the largest, and its largest bucket holds every one; those of several continue texts, with a token each time.
 */
function firstOf(plan: RuntimePlan, calls: readonly FirstCall[]): First {
  if (calls.length > 0) return { buckets: bucketsOfCalls(plan, calls), isForAll: false };
  const fn = plan.functions.find((each) => nameOf(each) === STEP) ?? plan.functions[0]!;
  const isForAll = plan.functions.length === 1;
  return { buckets: [{ fn, bucket: isForAll ? fn.buckets.length - 1 : 0 }], isForAll };
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
 * Loads the weights, and binds the buckets of every function on every stage: all of them, or with `compile` each when
 * it is ready, of which the one that holds every call is ready first. Memory is reported and checked before it is
 * taken.
 * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little memory;
 * RangeError for stages that are not the plan.
 */
export async function openCpuExecutor(options: CpuExecutorOptions): Promise<Executor<MemoryUse>> {
  const { plan, symbols, threads, tensors, tokens = NO_TOKENS } = options;
  const stages = stageRanges(plan, options.stages);
  for (const fn of plan.functions) {
    const count = symbols[nameOf(fn)]?.length ?? 0;
    if (count !== fn.buckets.length || count === 0)
      throw new Error(`${count} sets of symbols for ${fn.buckets.length} buckets of ${nameOf(fn)}.`);
  }
  const scratchBytes = scratchOf(symbols);
  const arenas = stages.length === 1 ? 1 : 2;
  const planned = stages.map((_, i) =>
    planCpuStage(plan, stages, i, {
      tensors,
      threads: threadsOf(i, stages.length, threads),
      arenas,
      scratchBytes,
      tokens: tokens.first,
    }),
  );
  const use = sumOf(planned);
  options.onMemory?.(use);
  requireMemory(use, options.besideBytes);
  const libraries = new Libraries(symbols, options.compile);
  const resources: ExecutorResources = { files: new FileMappings(), libraries, stages: [] };
  const totalBytes = planned.reduce((total, { weightPlan }) => total + bytesToPack(weightPlan), 0);
  const done = planned.map(() => 0);
  try {
    const first = firstOf(plan, options.first ?? []);
    if (options.compile !== undefined) for (const { fn, bucket } of first.buckets) libraries.begin(fn, bucket);
    const loaded = await Promise.allSettled(
      planned.map((each, i) =>
        CpuStage.load(
          {
            plan,
            symbols,
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
    const states = new ReservedStates(
      resources.stages.map((stage) => stage.states),
      PIECE_BYTES,
    );
    if ((await states.resize(tokens.first)) < tokens.first) throw memoryError(use, options.besideBytes ?? 0);
    const bind = (fn: RuntimeFunction, bucket: number): void => {
      for (const stage of resources.stages) stage.bind(fn, bucket, libraries.loaded);
    };
    let readiness: CpuReadiness | undefined;
    if (options.compile !== undefined) {
      readiness = new CpuReadiness(libraries, bind);
      if (first.isForAll) {
        options.onLoaded?.();
        for (const { fn, bucket } of first.buckets) await readiness.prepare(fn, bucket);
      } else for (const { fn, bucket } of first.buckets) readiness.begin(fn, bucket);
    } else
      for (const fn of plan.functions)
        for (const bucket of fn.buckets.keys()) {
          await libraries.load(fn, bucket, false);
          bind(fn, bucket);
        }
    const runner = new CpuStages(resources.stages, { arenas, states }, () => release(resources), readiness);
    return new Executor({ plan, runner, memory: use, heldBytes: residentBytes(use), maxLength: options.maxLength });
  } catch (error) {
    await release(resources);
    throw error;
  }
}
