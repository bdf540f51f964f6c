/** `run --tasks`: prompts of all tasks, one load, one forest; then results in the public harness's layout. */
import { answersOfGroups, answersOfTask, type Answers } from '../../eval/harness/answers.js';
import { counted } from '../../system/format.js';
import { clock, Phases } from '../phases.js';
import { Interrupted, type RunResult, type TasksRequest, type Ui } from '../requests.js';
import { beginLoading } from './loadModel.js';
import { firstAnswer, loadWithQuestions } from './loadQuestions.js';
import { planRun } from './planRun.js';
import { prepareTasks } from './prepareTasks.js';
import { reportTasks } from './reportTasks.js';
import { traceRun } from './runModel.js';
import { scoreSet } from './scoreSet.js';

export async function runTasks(request: TasksRequest, ui: Ui): Promise<RunResult> {
  const started = new Date(clock());
  const begin = performance.now();
  const phases = new Phases();
  phases.begin('open');
  // Whether the model gets memory for keys and values follows from the questions.
  const { cacheTokens: _, ...scoring } = request;
  const loading = beginLoading(scoring, ui, phases);
  phases.begin('prompts');
  const prepared = await prepareTasks(request, loading, ui);
  if (request.isDryRun === true) return planRun(request, prepared, loading, ui);
  const { model, questions, modelName } = await loadWithQuestions(loading, prepared, request, ui, phases);
  try {
    const loadSeconds = (performance.now() - begin) / 1000;
    ui.phase(
      'score',
      `${counted(prepared.dataset.questions.length, 'document')} of ${counted(prepared.tasks.length, 'task')}, ` +
        `sharing ${request.sharing}`,
    );
    const { output, resume, resumeCommand, signal } = request;
    const onProgress = firstAnswer(phases, model, ui);
    const options = { task: prepared.task, modelName, output, resume, resumeCommand, signal, onProgress };
    const scored = await scoreSet(model, questions, options, ui);
    if (request.trace !== undefined) await traceRun(request.trace, model, questions, scored);
    if (scored.isInterrupted) throw new Interrupted(scored.scores.length);
    const answers: Answers = {
      scores: new Map(scored.scores.map((each) => [each.docId, each])),
      texts: new Map(),
    };
    ui.phase('metrics');
    const tasks = prepared.tasks.map((task) => answersOfTask(task, answers));
    const groups = answersOfGroups(prepared.nodes, new Map(tasks.map((each) => [each.task.name, each])));
    return reportTasks({ request, prepared, modelName, model, questions, scored, tasks, groups, started, loadSeconds });
  } finally {
    await model.close();
  }
}
