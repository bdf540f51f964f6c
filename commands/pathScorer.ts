/** The PathScorer that evaluate/ needs: a client of an executor that calls the function `step`. */
import { type DeviceExecutor, inFlightOf } from '../driver/devices/executor.js';
import type { PathBatch, PathLane, PathScorer, WalkLimits } from '../evaluate/scorer.js';
import { filterInputs } from '../generate/filterRows.js';
import { STEP } from '../ir/function.js';
import { nothingFed, stepSize, type StepSize } from '../ir/stepping.js';
import type { CallArrays } from '../runtime/call.js';
import { type PlanScorer, scoredRows } from './scorer.js';

/**
 * A call as the named inputs of `step`. Nothing is drawn: the most likely token comes for free. `feeds`: it could take
 * tokens that the call before it has drawn; `filters`: it could choose tokens from their logits.
 */
export const stepInputs = (batch: PathBatch, feeds = false, filters = false): CallArrays => ({
  ...batch,
  ...(feeds ? nothingFed(batch.tokens.length, batch.row.length, filters ? 0 : undefined) : {}),
  ...(filters ? filterInputs([]) : {}),
  inverseTemperature: new Float32Array(batch.row.length),
  keyLow: new Int32Array(batch.row.length),
  keyHigh: new Int32Array(batch.row.length),
});

/** The largest call of `step`, and its cache. */
export function walkLimits({ capacity }: Pick<DeviceExecutor, 'capacity'>, cacheRows: number): WalkLimits & StepSize {
  const extents = capacity[STEP];
  if (extents === undefined) throw new Error('The model has no function that continues paths.');
  return { ...stepSize(extents), cacheRows };
}

/** The memory that a model has for keys and values. */
export interface StepMemory {
  readonly cacheTokens: number;
  /** Whether `step` can take tokens that the call before it has drawn. */
  readonly feeds?: boolean;
}

/** Scores over kept keys and values, on every replica. `scorer` records what devices do. */
export function planPathScorer(
  executor: DeviceExecutor,
  { cacheTokens, feeds = false }: StepMemory,
  scorer: PlanScorer,
): PathScorer {
  const replicas = executor.members ?? [executor];
  return {
    limits: walkLimits(executor, cacheTokens),
    lanes: replicas.length,
    nonFiniteAdvice: scorer.nonFiniteAdvice,
    open: (index) => openLane(replicas[index]!, index, scorer, feeds),
  };
}

/** A replica once it has loaded the model. The lane ends with the process. */
async function openLane(replica: DeviceExecutor, index: number, scorer: PlanScorer, feeds: boolean): Promise<PathLane> {
  await replica.opened?.();
  const { epoch } = replica;
  const { filtered } = walkLimits(replica, 0);
  const firstDevice = index * (replica.devices ?? 1);
  return {
    inFlight: inFlightOf(replica),
    score: async (batch) => {
      const number = scorer.nextIndex();
      const inputs = stepInputs(batch, feeds, filtered !== undefined);
      const result = await replica.call(STEP, inputs, epoch);
      const spans = result.spans?.map((span) => ({ ...span, device: firstDevice + span.device }));
      scorer.record(number, batch, spans === undefined ? result : { ...result, spans }, STEP, inputs);
      return scoredRows(result);
    },
  };
}
