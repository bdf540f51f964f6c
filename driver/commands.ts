/**
 * The three commands as functions: the public interface of tilewright. What `compile` does not need (tokenizers, the
 * evaluation) is loaded when asked for.
 */
import { scoreOf } from '../ir/plan.js';
import { detectMachine } from './machine.js';
import { prepareArtifact, saveArtifact } from './artifact.js';
import { chooseTarget, type ChosenTarget } from './devices/chooseTarget.js';
import { openOrCompile } from './open.js';
import type { CompileRequest, CompileResult, RunRequest, RunResult, TuneRequest, TuneResult, Ui } from './requests.js';
import type { Asked } from './target.js';
import { packedWeightBytes } from './work.js';

/** Model → artifact, kernels compiled into this machine's cache. */
export async function compile(asked: Asked<CompileRequest>, ui: Ui): Promise<CompileResult> {
  const begin = performance.now();
  prepareArtifact(asked.output);
  const { target: _, ...rest } = asked;
  const request = { ...rest, ...(await settleTarget(asked, ui)) };
  const machine = detectMachine();
  ui.phase('open model', request.model);
  const { reference, model } = await openOrCompile(request, machine, ui);
  const { launches, arenaBytes } = scoreOf(model.plan);
  const signatures = new Set(launches.map((launch) => launch.signature));
  ui.phase('compile kernels', `${signatures.size} distinct of ${launches.length}`);
  const compiled = await model.target.compile(model, {
    onProgress: ({ done, total }) => ui.step(done / total, `${done} of ${total}`),
  });
  ui.phase('write', request.output);
  saveArtifact(request.output, reference, model, compiled.sources, false);
  return {
    artifact: request.output,
    isa: model.isa,
    arithmetic: model.arithmetic,
    kernels: launches.length,
    distinctKernels: signatures.size,
    arenaBytes,
    packedWeightBytes: packedWeightBytes(model.plan),
    seconds: (performance.now() - begin) / 1000,
    cached: compiled.isCached,
  };
}

/** Artifact → the same artifact with the best schedules found within a time budget. */
export const tune = async (request: TuneRequest, ui: Ui): Promise<TuneResult> =>
  (await import('./tuneModel.js')).tuneModel(request, ui);

/** Checkpoint or artifact, and a question set → results. */
export async function run(asked: Asked<RunRequest>, ui: Ui): Promise<RunResult> {
  const { target: _, ...rest } = asked;
  const request = { ...rest, ...(await settleTarget(asked, ui)) };
  if (request.output === undefined) ui.note('no --out: results are printed, nothing is written');
  return (await import('./runModel.js')).runModel(request, ui);
}

/** The target that was asked for, or what `auto` comes to: the first thing that is said. */
export async function settleTarget(
  asked: Parameters<typeof chooseTarget>[0],
  ui: Pick<Ui, 'note'>,
): Promise<Pick<ChosenTarget, 'target'>> {
  const { target, line } = await chooseTarget(asked);
  ui.note(`target: ${line}`);
  return target === undefined ? {} : { target };
}
