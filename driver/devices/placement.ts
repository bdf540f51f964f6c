/** Where the parts of a compiled model go: what the devices have room for, and what its launches cost there. */
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { scoreOf } from '../../ir/plan.js';
import { kernelSeconds } from '../../autotune/index.js';
import { UserError } from '../../errors.js';
import { packedBytes, rowMaps } from '../../ir/packing.js';
import type { Parallelism } from '../../ir/placement.js';
import { placeStages, type PlacedStages, type PlacementFacts } from '../../passes/placeStages.js';
import { sizeInBytes } from '../../runtime/kernelCache.js';
import { readSettings } from '../../settings.js';
import type { CompiledModel, Rebuild } from '../targets/target.js';

export interface PlacementRequest {
  /** Of the whole run. */
  readonly devices: number;
  /** Absent: as memory and costs suggest. */
  readonly wanted?: Parallelism;
  readonly rebuild: Rebuild;
}

/** What a micro-batch of trees of questions is like: scored rows a token, and tokens of a tree. */
const SCORED = 0.6;
const LONGEST = 256;

/**
 * Places a model on devices of this machine. Depends on the plan, the devices and settings alone, so that processes
 * that ask the same come to the same. Throws UserError where it does not fit, or TILEWRIGHT_DEVICE_MEMORY is no size.
 */
export const placeModel = (model: CompiledModel, { devices, wanted, rebuild }: PlacementRequest): PlacedStages =>
  placeStages({
    ...factsOf(model),
    devices,
    roomOn: (count) => roomFor(model, count, Math.min(count, devices), rebuild),
    ...(wanted === undefined ? {} : { wanted }),
  });

/** The same on devices that have room for it, wherever they are. */
export const placeAnywhere = (model: CompiledModel, wanted: Parallelism): PlacedStages =>
  placeStages({ ...factsOf(model), devices: wanted.replicas * wanted.stages, roomOn: () => Infinity, wanted });

function factsOf(model: CompiledModel): Pick<PlacementFacts, 'plan' | 'costs' | 'weightBytes'> {
  const plan = scoreOf(model.plan);
  const rowMap = rowMaps();
  const tokens = tokensIn(plan.capacity);
  const size = scoringBucket({
    tokens,
    rows: Math.ceil(SCORED * tokens),
    longest: Math.min(plan.capacity.longest, LONGEST),
  });
  return {
    plan,
    costs: kernelSeconds(plan, model.target.rates(model.device), size, plan.bucketSeconds),
    // A host reads tables where they lie in the checkpoint.
    weightBytes: (weight) =>
      model.target.isHost && weight.layout === 'rows' ? 0 : packedBytes(weight, rowMap(weight).length),
  };
}

/**
 * Bytes that weights and activations may take of each of `devices`, which are like the first `present`.
 */
function roomFor(model: CompiledModel, devices: number, present: number, rebuild: Rebuild): number {
  const limit = deviceMemory();
  return limit ?? model.target.room(model.device, devices, present, rebuild);
}

/** TILEWRIGHT_DEVICE_MEMORY; undefined where it is not set. */
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
