/** The section of questions: all runs' answers in columns, and texts in blocks. */
import { type Answered, lineOf, matchQuestions, textsOf } from '../../evaluate/compare/readSamples.js';
import {
  likelihood,
  type QuestionsDocument,
  type QuestionText,
  type QuestionTexts,
  type RunAnswers,
  textsBlock,
} from '../document/questions.js';
import type { Block } from '../document/sections.js';
import { binaryMetrics, chosenOf, cutOutputs, type LoadedRun, marginOf, metricName } from './loadRuns.js';

const MAX_ROWS = 250_000;
const MAX_METRICS = 12;
const MAX_CHOICES = 200;
/** A block of texts ends with whichever is reached first. */
const BLOCK_ROWS = 500;
const BLOCK_CHARACTERS = 1 << 20;

/** Of questions for which a page has no room. */
const NO_TEXT = { context: '', shots: 0, choices: [], cut: -1 };

/** A question, and what each run answered to it. */
export interface Row {
  readonly task: string;
  /** The run that has it first. */
  readonly run: number;
  /** By run. */
  readonly answered: readonly (Answered | undefined)[];
  readonly gold: number;
}

export interface QuestionRows {
  readonly rows: readonly Row[];
  readonly left: number;
}

/** Questions of a task that any run has: those of the first run that has it, then what the others have besides. */
function rowsOfTask(task: string, runs: readonly LoadedRun[]): Row[] {
  const first = runs.findIndex(({ tasks }) => tasks.has(task));
  const base = runs[first]!.tasks.get(task)!;
  const found = new Map<Answered, Row & { answered: (Answered | undefined)[] }>();
  const extra = new Map<string, Row & { answered: (Answered | undefined)[] }>();
  const begin = (run: number, each: Answered, gold: number): Row & { answered: (Answered | undefined)[] } => {
    const answered = new Array<Answered | undefined>(runs.length).fill(undefined);
    answered[run] = each;
    return { task, run, answered, gold };
  };
  let place = 0;
  for (const each of base.set.questions.values()) found.set(each, begin(first, each, base.golds[place++]!));
  for (let run = first + 1; run < runs.length; run++) {
    const other = runs[run]!.tasks.get(task);
    if (other === undefined) continue;
    const seen = new Set<Answered>();
    for (const { a, b } of matchQuestions(base.set, other.set).pairs) {
      found.get(a)!.answered[run] = b;
      seen.add(b);
    }
    let at = 0;
    for (const each of other.set.questions.values()) {
      const gold = other.golds[at++]!;
      if (seen.has(each)) continue;
      const name = `${each.docId} ${each.content}`;
      const known = extra.get(name);
      if (known === undefined) extra.set(name, begin(run, each, gold));
      else known.answered[run] = each;
    }
  }
  return [...found.values(), ...extra.values()];
}

/** In the order of tasks, and in each of questions. */
export function rowsOf(runs: readonly LoadedRun[]): QuestionRows {
  const tasks = [...new Set(runs.flatMap(({ tasks: of }) => [...of.keys()]))];
  const rows: Row[] = [];
  let left = 0;
  for (const task of tasks) {
    const all = rowsOfTask(task, runs);
    const room = Math.max(0, MAX_ROWS - rows.length);
    for (const row of all.slice(0, room)) rows.push(row);
    left += Math.max(0, all.length - room);
  }
  return { rows, left };
}

/** Names of the metrics of all tasks by which a question is right or wrong, those of the most questions first. */
function metricsOf(runs: readonly LoadedRun[]): string[] {
  const counts = new Map<string, number>();
  for (const { tasks } of runs)
    for (const { set } of tasks.values())
      for (const { key } of binaryMetrics(set))
        counts.set(metricName(key), (counts.get(metricName(key)) ?? 0) + set.questions.size);
  const order = [...counts].sort(([, a], [, b]) => b - a);
  return order.slice(0, MAX_METRICS).map(([name]) => name);
}

function answersOf(rows: readonly Row[], run: number, loaded: LoadedRun, metrics: readonly string[]): RunAnswers {
  const places = new Map(
    [...loaded.tasks].map(([task, { set }]) => [
      task,
      metrics.map((metric) => binaryMetrics(set).find(({ key }) => metricName(key) === metric)?.place),
    ]),
  );
  const valueOf = ({ task, answered }: Row, metric: number): number | null => {
    const place = places.get(task)?.[metric];
    const item = place === undefined ? undefined : answered[run]?.items[place];
    return typeof item === 'number' ? item : null;
  };
  const own = rows.map(({ answered }) => answered[run]);
  return {
    lls: own.map((each) =>
      each?.lls === undefined
        ? null
        : Array.from(each.lls.subarray(0, Math.min(each.choices, MAX_CHOICES)), likelihood),
    ),
    chosen: own.map((each) => (each === undefined ? -1 : chosenOf(each))),
    margins: own.map((each, row) => {
      const margin = each === undefined ? null : marginOf(each, rows[row]!.gold);
      return margin === null ? null : (likelihood(margin) as number);
    }),
    values: metrics.map((_, metric) => rows.map((row) => valueOf(row, metric))),
  };
}

function outputsOf(row: Row, runs: readonly LoadedRun[]): Pick<QuestionText, 'outputs'> {
  if (row.answered.every((each) => each?.text === undefined)) return {};
  return {
    outputs: row.answered.map((each, run) => {
      const path = runs[run]!.tasks.get(row.task)?.set.path;
      return each?.text === undefined || path === undefined ? [] : cutOutputs(textsOf(lineOf(path, each), path));
    }),
  };
}

/** How many characters two contexts have in common, up to the last empty line: that is where examples end. */
function commonShots(a: string, b: string): number {
  const most = Math.min(a.length, b.length);
  let i = 0;
  while (i < most && a.charCodeAt(i) === b.charCodeAt(i)) i++;
  const end = a.lastIndexOf('\n\n', i - 2);
  return i < 2 || end < 0 ? 0 : end + 2;
}

/** Blocks of texts, each made when it is asked for, and the rows with which they begin. */
export class TextBlocks {
  readonly starts: readonly number[];
  readonly #rows: readonly Row[];
  readonly #runs: readonly LoadedRun[];

  constructor(rows: readonly Row[], runs: readonly LoadedRun[]) {
    this.#rows = rows;
    this.#runs = runs;
    const starts: number[] = [];
    let [size, from] = [Infinity, 0];
    rows.forEach((row, at) => {
      const text = this.kept(row);
      const own =
        text === undefined ? 0 : text.context.length + text.choices.reduce((sum, each) => sum + each.length, 0);
      if (size + own > BLOCK_CHARACTERS || at - from >= BLOCK_ROWS) {
        starts.push(at);
        [size, from] = [0, at];
      }
      size += own;
    });
    this.starts = starts;
  }

  *blocks(): Generator<Block> {
    for (let block = 0; block < this.starts.length; block++) {
      const rows = this.#rows.slice(this.starts[block], this.starts[block + 1]);
      yield { name: textsBlock(block), content: this.#texts(rows) };
    }
  }

  /** What the page holds of a row's texts. */
  kept(row: Row): Omit<QuestionText, 'outputs'> | undefined {
    return this.#runs[row.run]!.tasks.get(row.task)!.texts.get(row.answered[row.run]!.docId);
  }

  #texts(rows: readonly Row[]): QuestionTexts {
    const texts = rows.map((row) => this.kept(row) ?? NO_TEXT);
    return rows.map((row, i) => {
      const { context, shots: own } = texts[i]!;
      const beside = [texts[i - 1], texts[i + 1]].filter(
        (_, side) => rows[side === 0 ? i - 1 : i + 1]?.task === row.task,
      );
      const shots = Math.max(
        own,
        ...beside.map((other) => (other === undefined ? 0 : commonShots(context, other.context))),
      );
      return { ...texts[i]!, shots: Math.min(shots, context.length), ...outputsOf(row, this.#runs) };
    });
  }
}

export function questionsOf(
  { rows, left }: QuestionRows,
  runs: readonly LoadedRun[],
  blocks: readonly number[],
): QuestionsDocument {
  const metrics = metricsOf(runs);
  const tasks: { task: string; firstRow: number; rows: number }[] = [];
  rows.forEach(({ task }, firstRow) => {
    const last = tasks.at(-1);
    if (last?.task === task) last.rows++;
    else tasks.push({ task, firstRow, rows: 1 });
  });
  return {
    tasks,
    metrics,
    blocks,
    left,
    runs: runs.map(({ name }) => name),
    docIds: rows.map(({ run, answered }) => answered[run]!.docId),
    golds: rows.map(({ gold }) => gold),
    answers: runs.map((run, i) => answersOf(rows, i, run, metrics)),
  };
}
