/** The second step of a run, beside its questions: they are tokenized while the model is compiled and loaded. */
import type { Phases } from '../driver/phases.js';
import type { Ui } from '../driver/requests.js';
import type { Dataset } from '../evaluate/dataset.js';
import { checkResumed, type LoadedQuestions } from '../evaluate/evaluate.js';
import { claimModelName, modelFolder } from '../evaluate/output.js';
import { counted, inParts } from '../system/text.js';
import { EarlyModel, type FinishOptions, type LoadedModel, type ModelLoading, stepsFirst } from './loadModel.js';
import type { ModelLimits } from './modelLimits.js';
import { compileAhead, mayKeepPrefixes, mayNeedCache, packWithCache, tellOfPacking } from './prefixes.js';
import { type PackedQuestions, packQuestions, prepareCalls, tokenize } from './questionSet.js';
import type { ScoreRequest } from './runRequest.js';
import type { TaskSource } from './sources.js';

export interface PreparedQuestions extends Pick<TaskSource, 'task' | 'title' | 'modelName'> {
  readonly dataset: Dataset;
  /** Stands in for a context without tokens; without it, such a context is refused. */
  readonly prefixToken?: number | undefined;
  /** More sets follow, which the model is to be ready for. */
  readonly isFirst?: boolean | undefined;
}

/** The loaded model, and the questions packed for it. `begun`: their tokens, if tokenizing has begun. */
export async function loadWithQuestions(
  loading: ModelLoading,
  prepared: PreparedQuestions,
  request: ScoreRequest,
  ui: Ui,
  phases: Phases,
  begun?: Promise<LoadedQuestions>,
): Promise<{ readonly model: LoadedModel; readonly questions: PackedQuestions; readonly modelName: string }> {
  const { dataset, title, prefixToken } = prepared;
  // What is kept is a matter of tokens, which must be counted before the model is compiled.
  const isFirst = prepared.isFirst === true;
  const maySave = isFirst || mayKeepPrefixes(request, dataset.questions) || request.sharing === 'kv';
  // Whether a journal belongs to this run is known before anything is compiled. That takes samples of the weights, for
  // which other runs need not wait.
  let modelName = request.resume ? settleName(prepared, loading, request, ui) : undefined;
  const tokens = begun ?? phases.during('tokenize', () => tokenize(dataset, loading, prefixToken));
  phases.end();
  let packing: Promise<PackedQuestions> | undefined;
  let first: Pick<FinishOptions, 'first'> = {};
  // Both are awaited below. A failure before that must not count as an unhandled rejection.
  tokens.catch(() => undefined);
  const whenCompiled = (limits: ModelLimits): void => {
    modelName ??= settleName(prepared, loading, request, ui);
    packing ??= tokens.then((loaded) =>
      phases.during('pack', async () => {
        const packed = await inParts(packQuestions(loaded, request, limits));
        await prepareCalls(packed);
        return packed;
      }),
    );
    packing.catch(() => undefined);
  };
  let loaded: LoadedModel | undefined;
  const isChosenByTokens = maySave || (await mayNeedCache(loading, request, dataset.questions));
  if (isChosenByTokens) {
    const compiled = await compileAhead(loading, request, dataset.questions, isFirst);
    ui.phase('tokenize', title);
    let early: EarlyModel | undefined;
    const release = async (): Promise<void> => early?.close();
    const ahead = { ...compiled, release };
    packing = tokens
      .then((all) => phases.during('pack', () => packWithCache(loading, request, all, { isFirst, ahead })))
      .then(async (chosen) => {
        tellOfPacking(chosen, ui);
        if (chosen.opened !== compiled.opened) await release();
        if (chosen.cacheTokens !== undefined) first = stepsFirst(chosen.opened);
        await prepareCalls(chosen);
        return chosen;
      });
    packing.catch(() => undefined);
    // Weights are loaded while questions become tokens.
    if (compiled.isCertain)
      early = new EarlyModel(loading.finish({ onCompiled: whenCompiled, ...stepsFirst(compiled.opened) }));
    try {
      await packing;
      loaded = await early?.take();
    } finally {
      await release();
    }
  }
  const model = loaded ?? (await loading.finish({ onCompiled: whenCompiled, ...first }));
  try {
    if (!isChosenByTokens) ui.phase('tokenize', title);
    const questions = (await packing) ?? (await inParts(packQuestions(await tokens, request, model.limits)));
    warnOfTruncated(questions, model, ui);
    return { model, questions, modelName: modelName ?? prepared.modelName };
  } catch (error) {
    await model.close();
    throw error;
  }
}

export function warnOfTruncated({ truncatedChoices }: PackedQuestions, { limits }: LoadedModel, ui: Ui): void {
  if (truncatedChoices === 0) return;
  ui.warn(
    `${counted(truncatedChoices, 'choice is', 'choices are')} too long, with the context, for the model's ` +
      `${limits.contextLength} tokens: the beginning of the context is left out (--overlong refuse stops instead)`,
  );
}

/**
 * The name under which results are kept, now that the checkpoint is known. Throws UserError if the journal there is
 * that of another run, and this one is to resume.
 */
export function settleName(
  { task, modelName, dataset }: PreparedQuestions,
  { checkpointId, tokenizer }: Pick<ModelLoading, 'checkpointId' | 'tokenizer'>,
  { output, resume, shard, sharing }: ScoreRequest,
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
