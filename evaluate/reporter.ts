/** Measures answers, and writes what they come to: samples_*.jsonl of each task, and results_*.json. */
import { createHash, type Hash } from 'node:crypto';
import { dirname, join } from 'node:path';
import { Pause } from '../system/text.js';
import { Scratch, writeAtomically } from '../system/write.js';
import type { TaskTree } from '../tasks/definition/settings.js';
import { tasksBelow } from '../tasks/definition/settings.js';
import { BOOTSTRAP_DRAWS } from '../tasks/scores/aggregate.js';
import type { RunIdentity } from './journal.js';
import type { ResultsLayout } from './layout.js';
import { buildResults, fileDate, type ResultsHeader, resultsName, samplesName, toJson, tokensName } from './results.js';
import type { Results } from './resultTypes.js';
import { sampleLines } from './samples.js';
import { resultsFolder } from './shard.js';
import { type Shard } from './shardName.js';
import { formatTable } from './table.js';
import {
  type AnsweredDocument,
  type Answers,
  answersOfGroups,
  type GroupAnswers,
  responsesOf,
  type TaskAnswers,
  TaskTally,
} from './taskAnswers.js';
import { tokenLine } from './tokenLines.js';
import { type EndedTask, numberOf, type RunTask, type TaskFacts, type TaskWindow } from './windows.js';

export interface ReporterOptions {
  readonly layout: ResultsLayout;
  /** What was asked for, with groups. */
  readonly nodes: readonly TaskTree[];
  /** Folder of results. Nothing is written if absent. */
  readonly output?: string | undefined;
  /** results_*.json is named after this, and lies in `output` itself. */
  readonly resultsStem?: string | undefined;
  readonly shard?: Shard | undefined;
  /** Whether samples_*.jsonl are written; they are by default. */
  readonly logsSamples?: boolean | undefined;
  readonly logsTokens?: boolean | undefined;
  /** The time. */
  readonly now: () => Date;
}

/** Results, and the files that hold them if there is a folder. */
export interface Reported {
  readonly results: Results;
  /** Accuracies as readable text. */
  readonly table: string;
  readonly resultsPath: string | undefined;
  readonly samplesPath: string | undefined;
}

/** A task whose documents are being answered. */
interface Open {
  readonly tally: TaskTally;
  /** Lines of its samples, by filter. */
  readonly samples: readonly Scratch[];
  /** Lines of its tokens, where they are asked for. */
  readonly tokens: Scratch | undefined;
  /** Of samples that are written nowhere: results of a file's questions name it in any case. */
  readonly hash: Hash | undefined;
}

export class Reporter {
  readonly #options: ReporterOptions;
  readonly #open = new Map<string, Open>();
  readonly #finished: TaskAnswers[] = [];
  /** Tasks of which samples were written, and hashes of those. */
  readonly #hashes = new Map<string, string>();
  /** Names the files of this run: the time when the first of them was written. */
  #date: string | undefined;

  constructor(options: ReporterOptions) {
    this.#options = options;
  }

  /** Takes the answers to a window's documents; the tasks that they finish. Throws UserError for a full disk. */
  async add({ tasks, ended }: TaskWindow, answers: Answers, modelName: string): Promise<readonly TaskAnswers[]> {
    const pause = new Pause();
    for (const task of tasks) await this.#take(task, answers, modelName, pause);
    const finished: TaskAnswers[] = [];
    for (const { task, total } of ended) {
      finished.push(await this.#finish(task, total, modelName));
      await pause.take();
    }
    this.#finished.push(...finished);
    return finished;
  }

  /** Writes results of the tasks that are finished, over those that this run has written before. */
  write(header: Omit<ResultsHeader, 'finished'>, run: RunIdentity): Reported {
    const { layout, nodes, shard, resultsStem } = this.#options;
    const tasks = this.#finished;
    const done = new Set(tasks.map(({ task }) => task.name));
    const unfinished = [...new Set(tasksBelow(nodes).map(({ name }) => name))].filter((name) => !done.has(name));
    const results = buildResults(
      layout,
      { ...header, finished: this.#options.now() },
      { tasks, groups: this.#groups(), samples: this.#hashes, unfinished, shard: shard && { ...shard, run } },
    );
    const table = formatTable(results);
    const folder = this.#folder(header.modelName);
    if (folder === undefined) return { results, table, resultsPath: undefined, samplesPath: undefined };
    const date = this.#dated();
    const resultsPath = join(folder, resultsStem === undefined ? resultsName(date) : `${resultsStem}_${date}.json`);
    writeAtomically(resultsPath, [`${toJson(results, 2)}\n`], this.#again);
    const [only, ...others] = this.#hashes.keys();
    const shown = only === undefined ? undefined : samplesName(others.length === 0 ? only : '*', date);
    return { results, table, resultsPath, samplesPath: shown && join(folder, shown) };
  }

  /** Removes what is of no use without the rest of a run. */
  close(): void {
    for (const { samples, tokens } of this.#open.values()) for (const each of [...samples, tokens]) each?.close();
    this.#open.clear();
  }

  /** Groups of which all tasks are finished. */
  #groups(): readonly GroupAnswers[] {
    const byName = new Map(this.#finished.map((each) => [each.task.name, each]));
    const whole = (nodes: readonly TaskTree[]): readonly TaskTree[] =>
      nodes.flatMap((node): readonly TaskTree[] =>
        tasksBelow([node]).every(({ name }) => byName.has(name))
          ? [node]
          : node.kind === 'group'
            ? whole(node.members)
            : [],
      );
    return answersOfGroups(whole(this.#options.nodes), byName);
  }

  /** What to do where the disk refuses. */
  get #again(): string {
    return (
      'Free some space or fix the folder, then run the same command with --resume: ' +
      `finished ${this.#options.layout.noun}s are in the journal`
    );
  }

  #folder(modelName: string): string | undefined {
    const { output, resultsStem, shard } = this.#options;
    if (output === undefined) return undefined;
    return resultsStem === undefined ? resultsFolder(output, modelName, shard) : output;
  }

  #dated(): string {
    return (this.#date ??= fileDate(this.#options.now()));
  }

  #opened(task: TaskFacts, modelName: string): Open {
    const known = this.#open.get(task.name);
    if (known !== undefined) return known;
    const folder = this.#options.logsSamples === false ? undefined : this.#folder(modelName);
    const path = folder && join(folder, samplesName(task.name, 'unfinished'));
    const samples = path === undefined ? [] : task.scores.filters.map(() => new Scratch(path, this.#again));
    const keepsTokens = path !== undefined && this.#options.logsTokens === true;
    const tokens = keepsTokens
      ? new Scratch(join(dirname(path), tokensName(task.name, 'unfinished')), this.#again)
      : undefined;
    const { layout } = this.#options;
    const hash = layout.kind === 'file' && path === undefined ? createHash('sha256') : undefined;
    const open = { tally: new TaskTally(task, layout), samples, tokens, hash };
    this.#open.set(task.name, open);
    return open;
  }

  async #take(task: RunTask, answers: Answers, modelName: string, pause: Pause): Promise<void> {
    const { tally, samples, tokens, hash } = this.#opened(task, modelName);
    const { layout } = this.#options;
    let tokenLines: string[] = [];
    let lines: string[][] = samples.map(() => []);
    const write = (): void => {
      samples.forEach((file, filter) => file.append(lines[filter]!));
      lines = samples.map(() => []);
      tokens?.append(tokenLines);
      tokenLines = [];
    };
    const isPart = this.#options.shard !== undefined;
    for (const document of task.documents) {
      // Other shards have the rest.
      if (isPart && responsesOf(answers, task, document) === undefined) continue;
      const answered: AnsweredDocument = tally.add(document, answers);
      if (samples.length > 0) sampleLines(answered, layout).forEach((line, filter) => lines[filter]!.push(line));
      if (hash !== undefined) for (const line of sampleLines(answered, layout)) hash.update(line);
      if (tokens !== undefined) tokenLines.push(lineOfTokens(task, document, answers));
      if (!pause.isDue) continue;
      write();
      await pause.take();
    }
    write();
  }

  async #finish(task: TaskFacts, total: EndedTask['total'], modelName: string): Promise<TaskAnswers> {
    const { tally, samples, tokens, hash: unwritten } = this.#opened(task, modelName);
    const folder = this.#folder(modelName);
    if (samples.length > 0 && folder !== undefined) {
      const hash = createHash('sha256');
      writeAtomically(join(folder, samplesName(task.name, this.#dated())), joined(samples, hash), this.#again);
      this.#hashes.set(task.name, hash.digest('hex'));
    }
    if (unwritten !== undefined) this.#hashes.set(task.name, unwritten.digest('hex'));
    if (tokens !== undefined && folder !== undefined)
      writeAtomically(join(folder, tokensName(task.name, this.#dated())), tokens.parts(), this.#again);
    for (const each of [...samples, tokens]) each?.close();
    this.#open.delete(task.name);
    // Errors that need all documents are found when shards are merged.
    return tally.finish(await total(), this.#options.shard === undefined ? BOOTSTRAP_DRAWS : 0);
  }
}

/** The line of a document in tokens_*.jsonl; empty where it has none, as a text that was generated. */
function lineOfTokens(task: RunTask, document: RunTask['documents'][number], { scores, tokens }: Answers): string {
  const number = numberOf(task, document);
  const found = scores.get(number);
  if (found === undefined || tokens === undefined) return '';
  return tokenLine(document.index ?? document.docId, number, found, tokens) ?? '';
}

function* joined(files: readonly Scratch[], hash: Hash): Generator<string> {
  for (const file of files)
    for (const part of file.parts()) {
      hash.update(part);
      yield part;
    }
}
