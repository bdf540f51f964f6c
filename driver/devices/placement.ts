/**
 * Decides where the parts of a compiled model go, from the memory of the devices and the cost of its launches there.
 */
import { kernelSeconds } from '../../autotune/buckets.js';
import { UserError } from '../../errors.js';
import { packedBytes, rowMaps } from '../../ir/packing.js';
import { type Parallelism, scoreOf } from '../../ir/plan.js';
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { halvesOf, type PlacedStages, type PlacementFacts, placeStages } from '../../passes/placeStages.js';
import { sizeInBytes } from '../../runtime/kernelCache.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import type { CompiledModel, Rebuild } from '../targets/target.js';

export interface PlacementRequest {
  /** Number of devices of the whole run. */
  readonly devices: number;
  /** Default: chosen from memory and costs. */
  readonly wanted?: Parallelism;
  readonly rebuild: Rebuild;
}

/** A typical micro-batch of question trees: scored rows per token, and tokens per tree. */
const SCORED = 0.6;
const LONGEST = 256;

/**
 * Places a model on devices of this machine. The result depends only on the plan, the devices and the settings, so all
 * processes agree on it. Throws UserError if the model does not fit, or if TILEWRIGHT_DEVICE_MEMORY is not a size.
 */
export const placeModel = (model: CompiledModel, { devices, wanted, rebuild }: PlacementRequest): PlacedStages =>
  placeStages({
    ...factsOf(model),
    devices,
    roomOn: (count) => roomFor(model, count, Math.min(count, devices), rebuild),
    ...defined({ wanted }),
  });

/** The same for devices that are known to have room, wherever they are. */
export const placeAnywhere = (model: CompiledModel, wanted: Parallelism): PlacedStages =>
  placeStages({ ...factsOf(model), devices: wanted.replicas * wanted.stages, roomOn: () => Infinity, wanted });

/**
 * The function that scores, as if it used the states that other functions use in the same half of a layer: they are
 * placed together.
 */
function withAllStates({ plan }: CompiledModel): PlacementFacts['plan'] {
  const score = scoreOf(plan);
  const halves = halvesOf(score);
  const extra = new Map<number, string[]>();
  for (const { name } of plan.states) {
    if (score.launches.some(({ parameters }) => parameters.includes(name))) continue;
    const user = plan.functions.find(({ launches }) => launches.some(({ parameters }) => parameters.includes(name)))!;
    const half = halvesOf(user)[user.launches.findIndex(({ parameters }) => parameters.includes(name))]!;
    const at = halves.indexOf(half);
    if (at >= 0) extra.set(at, [...(extra.get(at) ?? []), name]);
  }
  const launches = score.launches.map((launch, i) => ({
    ...launch,
    parameters: [...launch.parameters, ...(extra.get(i) ?? [])],
  }));
  return { ...score, launches, arenaBytes: Math.max(...plan.functions.map(({ arenaBytes }) => arenaBytes)) };
}

function factsOf(model: CompiledModel): Pick<PlacementFacts, 'plan' | 'tokens' | 'costs' | 'weightBytes'> {
  const plan = scoreOf(model.plan);
  const rowMap = rowMaps();
  const tokens = tokensIn(plan.capacity);
  const size = scoringBucket({
    tokens,
    rows: Math.ceil(SCORED * tokens),
    longest: Math.min(plan.capacity.longest, LONGEST),
  });
  return {
    plan: withAllStates(model),
    tokens: model.cacheTokens,
    costs: kernelSeconds(plan, model.target.tuner.rates(model.device), size, plan.bucketSeconds),
    // A host reads tables in place, from the checkpoint.
    weightBytes: (weight) =>
      model.target.devices.isHost && weight.layout === 'rows' ? 0 : packedBytes(weight, rowMap(weight).length),
  };
}

/** Bytes available for weights and activations on each of `devices`, assuming that all are like the first `present`. */
export function roomFor(model: CompiledModel, devices: number, present: number, rebuild: Rebuild): number {
  const limit = deviceMemory();
  return limit ?? model.target.devices.memoryBytes(model.device, devices, present, rebuild);
}

/** TILEWRIGHT_DEVICE_MEMORY; undefined if it is not set. */
export function deviceMemory({ deviceMemory: text } = readSettings()): number | undefined {
  if (text === undefined) return undefined;
  const bytes = sizeInBytes(text);
  if (bytes === undefined)
    throw new UserError(
      `TILEWRIGHT_DEVICE_MEMORY is ${JSON.stringify(text.slice(0, 100))}, which is no size`,
      'export TILEWRIGHT_DEVICE_MEMORY=40GiB (KiB, MiB, GiB or TiB)',
    );
  return bytes;
}
