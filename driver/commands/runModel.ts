/** `run`: prepare, load, score, report. Questions are tokenised and packed while the model is compiled and loaded. */
import { checkResumed, claimModelName, modelFolder, shardName, treeSharing } from '../../eval/index.js';
import { beginLoading, type LoadedModel, type ModelLoading } from './loadModel.js';
import { counted } from '../../system/format.js';
import { clock, Phases, printPhases } from '../phases.js';
import { prepareRun, type PreparedRun } from './prepareRun.js';
import { mayKeepPrefixes, mayNeedCache } from './prefixes.js';
import { packQuestions, tokenise, type PackedQuestions } from './questionSet.js';
import { packWithCache } from './cachedContexts.js';
import { planRun } from './planRun.js';
import { reportRun } from './reportRun.js';
import { Interrupted, type RunRequest, type RunResult, type Ui } from '../requests.js';
import { scoreSet, type ScoredSet } from './scoreSet.js';
import { profileEvents, timelineEvents, writeTrace } from './trace.js';

export async function runModel(request: RunRequest, ui: Ui): Promise<RunResult> {
  const started = new Date(clock());
  const begin = performance.now();
  const phases = new Phases();
  phases.begin('questions');
  const prepared = await prepareRun(request);
  phases.begin('open');
  // Whether the model gets memory for keys and values follows from the questions.
  const { cacheTokens: _, ...scoring } = request;
  const loading = beginLoading(scoring, ui, phases);
  if (request.isDryRun === true) return planRun(request, prepared, loading, ui);
  const { model, questions, modelName } = await loadWithQuestions(loading, prepared, request, ui, phases);
  try {
    const loadSeconds = (performance.now() - begin) / 1000;
    const part = request.shard === undefined ? '' : `shard ${shardName(request.shard)} of `;
    ui.phase('score', `${part}${counted(prepared.dataset.questions.length, 'question')}, sharing ${request.sharing}`);
    const { output, resume, resumeCommand, signal } = request;
    const onProgress = firstAnswer(phases, model, ui);
    const options = { task: prepared.task, modelName, output, resume, resumeCommand, signal, onProgress };
    const scored = await scoreSet(model, questions, options, ui);
    if (request.trace !== undefined) await traceRun(request.trace, model, questions, scored);
    if (scored.isInterrupted) throw new Interrupted(scored.scores.length);
    return reportRun({ request, prepared, modelName, model, questions, scored, started, loadSeconds });
  } finally {
    await model.close();
  }
}

/** The loaded model, and the questions packed for it. */
async function loadWithQuestions(
  loading: ModelLoading,
  prepared: PreparedRun,
  request: RunRequest,
  ui: Ui,
  phases: Phases,
): Promise<{ readonly model: LoadedModel; readonly questions: PackedQuestions; readonly modelName: string }> {
  const { dataset } = prepared;
  // What is kept is a matter of tokens, which must be counted before the model is compiled.
  const maySave = mayKeepPrefixes(request, dataset.questions) || request.sharing === 'kv';
  // Whether a journal belongs to this run is known before anything is compiled. Other runs need not wait for samples of
  // the weights before they tokenise.
  let modelName = request.resume ? settleName(prepared, loading, request, ui) : undefined;
  const tokens = phases.during('tokenise', () => tokenise(dataset, loading));
  phases.end();
  let packing: Promise<PackedQuestions> | undefined;
  // Both are awaited below. A failure before that must not count as an unhandled rejection.
  tokens.catch(() => undefined);
  const isChosenByTokens = maySave || (await mayNeedCache(loading, request, dataset.questions));
  if (isChosenByTokens) {
    ui.phase('tokenise', request.data);
    const chosen = await packWithCache(loading, request, await tokens);
    ui.note(chosen.note);
    packing = Promise.resolve(chosen);
  }
  const model = await loading.finish((limits) => {
    modelName ??= settleName(prepared, loading, request, ui);
    packing ??= tokens.then((loaded) =>
      phases.during('pack', () => Promise.resolve(packQuestions(loaded, request, limits))),
    );
    packing.catch(() => undefined);
  });
  try {
    if (!isChosenByTokens) ui.phase('tokenise', request.data);
    const questions = (await packing) ?? packQuestions(await tokens, request, model.limits);
    if (questions.truncatedChoices > 0) {
      ui.warn(
        `${counted(questions.truncatedChoices, 'choice')} too long, with the context, for the model's ` +
          `${model.limits.contextLength} tokens: the beginning of the context is left out ` +
          '(--overlong refuse stops instead)',
      );
    }
    return { model, questions, modelName: modelName ?? prepared.modelName };
  } catch (error) {
    await model.close();
    throw error;
  }
}

/**
 * The name under which results are kept, now that the checkpoint is known. Throws UserError if the journal there is
 * that of another run, and this one is to resume.
 */
function settleName(
  { task, modelName, dataset }: PreparedRun,
  { checkpointId, tokenizer }: Pick<ModelLoading, 'checkpointId' | 'tokenizer'>,
  { output, resume, shard, sharing }: RunRequest,
  ui: Ui,
): string {
  if (output === undefined) return modelName;
  const checkpoint = checkpointId();
  const name = claimModelName(output, modelName, checkpoint);
  if (name !== modelName) {
    ui.note(
      `${modelFolder(output, modelName)} belongs to another checkpoint; ` +
        `this one's results go to ${modelFolder(output, name)} (--model-name chooses a name)`,
    );
  }
  const identity = { checkpoint, tokenizer: tokenizer.hash };
  if (resume) checkResumed({ out: output, modelName: name, shard, task, dataset, sharing, identity });
  return name;
}

/** Listens to progress events and reports once how the time until the first answer was spent. */
function firstAnswer(phases: Phases, { executor }: LoadedModel, ui: Ui): () => void {
  let calls = 0;
  return () => {
    calls++;
    // The first event comes when everything is packed, the second with the first answer.
    if (calls === 1) phases.begin('first micro-batch');
    if (calls !== 2) return;
    phases.end();
    ui.note(printPhases(phases.spans, executor.phases ?? []));
  };
}

async function traceRun(
  path: string,
  { executor, devices }: LoadedModel,
  { loaded, sharing }: PackedQuestions,
  { scorer, isInterrupted }: ScoredSet,
): Promise<void> {
  const { timeline } = scorer;
  const kernels = isInterrupted
    ? []
    : await profileEvents(executor, loaded, treeSharing(sharing), scorer, { timeline, pid: devices + 1 });
  writeTrace(path, [...timelineEvents(timeline, devices), ...kernels]);
}
