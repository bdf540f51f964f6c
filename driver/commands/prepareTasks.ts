/** The first step of a run of tasks: their files, their data and every prompt. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readSettings } from '../../settings.js';
import { datasetOfTasks, type RunTask } from '../../eval/harness/documents.js';
import { versionOf } from '../../eval/harness/config.js';
import { splitReader } from '../../tasks/data/splits.js';
import { openLibrary } from '../../tasks/builtin/index.js';
import { withAsked } from '../../tasks/definition/asked.js';
import { tasksBelow, withoutRepeats, type Node, type TaskNode } from '../../tasks/definition/nodes.js';
import { unreadModules } from '../../tasks/hooks/unread.js';
import { Shuffles } from '../../tasks/requests/shuffles.js';
import { openTask, type DocumentRequests, type TaskOptions } from '../../tasks/requests/task.js';
import { TaskScores } from '../../tasks/scores/ofTask.js';
import { count, counted } from '../../system/format.js';
import { Interrupted, type TasksRequest, type Ui } from '../requests.js';
import type { ModelLoading } from './loadModel.js';
import { prepareFolders, type PreparedQuestions } from './prepareRun.js';
import type { TaskChat } from './taskChat.js';

export interface PreparedTasks extends PreparedQuestions {
  /** What was asked for, with groups. */
  readonly nodes: readonly Node[];
  readonly tasks: readonly RunTask[];
}

/** Names of files have a limit. */
const MOST_NAME = 80;

/** A name for the journal: that of the tasks asked for. */
function nameOf(asked: readonly string[]): string {
  const all = asked.map((name) => name.replace(/[^\w.+-]/g, '_')).join('+');
  return all.length <= MOST_NAME ? all : `${all.slice(0, MOST_NAME)}+`;
}

/** Every task once, in the order in which they are asked for. */
function distinct(nodes: readonly Node[]): readonly TaskNode[] {
  const byName = new Map<string, TaskNode>();
  for (const node of tasksBelow(nodes)) if (!byName.has(node.name)) byName.set(node.name, node);
  return [...byName.values()];
}

/** Tasks that were asked for, before their data are read. */
export interface FoundTasks {
  readonly modelName: string;
  readonly nodes: readonly Node[];
  readonly leaves: readonly (TaskNode & { readonly scores: TaskScores })[];
}

/** Throws UserError for names that are not there, and for what task files ask that this version lacks. */
export function findTasks(request: TasksRequest): FoundTasks {
  const modelName = prepareFolders(request);
  const library = openLibrary(request.includePaths);
  const nodes = withoutRepeats(request.tasks.flatMap((name) => library.resolve(name)));
  const leaves = distinct(nodes).map((node) => {
    const settings = withAsked(node.settings, request);
    return { ...node, settings, scores: new TaskScores(settings) };
  });
  const names = new Set(leaves.map(({ name }) => name));
  for (const name of request.samples?.keys() ?? [])
    if (!names.has(name))
      throw new UserError(
        `documents of ${quote(name)} are asked for, which is no task of this run`,
        `There are ${[...names].slice(0, 8).join(', ')}`,
      );
  return { modelName, nodes, leaves };
}

/** Reads data and makes every prompt. `begin`: the token that the tokenizer puts first, where prompts write it. */
export async function prepareTasks(
  request: TasksRequest,
  { modelName, nodes, leaves }: FoundTasks,
  { checkpoint: { config } }: Pick<ModelLoading, 'checkpoint'>,
  { chat, begin }: { readonly chat: TaskChat | undefined; readonly begin: string | undefined },
  ui: Ui,
): Promise<PreparedTasks> {
  const { dataRoot, shots, limit, systemInstruction, samples, seeds, signal } = request;
  const { hubCaches, datasetsCache } = readSettings();
  const read = splitReader({ root: dataRoot, hubCaches, datasetsCache });
  const options: TaskOptions = {
    ...{ shots, limit, systemInstruction, chat: chat?.chat },
    fewshotSeed: seeds?.fewshot,
    shuffles: new Shuffles(seeds?.python),
  };
  ui.phase('prompts', counted(leaves.length, 'task'));
  for (const line of unreadModules(leaves.map(({ settings }) => settings))) ui.note(line);
  const tasks: RunTask[] = [];
  let first = 0;
  for (const [i, { name, settings, scores }] of leaves.entries()) {
    const opened = await openTask(settings, read, { ...options, only: samples?.get(name) });
    const documents: DocumentRequests[] = [];
    for await (const document of opened.documents()) {
      if (signal?.aborted === true) throw new Interrupted(0);
      documents.push(chat === undefined ? document : await chat.write(document));
    }
    const total = limit === undefined && !samples?.has(name) ? documents.length : await opened.total();
    tasks.push({ name, settings, scores, shots: opened.shots, total, documents, first });
    first += documents.length;
    ui.step((i + 1) / leaves.length, `${count(first)} documents`);
  }
  const dataset = datasetOfTasks(tasks, begin);
  const versions = tasks.map((task) => `${task.name}=${versionOf(task)}`);
  return {
    nodes,
    tasks,
    task: { name: nameOf(request.tasks), version: versions.length === 1 ? versionOf(tasks[0]!) : versions.length },
    dataset,
    source: request.tasks.join(', '),
    modelName,
    prefixToken: config.bosTokenId ?? config.eosTokenIds[0],
  };
}
