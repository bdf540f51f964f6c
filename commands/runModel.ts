/** `run`: prepare, load, score, report. Questions are tokenized and packed while the model is compiled and loaded. */
import { clock, Phases } from '../driver/phases.js';
import type { Ui } from '../driver/requests.js';
import type { RunRequest, RunResult } from './runRequest.js';
import { shardName } from '../evaluate/index.js';
import { createTokenizer } from '../models/tokenizer/tokenizer.js';
import { counted } from '../system/text.js';
import { FirstAnswer } from './firstAnswer.js';
import { beginLoading } from './loadModel.js';
import { loadWithQuestions } from './loadQuestions.js';
import { planRun } from './planRun.js';
import { prepareRun } from './prepareRun.js';
import { reportRun } from './reportRun.js';
import { Interrupted } from './runRequest.js';
import { scoreSet } from './scoreSet.js';
import { tokenSource } from './tokenSource.js';
import { traceRun } from './trace.js';

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
  if (request.isDryRun === true)
    return planRun(request, prepared, [{ dataset: prepared.dataset, isLast: true }], loading, ui);
  const { model, questions, modelName } = await loadWithQuestions(loading, prepared, request, ui, phases);
  try {
    const loadSeconds = (performance.now() - begin) / 1000;
    const part = request.shard === undefined ? '' : `shard ${shardName(request.shard)} of `;
    ui.phase('score', `${part}${counted(prepared.dataset.questions.length, 'question')}, sharing ${request.sharing}`);
    const { output, resume, resumeCommand, signal, logsTokens: keepsTokens } = request;
    const first = new FirstAnswer(phases, ui);
    const onProgress = (): void => first.onProgress(model.executor);
    const options = { task: prepared.task, modelName, output, resume, resumeCommand, signal, onProgress, keepsTokens };
    const scored = await scoreSet(model, questions, options, ui);
    if (request.trace !== undefined)
      await traceRun(request.trace, {
        model,
        modelPath: request.model,
        modelName,
        threads: request.threads,
        phases,
        scorer: scored.scorer,
        start: first.start,
        questions: scored.isInterrupted ? undefined : questions,
      });
    if (scored.isInterrupted) throw new Interrupted(scored.scores.length);
    const tokens =
      keepsTokens === true ? await tokenSource(createTokenizer(model.tokenizer.spec), questions.loaded) : undefined;
    const { start } = first;
    return reportRun({ request, prepared, modelName, model, questions, scored, tokens, started, loadSeconds, start });
  } finally {
    await model.close();
  }
}
