/** The second step of a run, beside its questions: they are tokenised while the model is compiled and loaded. */
import { checkResumed, claimModelName, modelFolder, type LoadedQuestions } from '../../eval/index.js';
import { counted } from '../../system/format.js';
import { inParts } from '../../system/parts.js';
import type { Phases } from '../phases.js';
import type { ScoreRequest, Ui } from '../requests.js';
import { packWithCache } from './cachedContexts.js';
import type { OpenedModel } from '../compile/open.js';
import type { LoadedModel, ModelLoading } from './loadModel.js';
import type { ModelLimits } from './modelLimits.js';
import type { PreparedQuestions } from './prepareRun.js';
import { compileAhead, mayKeepPrefixes, mayNeedCache, tellOfPacking, type PackedWithCache } from './prefixes.js';
import { packQuestions, prepareCalls, tokenise, type PackedQuestions } from './questionSet.js';

/** The loaded model, and the questions packed for it. `begun`: their tokens, if tokenising has begun. */
export async function loadWithQuestions(
  loading: ModelLoading,
  prepared: PreparedQuestions,
  request: ScoreRequest,
  ui: Ui,
  phases: Phases,
  begun?: Promise<LoadedQuestions>,
): Promise<{ readonly model: LoadedModel; readonly questions: PackedQuestions; readonly modelName: string }> {
  const { dataset, source, prefixToken } = prepared;
  // What is kept is a matter of tokens, which must be counted before the model is compiled.
  const isFirst = prepared.isFirst === true;
  const maySave = isFirst || mayKeepPrefixes(request, dataset.questions) || request.sharing === 'kv';
  // Whether a journal belongs to this run is known before anything is compiled. That takes samples of the weights, for
  // which other runs need not wait.
  let modelName = request.resume ? settleName(prepared, loading, request, ui) : undefined;
  const tokens = begun ?? phases.during('tokenise', () => tokenise(dataset, loading, prefixToken));
  phases.end();
  let packing: Promise<PackedQuestions> | undefined;
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
  let model: LoadedModel | undefined;
  const isChosenByTokens = maySave || (await mayNeedCache(loading, request, dataset.questions));
  if (isChosenByTokens) {
    const ahead = await compileAhead(loading, request, dataset.questions, isFirst);
    ui.phase('tokenise', source);
    const choosing = tokens.then((loaded) =>
      phases.during('pack', () => packWithCache(loading, request, loaded, { isFirst, ahead })),
    );
    packing = choosing.then(async (chosen) => {
      tellOfPacking(chosen, ui);
      await prepareCalls(chosen);
      return chosen;
    });
    packing.catch(() => undefined);
    // Weights are loaded while questions become tokens.
    if (ahead.isCertain) model = await ifStill(loading.finish({ onCompiled: whenCompiled }), choosing, ahead.opened);
    else await choosing;
  }
  model ??= await loading.finish({ onCompiled: whenCompiled });
  try {
    if (!isChosenByTokens) ui.phase('tokenise', source);
    const questions = (await packing) ?? (await inParts(packQuestions(await tokens, request, model.limits)));
    warnOfTruncated(questions, model, ui);
    return { model, questions, modelName: modelName ?? prepared.modelName };
  } catch (error) {
    await model.close();
    throw error;
  }
}

/**
 * The model that is being loaded, if it turns out to be the one that questions are packed for; else it is closed. It is
 * closed, too, where packing fails, and what failed is thrown.
 */
async function ifStill(
  loading: Promise<LoadedModel>,
  choosing: Promise<PackedWithCache>,
  expected: OpenedModel,
): Promise<LoadedModel | undefined> {
  // It is awaited below.
  loading.catch(() => undefined);
  const chosen = await choosing.catch((error: unknown) => ({ error }));
  if ('opened' in chosen && chosen.opened === expected) return loading;
  await loading.then(
    (model) => model.close(),
    () => undefined,
  );
  if ('error' in chosen) throw chosen.error;
  return undefined;
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
