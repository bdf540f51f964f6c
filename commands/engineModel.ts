/** A loaded model as the engine takes it: its function `step`, on each replica. */
import { deviceModelOf, type DeviceModelOptions } from '../driver/devices/deviceModel.js';
import type { DeviceExecutor } from '../driver/executor.js';
import type { CompiledModel } from '../driver/targets/index.js';
import type { DeviceModel } from '../engine/device.js';
import type { MemoryBudget } from '../engine/memory.js';
import type { ModelDrafts } from '../engine/speculation.js';
import { Engine, type EngineModel } from '../engine/engine.js';
import { RESERVED_ROWS, STEP } from '../ir/function.js';
import { cacheTokensOf, takesLastTokens } from '../ir/stepping.js';
import type { LoadedModel } from './loadModel.js';
import { decodingSeconds, stepBudget } from './stepBudget.js';

/** How many pages replicas have beside other models. */
export interface EngineMemory {
  /** The budget of the device of each replica, from 0. */
  budgetOf(replica: number): MemoryBudget;
  /** Most tokens to keep. Default: what the budget gives. */
  readonly mostTokens?: number | undefined;
}

/** What a compiled model says about its steps. */
export const stepFacts = ({ plan, target }: CompiledModel): DeviceModelOptions => ({
  besideTokens: stepBudget(plan),
  takesPromptsApart: !target.devices.isHost,
  callSeconds: decodingSeconds(plan),
  feeds: takesLastTokens(plan),
});

/**
 * A loaded model as an engine takes it; replicas that are still loading join when they are ready. Without `memory` it
 * keeps as many tokens as it was opened for, and without `drafts` nothing is proposed behind its texts.
 */
export function engineModelOf(
  { executor, checkpoint, model }: LoadedModel,
  memory?: EngineMemory,
  drafts?: ModelDrafts,
): EngineModel {
  const { members } = executor;
  const kept = cacheTokensOf(model) ?? 0;
  const tokens = memory === undefined ? kept : Math.max(kept, memory.mostTokens ?? RESERVED_ROWS);
  const of = (replica: DeviceExecutor): DeviceModel =>
    deviceModelOf({ executor: replica, checkpoint }, tokens, {
      ...stepFacts(model),
      budget: memory?.budgetOf(
        Math.max(
          0,
          (members ?? []).findIndex((each) => each === replica),
        ),
      ),
    });
  const facts = { vocabSize: checkpoint.config.vocabSize, drafts };
  if (members === undefined) return { replicas: [of(executor)], ...facts };
  const isLoaded = ({ capacity }: DeviceExecutor): boolean => capacity[STEP] !== undefined;
  return {
    ...facts,
    replicas: members.filter(isLoaded).map(of),
    // The pool says who is left out.
    later: members.filter((member) => !isLoaded(member)).map((member) => member.opened().then(() => of(member))),
  };
}

/** An engine with this model alone. Closing it leaves the model open. */
export function engineOf(loaded: LoadedModel, drafts?: ModelDrafts): Engine {
  const engine = new Engine();
  engine.load('model', engineModelOf(loaded, undefined, drafts));
  return engine;
}
