/** What a trace says beside its events (report/document/trace.ts): peaks, kernels, memory, versions. */
import type { Peaks } from '../autotune/peaks.js';
import { arithmeticName } from '../driver/precision.js';
import { VERSION } from '../driver/program.js';
import type { StartUp } from '../evaluate/resultTypes.js';
import { scoreOf, stateBytes } from '../ir/plan.js';
import { TRACE_FORMAT, type TraceFacts } from '../report/document/trace.js';
import { defined } from '../system/defined.js';
import { arenaBuffers, weightBytes } from './inspectMemory.js';
import type { LoadedModel } from './loadModel.js';

/** Kernels and buffers of the largest plans, several times. */
const MAX_ENTRIES = 20_000;

export function traceFacts(
  {
    model: loaded,
    modelName,
    start,
  }: { readonly model: LoadedModel; readonly modelName: string; readonly start: StartUp | undefined },
  peaks: Peaks,
): TraceFacts {
  const { model, checkpoint, parallelism } = loaded;
  const score = scoreOf(model.plan);
  const weights = weightBytes(score, checkpoint);
  return {
    format: TRACE_FORMAT,
    version: VERSION,
    model: modelName,
    isa: model.isa,
    arithmetic: arithmeticName(model),
    replicas: parallelism.replicas,
    stages: parallelism.stages,
    peaks,
    ...defined({ start }),
    kernels: score.kernels
      .slice(0, MAX_ENTRIES)
      .map(({ path, anchor }, i) => ({ path, anchor, signature: score.launches[i]!.signature })),
    memory: {
      arenaBytes: score.arenaBytes,
      buffers: arenaBuffers(score).slice(0, MAX_ENTRIES),
      states: model.plan.states.map((state) => ({ name: state.name, bytes: stateBytes(state) })),
      ...defined({ weights }),
    },
  };
}
