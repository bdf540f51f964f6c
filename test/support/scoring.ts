/** Executors of one function that scores tokens, in the terms of tests: micro-batches in, log-probabilities out. */
import type { LoadedModel } from '../../commands/loadModel.js';
import { scoredRows, scoreInputs, scoringLimits } from '../../commands/scorer.js';
import type { DeviceExecutor } from '../../driver/executor.js';
import type { MicroBatch, ScoredRows } from '../../evaluate/scorer.js';
import { SCORE } from '../../ir/function.js';
import type { Bucket, LinkedFunction, Stage } from '../../ir/plan.js';
import type { CallResult, Diagnosis, LaunchProfile } from '../../runtime/call.js';
import type { PlanSymbols } from '../../runtime/cpu/buckets.js';
import type { MemoryUse } from '../../runtime/cpu/memoryUse.js';
import { type CpuExecutorOptions, openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import type { PlanKernels } from '../../runtime/cuda/bindProgram.js';
import type { CudaMemoryUse } from '../../runtime/cuda/memoryUse.js';
import { type CudaExecutorOptions, openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import type { Executor } from '../../runtime/executor.js';
import type { RuntimePlan } from '../../runtime/runtimePlan.js';

export type { MicroBatch as Batch } from '../../evaluate/scorer.js';

/** Micro-batches through `score` of an executor. */
export class Scoring<Memory> {
  readonly executor: Executor<Memory>;
  readonly maxTokens: number;
  readonly maxRows: number;

  constructor(executor: Executor<Memory>) {
    this.executor = executor;
    ({ maxTokens: this.maxTokens, maxRows: this.maxRows } = scoringLimits(executor));
  }

  get inFlight(): number {
    return this.executor.inFlight;
  }

  score(batch: MicroBatch): ReturnType<typeof scoreWith> {
    return scoreWith(this.executor, batch);
  }

  profile(batch: MicroBatch): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    return this.executor.profile(SCORE, scoreInputs(batch, this.executor));
  }

  diagnose(batch: MicroBatch): Promise<Diagnosis | undefined> {
    return this.executor.diagnose(SCORE, scoreInputs(batch, this.executor));
  }

  memory(): Memory {
    return this.executor.memory;
  }

  close(): Promise<void> {
    return this.executor.close();
  }
}

/** A micro-batch through an executor of any kind. */
export async function scoreWith(
  executor: Pick<DeviceExecutor, 'call' | 'capacity'>,
  batch: MicroBatch,
): Promise<ScoredRows & Pick<CallResult, 'spans'>> {
  const result = await executor.call(SCORE, scoreInputs(batch, executor));
  return { ...scoredRows(result), ...(result.spans === undefined ? {} : { spans: result.spans }) };
}

/** The plan of a single function. */
export function planOf({ weights, constants, states, ...fn }: Omit<LinkedFunction, 'schedules'>): RuntimePlan {
  return { functions: [fn], weights, constants, states };
}

interface OneFunction {
  readonly plan: Omit<LinkedFunction, 'schedules'>;
  readonly stages?: readonly Stage[];
}

const stagesOf = (stages: readonly Stage[] | undefined): Pick<CpuExecutorOptions, 'stages'> =>
  stages === undefined ? {} : { stages: { [SCORE]: stages } };

export interface CpuScoringOptions extends Omit<CpuExecutorOptions, 'plan' | 'symbols' | 'stages'>, OneFunction {
  /** [bucket][launch] */
  readonly symbols: PlanSymbols[string];
}

export type CpuScoring = Scoring<MemoryUse>;

export const openCpu = async ({ plan, symbols, stages, ...rest }: CpuScoringOptions): Promise<CpuScoring> =>
  new Scoring(
    await openCpuExecutor({ plan: planOf(plan), symbols: { [SCORE]: symbols }, ...stagesOf(stages), ...rest }),
  );

export interface CudaScoringOptions extends Omit<CudaExecutorOptions, 'plan' | 'kernels' | 'stages'>, OneFunction {
  /** [bucket][launch] */
  readonly kernels: PlanKernels[string];
}

export type CudaScoring = Scoring<readonly CudaMemoryUse[]>;

export const openCuda = async ({ plan, kernels, stages, ...rest }: CudaScoringOptions): Promise<CudaScoring> =>
  new Scoring(
    await openCudaExecutor({ plan: planOf(plan), kernels: { [SCORE]: kernels }, ...stagesOf(stages), ...rest }),
  );

// Sequences by the function score, one call each.

/** Log-probabilities of every token but the first. */
export async function scoreSequence({ executor }: LoadedModel, tokens: readonly number[]): Promise<number[]> {
  const all = Int32Array.from(tokens, (_, i) => i);
  const batch = {
    tokens: Int32Array.from(tokens),
    position: all,
    subtreeEnd: all.map(() => tokens.length),
    row: all.slice(0, -1),
    target: Int32Array.from(tokens.slice(1)),
  };
  return Array.from(scoredRows(await executor.call(SCORE, scoreInputs(batch, executor))).logProb);
}

export const scoreSequences = (model: LoadedModel, sequences: readonly (readonly number[])[]): Promise<number[][]> =>
  Promise.all(sequences.map((tokens) => scoreSequence(model, tokens)));
