/** What a run evaluates: tasks of the public harness with their documents, or the questions of a file. */
import { modelName } from '../driver/names.js';
import { UsageError, UserError } from '../errors.js';
import { type Dataset, loadDataset } from '../evaluate/dataset.js';
import { type FileTask, fileTaskByName } from '../evaluate/fileTasks.js';
import { FILE_LAYOUT, HARNESS_LAYOUT, type ResultsLayout } from '../evaluate/layout.js';
import { modelFolder } from '../evaluate/output.js';
import type { TaskName } from '../evaluate/question.js';
import { versionOf } from '../evaluate/taskConfig.js';
import {
  type Leaf,
  leafOfFile,
  type TaskWindow,
  taskWindows,
  type WindowBounds,
  windowOfFile,
  WINDOWS,
} from '../evaluate/windows.js';
import { readSettings } from '../settings.js';
import { quote } from '../system/json.js';
import { prepareFile, prepareOutput } from '../system/write.js';
import { openLibrary } from '../tasks/builtin/index.js';
import { type DataRoots, splitReader } from '../tasks/data/splits.js';
import { type TaskTree, type TaskNode, tasksBelow, withAsked, withoutRepeats } from '../tasks/definition/settings.js';
import { requireDatasets } from '../tasks/requests/documents.js';
import { Shuffles } from '../tasks/requests/seeds.js';
import { openTask, type TaskOptions } from '../tasks/requests/task.js';
import { TaskScores } from '../tasks/scores/ofTask.js';
import {
  type EvaluationRequest,
  Interrupted,
  type RunRequest,
  type ScoreRequest,
  type TasksRequest,
} from './runRequest.js';
import type { TaskChat } from './taskChat.js';
import { asksForTexts } from './taskTexts.js';

const MAX_WINDOW = 1 << 22;
/** Names of files have a limit. */
const MAX_NAME = 80;

/** A name for the journal: that of the tasks asked for. */
function nameOf(asked: readonly string[]): string {
  const all = asked.map((name) => name.replace(/[^\w.+-]/g, '_')).join('+');
  return all.length <= MAX_NAME ? all : `${all.slice(0, MAX_NAME)}+`;
}

/** Every task once, in the order in which they are asked for. Of one that several groups change, the last counts. */
function distinct(nodes: readonly TaskTree[]): readonly TaskNode[] {
  const byName = new Map<string, TaskNode>();
  for (const node of tasksBelow(nodes)) byName.set(node.name, node);
  return [...byName.values()];
}

/** What is known of a run before its model is opened. */
export interface TaskSource {
  /** Names journals. */
  readonly task: TaskName;
  /** Where documents are from, for messages. */
  readonly title: string;
  /** The model's name in results, unless that name belongs to another checkpoint. */
  readonly modelName: string;
  /** What was asked for, with groups. */
  readonly nodes: readonly TaskTree[];
  readonly leaves: readonly Leaf[];
  readonly layout: ResultsLayout;
  /** The questions of a file: they are read already. */
  readonly file?: TaskWindow;
}

/** Checks the folders of a run, and names the model. Throws UserError. */
function prepareFolders(request: ScoreRequest): string {
  const { output, shard } = request;
  if (request.resume && output === undefined)
    throw new UsageError('--resume needs the folder of the run that it continues', 'add --out DIR');
  if (shard !== undefined && output === undefined)
    throw new UsageError('--shard needs a folder: merge joins what the shards write there', 'add --out DIR');
  const name = request.modelName ?? modelName(request.model);
  if (output !== undefined) {
    prepareOutput(modelFolder(output, name));
  }
  if (request.trace !== undefined) prepareFile(request.trace);
  return name;
}

/** A source of questions that were read. */
export function sourceOfQuestions(task: FileTask, title: string, modelName: string, dataset: Dataset): TaskSource {
  const leaf = leafOfFile(task);
  return {
    task,
    title,
    modelName,
    nodes: [leaf],
    leaves: [leaf],
    layout: FILE_LAYOUT,
    file: windowOfFile(leaf, dataset),
  };
}

/** Reads the questions of a file. Throws UserError if the request, its folders or its questions are invalid. */
export async function openFile(request: RunRequest): Promise<TaskSource> {
  const task = fileTaskByName(request.task);
  const name = prepareFolders(request);
  const { data: path, docs, limit, signal } = request;
  try {
    return sourceOfQuestions(task, path, name, await loadDataset({ path, task, docs, limit, signal }));
  } catch (error) {
    if (signal?.aborted === true) throw new Interrupted(0);
    throw error;
  }
}

/**
 * Throws UserError for names and data that are not there, and for what task files ask that this version lacks: before
 * hours of other tasks.
 */
export function findTasks(request: TasksRequest): TaskSource {
  if (request.shard !== undefined && (request.logsSamples === false || request.resultsStem !== undefined))
    throw new UsageError(
      'a shard writes its samples into a folder of its own, which are what merge joins',
      request.logsSamples === false ? 'leave out --log_samples false' : '--output_path shards, a folder',
    );
  const name = prepareFolders(request);
  const library = openLibrary(request.includePaths);
  const nodes = withoutRepeats(request.tasks.flatMap((name) => library.resolve(name)));
  const leaves = distinct(nodes).map((node) => {
    const settings = withAsked(node.settings, request);
    return { ...node, settings, scores: new TaskScores(settings) };
  });
  if (leaves.length === 0)
    throw new UserError(`there is no task in ${request.tasks.join(', ')}`, 'List the names: tilewright tasks');
  const names = new Set(leaves.map(({ name }) => name));
  for (const given of request.samples?.keys() ?? [])
    if (!names.has(given))
      throw new UserError(
        `documents of ${quote(given)} are asked for, which is no task of this run`,
        `There are ${[...names].slice(0, 8).join(', ')}`,
      );
  const all = leaves.map(({ settings }) => settings);
  requireDatasets(all, rootsOf(request));
  const task = { name: nameOf(request.tasks), version: leaves.length === 1 ? versionOf(leaves[0]!) : leaves.length };
  return { task, title: request.tasks.join(', '), modelName: name, nodes, leaves, layout: HARNESS_LAYOUT };
}

function rootsOf({ dataRoot }: EvaluationRequest): DataRoots {
  const { hubCaches, datasetsCache } = readSettings();
  return { root: dataRoot, hubCaches, datasetsCache };
}

/** How prompts are written. */
export interface Writing {
  readonly chat: TaskChat | undefined;
  /** The token that the tokenizer puts first, where prompts write it. */
  readonly begin: string | undefined;
}

/** Throws UserError where TILEWRIGHT_WINDOW is no number of documents. */
function windowBounds(most: number | undefined): WindowBounds {
  if (most === undefined) return WINDOWS;
  if (!(Number.isInteger(most) && most >= 1 && most <= MAX_WINDOW))
    throw new UserError(
      `TILEWRIGHT_WINDOW: expected a whole number from 1 to ${MAX_WINDOW}`,
      `export TILEWRIGHT_WINDOW=${WINDOWS.most}, or unset TILEWRIGHT_WINDOW`,
    );
  const characters = Math.ceil((WINDOWS.characters * most) / WINDOWS.most);
  const [whole, first] = [Math.min(WINDOWS.whole, most), Math.min(WINDOWS.first, most)];
  return { whole, first, most, characters: Math.max(WINDOWS.characters, characters) };
}

/**
 * Reads data and makes prompts, a window at a time. Where texts are generated, the first window is no smaller than one
 * that holds all: its last texts end one by one, and many at a time are fast. Ends with Interrupted once the signal is
 * aborted.
 */
export function readTasks(
  request: EvaluationRequest,
  leaves: readonly Leaf[],
  { chat, begin }: Writing,
  signal: AbortSignal,
  onDocument?: (documents: number) => void,
): AsyncGenerator<TaskWindow> {
  const { shots, limit, systemInstruction, samples, seeds } = request;
  const bounds = windowBounds(readSettings().windowDocuments);
  const read = splitReader(rootsOf(request));
  const options: TaskOptions = {
    shots,
    limit,
    systemInstruction,
    chat: chat?.chat,
    fewshotSeed: seeds?.fewshot,
    shuffles: new Shuffles(seeds?.python),
  };
  return taskWindows(leaves, {
    open: ({ name, settings }) => openTask(settings, read, { ...options, only: samples?.get(name) }),
    write: chat === undefined ? undefined : (document) => chat.write(document),
    begin,
    readsAll: ({ name }, documents) =>
      !(samples?.has(name) ?? false) && (limit === undefined || (limit >= 1 && documents < limit)),
    bounds: asksForTexts(leaves) ? { ...bounds, first: bounds.whole } : bounds,
    onDocument: (documents) => {
      if (signal.aborted) throw new Interrupted(0);
      onDocument?.(documents);
    },
  });
}
