/** Problems to search: lines of a file, or a set that is known by its name. */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { UsageError, UserError } from '../errors.js';
import { asInt, type Dict, Float, type PyValue, strip } from '../python/value.js';
import type { Problem } from '../search/path.js';
import { readSettings } from '../settings.js';
import { isDeeperThan, isRecord, MAX_JSON_DEPTH, parseJson, quote } from '../system/json.js';
import { type FileWords, type LineBounds, nameOf, readLines } from '../system/lines.js';
import { nearest } from '../system/text.js';
import { type DataRoots, splitReader } from '../tasks/data/splits.js';
import type { ProblemSource } from './searchRequest.js';

/** A problem with short facts that its file has beside it, such as its level. */
export interface GivenProblem {
  readonly problem: Problem;
  readonly beside: Readonly<Record<string, string | number>>;
}

export interface Problems {
  /** Names files of results: the set's name, or that of the file. */
  readonly task: string;
  /** For messages. */
  readonly title: string;
  readonly problems: readonly GivenProblem[];
  /** How many there are, before any limit. */
  readonly total: number;
  /** Hex SHA-256 of the problems that are searched, with their ids and answers. */
  readonly sha256: string;
}

/** A data set whose rows are problems. */
interface ProblemSet {
  readonly dataset: string;
  readonly config?: string;
  readonly split: string;
  readonly problem: string;
  readonly answer: string;
  /** The answer in a row's text of it. */
  readonly read?: (text: string) => string;
}

/** By the names of tasks that ask the same. */
const SETS: Readonly<Record<string, ProblemSet>> = {
  minerva_math500: { dataset: 'HuggingFaceH4/MATH-500', split: 'test', problem: 'problem', answer: 'answer' },
  gsm8k: {
    dataset: 'openai/gsm8k',
    config: 'main',
    split: 'test',
    problem: 'question',
    answer: 'answer',
    read: (text) => strip(text.split('####').at(-1) ?? '').replaceAll(',', ''),
  },
};

export const PROBLEM_SETS: readonly string[] = Object.keys(SETS);

const WORDS: FileWords = { noun: 'file of problems', flag: '--problems', item: 'problem', command: 'search MODEL' };
const BOUNDS: LineBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 256 << 20, maxRatio: 200 };
const LINE = 'Each line is {"problem": "…", "answer": "…"}; answer and id may be left out';
const MAX_PROBLEMS = 1_000_000;
const MAX_PROBLEM = 1 << 20;
const MAX_ANSWER = 1 << 16;
const MAX_ID = 200;
/** Facts beside a problem that are longer are left out, and so are further ones. */
const MAX_FACT = 200;
const MAX_FACTS = 20;
const MAX_NAME = 80;

/** Rejects with UserError that names the line, and for a set whose data are not there. */
export async function readProblems(
  source: ProblemSource,
  limit: number | undefined,
  signal?: AbortSignal,
): Promise<Problems> {
  const { title, task, read } = source.kind === 'file' ? ofFile(source.path) : ofSet(source.name, source.dataRoot);
  const all: GivenProblem[] = [];
  const places = new Map<string, string>();
  let total = 0;
  for await (const { where, fields } of read(signal)) {
    const given = problemOf(fields, where, total++);
    const { id } = given.problem;
    const before = places.get(id);
    if (before !== undefined) throw new UserError(`${where}: the id ${quote(id)} is that of ${before}, too`, LINE);
    places.set(id, where);
    if (total > MAX_PROBLEMS) throw new UserError(`${where}: more than ${MAX_PROBLEMS} problems`, 'split the file');
    if (limit === undefined || all.length < limit) all.push(given);
  }
  if (all.length === 0) throw new UserError(`${title} holds no problems`, LINE);
  return { task, title, problems: all, total, sha256: hashOf(all.map(({ problem }) => problem)) };
}

/** Problems that a program gives. Throws UserError that names the field. */
export function givenProblems(records: readonly unknown[]): Problems {
  const ids = new Set<string>();
  const problems = records.map((record, i) => {
    const where = `problems[${i}]`;
    const fields = typeof record === 'string' ? { problem: record } : record;
    const given = problemOf(fields, where, i);
    const { id } = given.problem;
    if (ids.has(id)) throw new UsageError(`${where}: the id ${quote(id)} is that of another problem`);
    ids.add(id);
    return given;
  });
  const sha256 = hashOf(problems.map(({ problem }) => problem));
  return { task: 'problems', title: 'problems', problems, total: problems.length, sha256 };
}

interface Row {
  readonly where: string;
  readonly fields: unknown;
}

interface Source extends Pick<Problems, 'task' | 'title'> {
  readonly read: (signal: AbortSignal | undefined) => AsyncGenerator<Row>;
}

function ofFile(path: string): Source {
  const name = nameOf(path);
  const stem = basename(name).replace(/(\.jsonl?)?(\.gz)?$/, '');
  const short = basename(name);
  return {
    title: name,
    task: stem
      .replace(/[^\w.+-]/g, '_')
      .slice(0, MAX_NAME)
      .replace(/^\.*$/, 'problems'),
    read: async function* (signal) {
      for await (const { number, text } of readLines(path, WORDS, { bounds: BOUNDS, signal })) {
        const where = `${short}:${number}`;
        if (isDeeperThan(text, MAX_JSON_DEPTH))
          throw new UserError(`${where}: the line is nested more than ${MAX_JSON_DEPTH} deep`, LINE);
        yield { where, fields: parseJson(text, where, LINE) };
      }
    },
  };
}

/** Throws UsageError for a set that is not known. */
function ofSet(name: string, dataRoot: string | undefined): Source {
  const set = Object.hasOwn(SETS, name) ? SETS[name] : undefined;
  if (set === undefined) {
    const meant = nearest(name, PROBLEM_SETS);
    throw new UsageError(
      `--task ${name}: expected ${PROBLEM_SETS.join(' or ')}`,
      meant === undefined ? 'other problems are read from a file: --problems FILE' : `did you mean --task ${meant}?`,
    );
  }
  const { hubCaches, datasetsCache } = readSettings();
  const roots: DataRoots = { root: dataRoot, hubCaches, datasetsCache };
  return {
    title: name,
    task: name,
    read: async function* (signal) {
      let row = 0;
      for await (const fields of splitReader(roots)(set.dataset, set.config, set.split)) {
        signal?.throwIfAborted();
        const where = `${set.dataset}, row ${row++} of ${set.split}`;
        yield { where, fields: fieldsOf(fields, set) };
      }
    },
  };
}

/** A row of a data set under the names that lines of a file have. */
function fieldsOf(row: Dict, { problem, answer, read = (text) => text }: ProblemSet): Record<string, unknown> {
  const others = [...row].flatMap(([name, value]) =>
    name === problem || name === answer ? [] : [[name, plainOf(value)] as const],
  );
  const given = row.get(answer);
  return {
    ...Object.fromEntries(others),
    problem: plainOf(row.get(problem) ?? null),
    answer: typeof given === 'string' ? read(given) : plainOf(given ?? null),
  };
}

const plainOf = (value: PyValue): unknown => (value instanceof Float ? value.value : (asInt(value) ?? value));

function problemOf(fields: unknown, where: string, place: number): GivenProblem {
  const fail = (what: string): never => {
    throw new UserError(`${where}: ${what}`, LINE);
  };
  if (!isRecord(fields)) return fail(`expected a JSON object, got ${quote(fields)}`);
  const { problem, answer, id, unique_id: unique, ...others } = fields;
  if (typeof problem !== 'string' || strip(problem) === '')
    return fail(`problem: expected a text that is not empty, got ${quote(problem ?? null)}`);
  if (problem.length > MAX_PROBLEM) return fail(`problem: a text of more than ${MAX_PROBLEM} characters`);
  const right = textOf(answer);
  if (answer !== undefined && answer !== null && right === undefined)
    return fail(`answer: expected a text or a number, got ${quote(answer)}`);
  if (right !== undefined && right.length > MAX_ANSWER)
    return fail(`answer: a text of more than ${MAX_ANSWER} characters`);
  const named = id ?? unique;
  const name = textOf(named);
  if (named !== undefined && named !== null && (name === undefined || name === '' || name.length > MAX_ID))
    return fail(`id: expected a number, or a text of 1 to ${MAX_ID} characters`);
  return {
    problem: { id: name ?? String(place), problem, ...(right === undefined ? {} : { answer: right }) },
    beside: factsOf(others),
  };
}

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' ? value : typeof value === 'number' && Number.isFinite(value) ? String(value) : undefined;

function factsOf(others: Readonly<Record<string, unknown>>): GivenProblem['beside'] {
  const facts = Object.entries(others).flatMap(([name, value]): (readonly [string, string | number])[] => {
    if (!/^[A-Za-z]\w{0,79}$/.test(name)) return [];
    if (typeof value === 'number') return [[name, value]];
    return typeof value === 'string' && value.length <= MAX_FACT ? [[name, value]] : [];
  });
  return Object.fromEntries(facts.slice(0, MAX_FACTS));
}

function hashOf(problems: readonly Problem[]): string {
  const hash = createHash('sha256');
  for (const { id, problem, answer } of problems) hash.update(`${JSON.stringify([id, problem, answer ?? null])}\n`);
  return hash.digest('hex');
}
