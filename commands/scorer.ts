/** The Scorer that evaluate/ needs: a client of an executor that calls the scoring function. */
import { type StateShape, treeInputs } from '../driver/devices/stateInputs.js';
import { stateShapeOf } from '../driver/devices/steps.js';
import { type DeviceExecutor, inFlightOf } from '../driver/executor.js';
import type { CompiledModel } from '../driver/targets/target.js';
import type { Capacity } from '../evaluate/packing.js';
import type {
  MicroBatch,
  PathBatch,
  PathLane,
  PathScorer,
  ScoredRows,
  Scorer,
  WalkLimits,
} from '../evaluate/scorer.js';
import { filterInputs } from '../engine/tokenEntries.js';
import { SCORE, STEP } from '../ir/function.js';
import type { FunctionPlan } from '../ir/plan.js';
import { keysIn, listPaths, rowsIn, tokensIn } from '../ir/scoring.js';
import { nothingFed, stepSize, type StepSize, takesLastTokens } from '../ir/stepping.js';
import type { CallArrays, CallResult } from '../runtime/call.js';
import { defined } from '../system/defined.js';
import { sizeOfCall } from './callWork.js';
import { Timeline } from './traceEvents.js';
import type { BatchWork, ScoredTokens } from './work.js';

/** A micro-batch as the named inputs of the `score` of an executor. */
export function scoreInputs(
  { tokens, position, subtreeEnd, row, target }: MicroBatch,
  { capacity }: Pick<DeviceExecutor, 'capacity'>,
): CallArrays {
  const extents = capacity[SCORE] ?? {};
  const sees = keysIn({ extents }) === undefined ? { subtreeEnd } : listPaths(position);
  return { tokens, position, ...sees, row, target };
}

/** The scores that `score` and `step` return. Throws if one is missing. */
export function scoredRows({ outputs: { logProb, isArgmax } }: CallResult): ScoredRows {
  if (!(logProb instanceof Float32Array && isArgmax instanceof Int32Array))
    throw new Error('The function gives no logProb or no isArgmax.');
  return { logProb, isArgmax };
}

/** Largest micro-batch of an executor. */
export function scoringLimits({ capacity }: Pick<DeviceExecutor, 'capacity'>): Capacity {
  const extents = capacity[SCORE];
  if (extents === undefined) throw new Error('The model has no function that scores.');
  return { maxTokens: tokensIn({ extents }), maxRows: rowsIn({ extents }), maxKeys: keysIn({ extents }) };
}

/** Estimated seconds for a micro-batch of (tokens, rows, longest tree). */
export type BatchCost = (tokens: number, rows: number, longest: number) => number;

/** Adds a cost, a context limit, a count of operations, and a record of what devices did. */
export class PlanScorer implements Scorer {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxKeys: number | undefined;
  readonly maxLength: number;
  readonly cost: BatchCost;
  readonly nonFiniteAdvice: string | undefined;
  private readonly executor: DeviceExecutor;
  private readonly work: BatchWork;
  private readonly functions: readonly Pick<FunctionPlan<unknown>, 'interface'>[] | undefined;
  private flops = 0;
  private asked = 0;
  /** When each device was busy with the questions scored so far. */
  readonly timeline = new Timeline();

  constructor(
    executor: DeviceExecutor,
    options: {
      readonly maxLength: number;
      readonly cost: BatchCost;
      readonly work: BatchWork;
      readonly nonFiniteAdvice?: string;
      /** Those of the plan: the work of a call is counted from their interfaces. */
      readonly functions?: PlanScorer['functions'];
    },
  ) {
    this.executor = executor;
    ({ maxTokens: this.maxTokens, maxRows: this.maxRows, maxKeys: this.maxKeys } = scoringLimits(executor));
    this.maxLength = options.maxLength;
    this.cost = options.cost;
    this.nonFiniteAdvice = options.nonFiniteAdvice;
    this.work = options.work;
    this.functions = options.functions;
  }

  get inFlight(): number {
    return inFlightOf(this.executor);
  }

  get replicas(): number {
    return this.executor.replicas ?? 1;
  }

  get devices(): number {
    return this.executor.devices ?? 1;
  }

  /** Floating-point operations of the model for everything scored so far. */
  get modelFlops(): number {
    return this.flops;
  }

  /** Counts a call, and what devices did for it. `index`: of all calls, in the order in which they were made. */
  record(index: number, batch: ScoredTokens, { spans }: CallResult, name: string, inputs: CallArrays): void {
    const of = this.functions?.find(({ interface: own }) => own.name === name);
    const call = of && spans && { function: name, size: sizeOfCall(of.interface, inputs, batch) };
    this.timeline.add(index, batch, spans, call);
    this.flops += this.work.flops(batch);
  }

  /** Numbers calls. */
  nextIndex(): number {
    return this.asked++;
  }

  async score(batch: MicroBatch): Promise<ScoredRows> {
    const index = this.nextIndex();
    // Nothing to score: no kernel has work, and the outputs have no rows.
    if (batch.row.length === 0) return { logProb: new Float32Array(0), isArgmax: new Int32Array(0) };
    const inputs = scoreInputs(batch, this.executor);
    const result = await this.executor.call(SCORE, inputs);
    this.record(index, batch, result, SCORE, inputs);
    return scoredRows(result);
  }
}

/** The PathScorer that evaluate/ needs: a client of an executor that calls the function `step`. */

/** What the function `step` of a model takes beside tokens, paths and rows. */
export interface StepShape {
  /** Whether it could take tokens that the call before it has drawn. */
  readonly feeds?: boolean | undefined;
  /** Rows of states of recurrent layers, if the model has such layers. */
  readonly states?: StateShape | undefined;
}

export const stepShapeOf = ({ plan }: Pick<CompiledModel, 'plan'>): StepShape => ({
  feeds: takesLastTokens(plan),
  states: stateShapeOf(plan),
});

/**
 * A call as the named inputs of `step`. Nothing is drawn: the most likely token comes for free. `filters`: the function
 * could choose tokens from their logits.
 */
export const stepInputs = (
  { states: trees, ...batch }: PathBatch,
  { feeds = false, states }: StepShape = {},
  filters = false,
): CallArrays => ({
  ...batch,
  ...(feeds ? nothingFed(batch.tokens.length, batch.row.length, filters ? 0 : undefined) : {}),
  ...(filters ? filterInputs([]) : {}),
  ...(trees === undefined || states === undefined ? {} : treeInputs(trees, states)),
  inverseTemperature: new Float32Array(batch.row.length),
  keyLow: new Int32Array(batch.row.length),
  keyHigh: new Int32Array(batch.row.length),
});

/** The memory of a model from call to call. */
export interface StepMemory extends StepShape {
  readonly cacheTokens: number;
}

/** The largest call of `step`, and what is kept behind it. */
export function walkLimits(
  { capacity }: Pick<DeviceExecutor, 'capacity'>,
  { cacheTokens, states }: StepMemory,
): WalkLimits & StepSize {
  const extents = capacity[STEP];
  if (extents === undefined) throw new Error('The model has no function that continues paths.');
  return { ...stepSize(extents), cacheRows: cacheTokens, ...defined({ states: states?.rows }) };
}

/** Scores over kept keys and values, on every replica. `scorer` records what devices do. */
export function planPathScorer(executor: DeviceExecutor, memory: StepMemory, scorer: PlanScorer): PathScorer {
  const replicas = executor.members ?? [executor];
  return {
    limits: walkLimits(executor, memory),
    lanes: replicas.length,
    nonFiniteAdvice: scorer.nonFiniteAdvice,
    open: (index) => openLane(replicas[index]!, index, scorer, memory),
  };
}

/** A replica once it has loaded the model. The lane ends with the process. */
async function openLane(
  replica: DeviceExecutor,
  index: number,
  scorer: PlanScorer,
  memory: StepMemory,
): Promise<PathLane> {
  await replica.opened?.();
  const { epoch } = replica;
  const { filtered } = walkLimits(replica, memory);
  const firstDevice = index * (replica.devices ?? 1);
  return {
    inFlight: inFlightOf(replica),
    score: async (batch) => {
      const number = scorer.nextIndex();
      const inputs = stepInputs(batch, memory, filtered !== undefined);
      const result = await replica.call(STEP, inputs, epoch);
      const spans = result.spans?.map((span) => ({ ...span, device: firstDevice + span.device }));
      scorer.record(number, batch, spans === undefined ? result : { ...result, spans }, STEP, inputs);
      return scoredRows(result);
    },
  };
}
