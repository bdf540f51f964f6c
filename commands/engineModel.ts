/** A loaded model as the engine takes it: its function `step`, on each replica. */
import { ProcessEnded } from '../driver/devices/protocol.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { cacheTokensOf } from '../driver/functions.js';
import { Engine, type EngineModel } from '../engine/engine.js';
import { StateLost, type StepOutputs, type Stepper } from '../engine/scheduler.js';
import { STEP } from '../ir/function.js';
import { LAST_TOKEN_ROWS, nothingFed, stepSize, takesLastTokens } from '../ir/stepping.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { CallResult } from '../runtime/call.js';
import { defined } from '../system/defined.js';
import type { LoadedModel } from './loadModel.js';
import { stepBudget } from './stepBudget.js';

export interface StepperOptions {
  /** Whether it can take tokens that the call before it has drawn. */
  readonly feeds?: boolean;
  /** Most tokens of a call in which texts wait for their next token. */
  readonly besideTokens?: number;
}

/** A model whose function `step` keeps keys and values for `cacheTokens`, on one replica. */
export function stepperOf(
  { executor, checkpoint }: { readonly executor: DeviceExecutor; readonly checkpoint: Pick<Checkpoint, 'config'> },
  cacheTokens: number,
  { feeds = false, besideTokens = Infinity }: StepperOptions = {},
): Stepper {
  const capacity = executor.capacity[STEP];
  if (capacity === undefined) throw new Error('The model has no function that generates.');
  const { devices: stages = 1 } = executor;
  // The last stage of a pipeline draws what the first one needs: its calls overlap with those of other sequences.
  const overlap = stages > 1 ? { groups: stages } : feeds ? { keptRows: LAST_TOKEN_ROWS } : {};
  const unfed = feeds && stages > 1;
  const size = stepSize(capacity);
  // The pages that the scheduler knows of are in the memory of this epoch, until it is told that they are lost.
  let { epoch } = executor;
  return {
    limits: { ...size, ...overlap, besideTokens },
    cacheTokens,
    maxLength: checkpoint.config.maxPositions,
    vocab: size.filtered === undefined ? undefined : checkpoint.config.vocabSize,
    step: async (inputs) => {
      try {
        const given = unfed ? nothingFed(inputs.tokens.length, inputs.row.length, inputs.topK?.length) : {};
        return stepOutputs(await executor.call(STEP, { ...inputs, ...given }, epoch));
      } catch (error) {
        throw error instanceof ProcessEnded ? new StateLost(error.message, error.wasAsked) : error;
      }
    },
    ...(executor.opened === undefined
      ? {}
      : {
          isLost: () => executor.epoch !== epoch,
          recovered: async () => {
            await executor.opened!();
            epoch = executor.epoch;
          },
        }),
  };
}

/** A loaded model as an engine takes it; replicas that are still loading join when they are ready. */
export function engineModelOf({ executor, checkpoint, model }: LoadedModel): EngineModel {
  const of = (replica: DeviceExecutor): Stepper =>
    stepperOf({ executor: replica, checkpoint }, cacheTokensOf(model) ?? 0, {
      besideTokens: stepBudget(model.plan),
      feeds: takesLastTokens(model.plan),
    });
  const { members } = executor;
  const { vocabSize } = checkpoint.config;
  if (members === undefined) return { steppers: [of(executor)], vocabSize };
  const isLoaded = ({ capacity }: DeviceExecutor): boolean => capacity[STEP] !== undefined;
  return {
    vocabSize,
    steppers: members.filter(isLoaded).map(of),
    // The pool says who is left out.
    later: members.filter((member) => !isLoaded(member)).map((member) => member.opened().then(() => of(member))),
  };
}

/** An engine with this model alone. Closing it leaves the model open. */
export function engineOf(loaded: LoadedModel): Engine {
  const engine = new Engine();
  engine.load('model', engineModelOf(loaded));
  return engine;
}

function stepOutputs({ outputs }: CallResult): StepOutputs {
  const f32 = (name: string): Float32Array => {
    const found = outputs[name];
    if (found instanceof Float32Array) return found;
    throw new Error(`The function step gives no numbers ${name}.`);
  };
  const i32 = (name: string): Int32Array => {
    const found = outputs[name];
    if (found instanceof Int32Array) return found;
    throw new Error(`The function step gives no whole numbers ${name}.`);
  };
  return {
    logProb: f32('logProb'),
    isArgmax: i32('isArgmax'),
    nextToken: i32('nextToken'),
    nextTokenLogProb: f32('nextTokenLogProb'),
    ...defined({
      filtered: outputs['filteredToken'] && {
        token: i32('filteredToken'),
        logProb: f32('filteredTokenLogProb'),
        topTokens: i32('topTokens'),
        topLogProbs: f32('topLogProbs'),
      },
    }),
  };
}
