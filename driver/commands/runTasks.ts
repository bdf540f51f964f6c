/** `run --tasks`: prompts of all tasks, one load, one forest; then results in the public harness's layout. */
import { answersOfGroups, answersOfTask } from '../../eval/harness/answers.js';
import type { RunTask } from '../../eval/harness/documents.js';
import { needsLogits } from '../../generate/sampling.js';
import { createTokenizer } from '../../models/tokenizer.js';
import { counted } from '../../system/format.js';
import { SEEDS } from '../../tasks/requests/seeds.js';
import { clock, Phases } from '../phases.js';
import { Interrupted, type RunResult, type TasksRequest, type Ui } from '../requests.js';
import { mayFeed } from '../targets/index.js';
import { compileWithCache } from './cacheSize.js';
import { withContexts } from './cachedContexts.js';
import { beginLoading, type LoadedModel, type ModelLoading } from './loadModel.js';
import { firstAnswer, loadWithQuestions, settleName } from './loadQuestions.js';
import { planRun } from './planRun.js';
import { keepWithin, mayCutPaths } from './prefixes.js';
import { findTasks, prepareTasks, type PreparedTasks } from './prepareTasks.js';
import { packQuestions, tokenise, type PackedQuestions } from './questionSet.js';
import { reportTasks } from './reportTasks.js';
import { traceRun } from './runModel.js';
import { scoreSet, type ScoredSet } from './scoreSet.js';
import { TaskChat } from './taskChat.js';
import { asksForTexts, demandOfTexts, textAnswers, tokeniseTexts, type TextPrompts } from './taskTexts.js';
import { generateTexts, type GeneratedTexts } from './taskWriting.js';

interface LoadedTasks {
  readonly model: LoadedModel;
  readonly questions: PackedQuestions;
  readonly modelName: string;
}

export async function runTasks(request: TasksRequest, ui: Ui): Promise<RunResult> {
  const started = new Date(clock());
  const begin = performance.now();
  const phases = new Phases();
  phases.begin('open');
  const found = findTasks(request);
  const generates = asksForTexts(found.leaves);
  // Whether the model gets memory for keys and values follows from the questions.
  const { cacheTokens: _, ...scoring } = request;
  const generating = { feeds: mayFeed(request), logits: found.leaves.some(drawsFromLogits) };
  const loading = beginLoading(generates ? { ...scoring, ...generating } : scoring, ui, phases);
  const tokenizer = createTokenizer(loading.tokenizer.spec);
  const chat =
    request.appliesChatTemplate === true
      ? new TaskChat(loading.checkpoint.dir, request.isMultiturn !== false, request.templateName)
      : undefined;
  phases.begin('prompts');
  const adds = chat?.begin !== undefined && (await tokenizer.encode('')).length > 0;
  const written = { chat, begin: adds ? chat.begin : undefined };
  const prepared = await prepareTasks(request, found, loading, written, ui).finally(() => chat?.close());
  if (request.isDryRun === true) return planRun(request, prepared, loading, ui);
  const prompts = generates
    ? await tokeniseTexts(prepared.tasks, tokenizer, {
        maxPositions: loading.checkpoint.config.maxPositions,
        begins: (text) => written.begin !== undefined && text.startsWith(written.begin),
        seed: (request.seeds ?? SEEDS).torch,
      })
    : undefined;
  const { model, questions, modelName } =
    prompts === undefined
      ? await loadWithQuestions(loading, prepared, request, ui, phases)
      : await loadForTexts(loading, prepared, prompts, request, ui);
  try {
    const loadSeconds = (performance.now() - begin) / 1000;
    const scored = await scoreDocuments(request, prepared, { model, questions, modelName }, phases, ui);
    let generated: GeneratedTexts | undefined;
    if (prompts !== undefined)
      generated = await generateTexts({ model, tokenizer, prompts, request, prepared, modelName }, ui);
    ui.phase('metrics');
    const answers = {
      scores: new Map(scored.scores.map((each) => [each.docId, each])),
      texts: textAnswers(prepared.tasks, generated?.texts ?? new Map<number, readonly (readonly string[])[]>()),
    };
    const tasks = prepared.tasks.map((task) => answersOfTask(task, answers));
    const groups = answersOfGroups(prepared.nodes, new Map(tasks.map((each) => [each.task.name, each])));
    const template = chat?.source;
    return reportTasks({
      ...{ request, prepared, modelName, model, questions, scored, tasks, groups, started, loadSeconds },
      ...{ template, generated, truncatedPrompts: prompts?.truncated ?? 0 },
    });
  } finally {
    await model.close();
  }
}

/** Whether texts are drawn in a way for which the model has to keep logits. */
const drawsFromLogits = ({ scores }: Pick<RunTask, 'scores'>): boolean =>
  scores.generation?.drawing !== undefined && needsLogits(scores.generation.drawing);

/** The model with memory for the texts to generate; prefixes of what is scored are kept in it, too. */
async function loadForTexts(
  loading: ModelLoading,
  prepared: PreparedTasks,
  { prompts, truncated }: TextPrompts,
  request: TasksRequest,
  ui: Ui,
): Promise<LoadedTasks> {
  const modelName = settleName(prepared, loading, request, ui);
  const tokens = await tokenise(prepared.dataset, loading, prepared.prefixToken);
  if (truncated > 0)
    ui.warn(`${counted(truncated, 'prompt')} too long for the model's context: the beginning is left out`);
  const drawn = prompts.filter(({ generation }) => generation.drawing !== undefined);
  if (drawn.length > 0)
    ui.note(`${counted(drawn.length, 'prompt')} with drawn texts: the same each time, and not those of PyTorch`);
  const logits = prepared.tasks.some(drawsFromLogits);
  await compileWithCache(loading, { ...request, logits }, demandOfTexts(prompts), ui);
  const model = await loading.finish();
  try {
    const packed = packQuestions(tokens, request, model.limits, mayCutPaths(request));
    const questions = request.sharing === 'kv' ? withContexts(packed, model.model) : keepWithin(model, packed, request);
    return { model, questions, modelName };
  } catch (error) {
    await model.close();
    throw error;
  }
}

/** What is asked for by its likelihood. */
async function scoreDocuments(
  request: TasksRequest,
  { task, tasks, dataset }: PreparedTasks,
  { model, questions, modelName }: LoadedTasks,
  phases: Phases,
  ui: Ui,
): Promise<ScoredSet> {
  const { length } = dataset.questions;
  if (length > 0)
    ui.phase('score', `${counted(length, 'document')} of ${counted(tasks.length, 'task')}, sharing ${request.sharing}`);
  const { output, resume, resumeCommand, signal } = request;
  const onProgress = firstAnswer(phases, model, ui);
  const options = { task, modelName, output, resume, resumeCommand, signal, onProgress };
  const scored = await scoreSet(model, questions, options, ui);
  if (request.trace !== undefined) await traceRun(request.trace, model, questions, scored);
  if (scored.isInterrupted) throw new Interrupted(scored.scores.length);
  return scored;
}
