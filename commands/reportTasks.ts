/**
 * Results of a run of tasks: samples_*.jsonl of each task and results_*.json, in the public harness's layout. A task's
 * are written as soon as its last document is answered.
 */
import { createHash, type Hash } from 'node:crypto';
import { dirname, join } from 'node:path';
import { clock } from '../driver/phases.js';
import { VERSION } from '../driver/program.js';
import {
  type AnsweredDocument,
  type Answers,
  answersOfGroups,
  type GroupAnswers,
  responsesOf,
  type TaskAnswers,
  TaskTally,
} from '../evaluate/harness/answers.js';
import { jsonOf } from '../evaluate/harness/config.js';
import { buildTaskResults, type TasksHeader } from '../evaluate/harness/results.js';
import { sampleLines } from '../evaluate/harness/samples.js';
import { shardBlock } from '../evaluate/harness/shardBlock.js';
import { formatTable, resultsFolder, type RunIdentity } from '../evaluate/index.js';
import { fileDate, resultsName, samplesName, tokensName } from '../evaluate/results.js';
import { tokenLine } from '../evaluate/tokenLines.js';
import { type EndedTask, numberOf, type RunTask, type TaskFacts, type TaskWindow } from '../evaluate/windows.js';
import { Pause } from '../system/text.js';
import { Scratch, writeAtomically } from '../system/write.js';
import { type Node, tasksBelow } from '../tasks/definition/settings.js';
import { SEEDS } from '../tasks/requests/seeds.js';
import { BOOTSTRAP_DRAWS } from '../tasks/scores/aggregate.js';
import type { TextFacts } from './endTokens.js';
import { provenanceOf, ratesOf, type RunFacts, settingsOf } from './runFacts.js';
import { recordOf } from './runRecord.js';
import type { RunResult, TasksRequest } from './runRequest.js';
import type { GenerationTotals } from './taskTotals.js';

export interface TasksReport {
  readonly request: TasksRequest;
  readonly nodes: readonly Node[];
  readonly started: Date;
  /** The chat template that prompts were written with. */
  readonly template: string | undefined;
}

/** What is known of a run when results are written. */
export interface TasksState extends Omit<RunFacts, 'request'> {
  /** What must be equal in shards that are merged. */
  readonly identity: RunIdentity;
  readonly modelName: string;
  readonly generated: GenerationTotals | undefined;
  /** Of a run that writes texts. */
  readonly written?: TextFacts;
}

const AGAIN =
  'Free some space or fix the folder, then run the same command with --resume: finished documents are in the journal';

/** Settings that only tasks have, under the names of the public harness. */
const askedOf = ({ seeds = SEEDS, generation }: TasksRequest): TasksHeader['config'] => ({
  gen_kwargs: generation === undefined ? null : jsonOf(generation),
  random_seed: seeds.python,
  numpy_seed: seeds.numpy,
  torch_seed: seeds.torch,
  fewshot_seed: seeds.fewshot,
});

/** A task whose documents are being answered. */
interface Open {
  readonly tally: TaskTally;
  /** Lines of its samples, by filter. */
  readonly samples: readonly Scratch[];
  /** Lines of its tokens, where they are asked for. */
  readonly tokens: Scratch | undefined;
}

export class TaskReporter {
  readonly #report: TasksReport;
  readonly #open = new Map<string, Open>();
  readonly #finished: TaskAnswers[] = [];
  /** Tasks of which samples were written, and hashes of those. */
  readonly #hashes = new Map<string, string>();
  /** Names the files of this run: the time when the first of them was written. */
  #date: string | undefined;

  constructor(report: TasksReport) {
    this.#report = report;
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
  write(state: TasksState): RunResult {
    const { request, started, nodes, template } = this.#report;
    const finished = new Date(clock());
    const tasks = this.#finished;
    const groups = this.#groups();
    const done = new Set(tasks.map(({ task }) => task.name));
    const missing = [...new Set(tasksBelow(nodes).map(({ name }) => name))].filter((name) => !done.has(name));
    const facts: RunFacts = { ...state, request };
    const results = {
      ...buildTaskResults(
        {
          modelName: state.modelName,
          config: { ...settingsOf(facts, BOOTSTRAP_DRAWS), ...askedOf(request) },
          provenance: {
            ...provenanceOf(facts, request.dataRoot ?? '', state.about.sha256),
            ...(state.written && {
              end_tokens: state.written.endTokens,
              text_defaults: { ...state.written.textDefaults },
            }),
            record: recordOf(request, state.model),
          },
          throughput: ratesOf(facts),
          systemInstruction: request.systemInstruction ?? null,
          chatTemplate: template ?? null,
          fewshotAsMultiturn: template === undefined ? null : request.isMultiturn !== false,
          generation: state.generated && { ...state.generated },
          started,
          finished,
          version: VERSION,
        },
        tasks,
        groups,
      ),
      ...(request.shard === undefined
        ? {}
        : { shard: shardBlock(request.shard, state.identity, tasks, this.#hashes, groups) }),
      // Only while the run goes on, or where it ended early.
      ...(missing.length === 0 ? {} : { unfinished: missing }),
    };
    const table = formatTable(results);
    const folder = this.#folder(state.modelName);
    if (folder === undefined) return { results, table, resultsPath: undefined, samplesPath: undefined };
    const { resultsStem } = request;
    const date = this.#dated();
    const resultsPath = join(folder, resultsStem === undefined ? resultsName(date) : `${resultsStem}_${date}.json`);
    writeAtomically(resultsPath, [`${JSON.stringify(results, null, 2)}\n`], AGAIN);
    const [only, ...others] = this.#hashes.keys();
    const shown = only === undefined ? undefined : samplesName(others.length === 0 ? only : '*', this.#dated());
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
    const whole = (nodes: readonly Node[]): readonly Node[] =>
      nodes.flatMap((node): readonly Node[] =>
        tasksBelow([node]).every(({ name }) => byName.has(name))
          ? [node]
          : node.kind === 'group'
            ? whole(node.members)
            : [],
      );
    return answersOfGroups(whole(this.#report.nodes), byName);
  }

  #folder(modelName: string): string | undefined {
    const { output, resultsStem, shard } = this.#report.request;
    if (output === undefined) return undefined;
    return resultsStem === undefined ? resultsFolder(output, modelName, shard) : output;
  }

  #dated(): string {
    return (this.#date ??= fileDate(new Date(clock())));
  }

  #opened(task: TaskFacts, modelName: string): Open {
    const known = this.#open.get(task.name);
    if (known !== undefined) return known;
    const folder = this.#report.request.logsSamples === false ? undefined : this.#folder(modelName);
    const path = folder && join(folder, samplesName(task.name, 'unfinished'));
    const samples = path === undefined ? [] : task.scores.filters.map(() => new Scratch(path, AGAIN));
    const keepsTokens = path !== undefined && this.#report.request.logsTokens === true;
    const tokens = keepsTokens
      ? new Scratch(join(dirname(path), tokensName(task.name, 'unfinished')), AGAIN)
      : undefined;
    const open = { tally: new TaskTally(task), samples, tokens };
    this.#open.set(task.name, open);
    return open;
  }

  async #take(task: RunTask, answers: Answers, modelName: string, pause: Pause): Promise<void> {
    const { tally, samples, tokens } = this.#opened(task, modelName);
    let tokenLines: string[] = [];
    let lines: string[][] = samples.map(() => []);
    const write = (): void => {
      samples.forEach((file, filter) => file.append(lines[filter]!));
      lines = samples.map(() => []);
      tokens?.append(tokenLines);
      tokenLines = [];
    };
    const isPart = this.#report.request.shard !== undefined;
    for (const document of task.documents) {
      // Other shards have the rest.
      if (isPart && responsesOf(answers, task, document) === undefined) continue;
      const answered: AnsweredDocument = tally.add(document, answers);
      if (samples.length > 0) sampleLines(answered).forEach((line, filter) => lines[filter]!.push(line));
      if (tokens !== undefined) tokenLines.push(lineOfTokens(task, document, answers));
      if (!pause.isDue) continue;
      write();
      await pause.take();
    }
    write();
  }

  async #finish(task: TaskFacts, total: EndedTask['total'], modelName: string): Promise<TaskAnswers> {
    const { tally, samples, tokens } = this.#opened(task, modelName);
    const folder = this.#folder(modelName);
    if (samples.length > 0 && folder !== undefined) {
      const hash = createHash('sha256');
      writeAtomically(join(folder, samplesName(task.name, this.#dated())), joined(samples, hash), AGAIN);
      this.#hashes.set(task.name, hash.digest('hex'));
    }
    if (tokens !== undefined && folder !== undefined)
      writeAtomically(join(folder, tokensName(task.name, this.#dated())), tokens.parts(), AGAIN);
    for (const each of [...samples, tokens]) each?.close();
    this.#open.delete(task.name);
    // Errors that need all documents are found when shards are merged.
    return tally.finish(await total(), this.#report.request.shard === undefined ? BOOTSTRAP_DRAWS : 0);
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
