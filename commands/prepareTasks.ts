/** The first step of a run of tasks: their files, their data and their prompts. */
import { UsageError, UserError } from '../errors.js';
import { versionOf } from '../evaluate/harness/config.js';
import type { Leaf } from '../evaluate/windows.js';
import { type TaskWindow, taskWindows, type WindowBounds, WINDOWS } from '../evaluate/windows.js';
import { prefixToken } from '../models/tokenizer/namedTokens.js';
import { readSettings } from '../settings.js';
import { quote } from '../system/json.js';
import { openLibrary } from '../tasks/builtin/index.js';
import { type DataRoots, splitReader } from '../tasks/data/splits.js';
import { type Node, type TaskNode, tasksBelow, withAsked, withoutRepeats } from '../tasks/definition/settings.js';
import { requireDatasets } from '../tasks/requests/documents.js';
import { Shuffles } from '../tasks/requests/seeds.js';
import { openTask, type TaskOptions } from '../tasks/requests/task.js';
import { TaskScores } from '../tasks/scores/ofTask.js';
import type { ModelLoading } from './loadModel.js';
import { type PreparedQuestions, prepareFolders } from './prepareRun.js';
import { Interrupted, type TasksRequest } from './runRequest.js';
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
function distinct(nodes: readonly Node[]): readonly TaskNode[] {
  const byName = new Map<string, TaskNode>();
  for (const node of tasksBelow(nodes)) byName.set(node.name, node);
  return [...byName.values()];
}

/** Tasks that were asked for, before their data are read. */
export interface FoundTasks {
  readonly modelName: string;
  /** What was asked for, with groups. */
  readonly nodes: readonly Node[];
  readonly leaves: readonly Leaf[];
}

/**
 * Throws UserError for names and data that are not there, and for what task files ask that this version lacks: before
 * hours of other tasks.
 */
export function findTasks(request: TasksRequest): FoundTasks {
  if (request.shard !== undefined && (request.logsSamples === false || request.resultsStem !== undefined))
    throw new UsageError(
      'a shard writes its samples into a folder of its own, which are what merge joins',
      request.logsSamples === false ? 'leave out --log_samples false' : '--output_path shards, a folder',
    );
  const modelName = prepareFolders(request);
  const library = openLibrary(request.includePaths);
  const nodes = withoutRepeats(request.tasks.flatMap((name) => library.resolve(name)));
  const leaves = distinct(nodes).map((node) => {
    const settings = withAsked(node.settings, request);
    return { ...node, settings, scores: new TaskScores(settings) };
  });
  if (leaves.length === 0)
    throw new UserError(`there is no task in ${request.tasks.join(', ')}`, 'List the names: tilewright tasks');
  const names = new Set(leaves.map(({ name }) => name));
  for (const name of request.samples?.keys() ?? [])
    if (!names.has(name))
      throw new UserError(
        `documents of ${quote(name)} are asked for, which is no task of this run`,
        `There are ${[...names].slice(0, 8).join(', ')}`,
      );
  const all = leaves.map(({ settings }) => settings);
  requireDatasets(all, rootsOf(request));
  return { modelName, nodes, leaves };
}

function rootsOf({ dataRoot }: TasksRequest): DataRoots {
  const { hubCaches, datasetsCache } = readSettings();
  return { root: dataRoot, hubCaches, datasetsCache };
}

/** What is known of a run before its documents are read. */
export type AboutTasks = Omit<PreparedQuestions, 'dataset' | 'isFirst'> & Pick<FoundTasks, 'nodes' | 'leaves'>;

export function aboutTasks(
  request: TasksRequest,
  { modelName, nodes, leaves }: FoundTasks,
  { checkpoint: { config }, tokenizer }: Pick<ModelLoading, 'checkpoint' | 'tokenizer'>,
): AboutTasks {
  return {
    nodes,
    leaves,
    task: {
      name: nameOf(request.tasks),
      version: leaves.length === 1 ? versionOf(leaves[0]!) : leaves.length,
    },
    source: request.tasks.join(', '),
    modelName,
    prefixToken: prefixToken(tokenizer, config),
  };
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
  request: TasksRequest,
  leaves: FoundTasks['leaves'],
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
