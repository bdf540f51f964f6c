/**
 * Finds what a run wrote: results_*.json and samples_*.jsonl, as this program and lm-evaluation-harness lay them out.
 * Files are untrusted: sizes are bounded and fields are checked before they are used.
 */
import { type Dirent, existsSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { UserError } from '../../errors.js';
import { isRecord, parsePythonJson, quote } from '../../system/json.js';
import { codeOf, reasonOf } from '../../system/process.js';
import { decodeUtf8, readBounded } from '../../system/read.js';

const MAX_RESULTS_BYTES = 1 << 26;
const MAX_RESULTS_FILES = 100;
const MAX_TASKS = 20_000;
const MAX_SETTINGS = 100;
/** The end of the names of a run's files: its date, or nothing. */
const RESULTS = /^.+_(\d{4}-\d\d-\d\dT[\d.-]{1,30})\.json$|^results(?:_(.{1,100}))?\.json$/;
const SAMPLES = /^samples_(.{1,250})_(\d{4}-\d\d-\d\dT[\d.-]{1,30})\.jsonl$/;

export type Block = Readonly<Record<string, unknown>>;

/** What is known of a task in a run. */
export interface TaskFiles {
  readonly task: string;
  /** Undefined where samples were not written. */
  readonly samplesPath: string | undefined;
  /** Its figures in results_*.json; empty where only the samples are there. */
  readonly figures: Block;
  readonly config: Block;
  readonly isHigherBetter: Block;
  readonly version: unknown;
  readonly shots: unknown;
}

/** A group and the tasks and groups of which it is made. */
export interface GroupFiles {
  readonly group: string;
  readonly members: readonly string[];
  readonly figures: Block;
}

/** A run as its files tell it. */
export interface RunFiles {
  /** As it was given. */
  readonly path: string;
  /** The newest of its files of results, else its samples. */
  readonly file: string;
  readonly model: string;
  /** The arithmetic, where it is stated. */
  readonly arithmetic: string | undefined;
  readonly tasks: ReadonlyMap<string, TaskFiles>;
  readonly groups: ReadonlyMap<string, GroupFiles>;
  /** Fields that change what a model is asked or answers: equal in runs that differ in their arithmetic alone. */
  readonly asked: ReadonlyMap<string, string>;
  /** Tasks that an unfinished run still lacks. */
  readonly unfinished: readonly string[];
  /** All of its newest file of results, unchecked; empty where only samples are there. */
  readonly content: Block;
}

const record = (value: unknown): Block => (isRecord(value) ? value : {});
const own = (block: Block, name: string): unknown => (Object.hasOwn(block, name) ? block[name] : undefined);
const texts = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === 'string') : [];
const asText = (value: unknown): string | undefined =>
  typeof value === 'string' ? value : typeof value === 'number' ? String(value) : undefined;

const FINISH = 'Give the folder of a run that has finished, or its results_*.json';

interface ResultsFile {
  readonly path: string;
  readonly date: string | undefined;
}

function entriesOf(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch (error) {
    if (codeOf(error) === '') throw error;
    throw new UserError(`${folder}: cannot be read: ${reasonOf(error)}`, FINISH, { cause: error });
  }
}

const dateOf = (name: string): string | undefined => {
  const [, date, other] = RESULTS.exec(name) ?? [];
  return date ?? other;
};

/** The newest first; the names of a run's files end with its date. */
const resultsIn = (folder: string): ResultsFile[] =>
  entriesOf(folder)
    .filter((entry) => !entry.isDirectory() && RESULTS.test(entry.name))
    .map(({ name }) => ({ path: join(folder, name), date: dateOf(name) }))
    .sort((a, b) => ((a.date ?? '') < (b.date ?? '') ? 1 : -1));

/** What is said of a folder in which there are no results. */
function nothingIn(folder: string): UserError {
  const entries = entriesOf(folder);
  const names = entries.map(({ name }) => name);
  const isPart = (name: string): boolean => /^shard-\d+-of-\d+$/.test(name);
  const inner = entries.flatMap((entry) =>
    entry.isDirectory() ? entriesOf(join(folder, entry.name)).map(({ name }) => name) : [],
  );
  if ([...names, ...inner].some(isPart))
    return new UserError(
      `${folder}: holds shards of a run, and no results of the whole`,
      `tilewright merge ${folder} --out DIR, then compare DIR`,
    );
  if ([...names, ...inner].some((name) => name.startsWith('journal_')))
    return new UserError(
      `${folder}: holds the journal of a run that has not finished, and no results`,
      'Run it to its end: the same command with --resume',
    );
  return new UserError(`${folder}: no results_*.json in it, and none in a folder in it`, FINISH);
}

/** The files of results in a folder, or in the one folder of a model that is in it. Throws UserError. */
function resultsOfFolder(folder: string): ResultsFile[] {
  const here = resultsIn(folder);
  if (here.length > 0) return here;
  const models = entriesOf(folder)
    .filter((entry) => entry.isDirectory() && resultsIn(join(folder, entry.name)).length > 0)
    .map(({ name }) => name);
  if (models.length > 1)
    throw new UserError(
      `${folder}: holds results of several models: ${models.slice(0, 8).join(', ')}`,
      `Name one of them, for example: ${join(folder, models[0]!)}`,
    );
  if (models.length === 0) throw nothingIn(folder);
  return resultsIn(join(folder, models[0]!));
}

const AGAIN = 'If it is half-written, move it away or write it again';

function readResults(path: string): Block {
  const text = decodeUtf8(readBounded(path, MAX_RESULTS_BYTES, FINISH), path, AGAIN);
  const value = parsePythonJson(text, path, AGAIN);
  if (!isRecord(value) || !isRecord(value['results']))
    throw new UserError(`${path}: not what a run writes: it has no "results"`, FINISH);
  return value;
}

const isGroup = (results: Block, name: string): boolean =>
  own(record(results['groups']), name) !== undefined || texts(own(record(results['group_subtasks']), name)).length > 0;

/** Samples of a task from the same run as its results. */
function samplesOf(folder: string, task: string, date: string | undefined): string | undefined {
  if (date === undefined || /[/\0]/.test(task)) return undefined;
  const path = join(folder, `samples_${task}_${date}.jsonl`);
  return existsSync(path) ? path : undefined;
}

/** The tasks and groups of one file of results. */
function partsOf({ path, date }: ResultsFile, results: Block): Pick<RunFiles, 'tasks' | 'groups'> {
  const blocks = Object.entries(record(results['results']));
  if (blocks.length > MAX_TASKS) throw new UserError(`${path}: more than ${MAX_TASKS} tasks`, FINISH);
  const of = (field: string, name: string): unknown => own(record(results[field]), name);
  const tasks = new Map<string, TaskFiles>();
  const groups = new Map<string, GroupFiles>();
  for (const [name, block] of blocks) {
    if (!isRecord(block)) continue;
    const members = texts(of('group_subtasks', name));
    if (isGroup(results, name)) groups.set(name, { group: name, members, figures: block });
    else
      tasks.set(name, {
        task: name,
        samplesPath: samplesOf(dirname(path), name, date),
        figures: block,
        config: record(of('configs', name)),
        isHigherBetter: record(of('higher_is_better', name)),
        version: of('versions', name),
        shots: of('n-shot', name),
      });
  }
  // Groups that only name their members have no figures of their own.
  for (const [name, members] of Object.entries(record(results['group_subtasks'])))
    if (!groups.has(name) && texts(members).length > 0)
      groups.set(name, { group: name, members: texts(members), figures: {} });
  return { tasks, groups };
}

/** Names of fields, and where they are. */
const ASKED = [
  ['chat template', 'chat_template_sha'],
  ['system instruction', 'system_instruction_sha'],
  ['examples as turns', 'fewshot_as_multiturn'],
  ['longest context', 'max_length'],
] as const;

/** What a search was asked, with every default; empty for another run. */
export const settingsOfSearch = (results: Block): Block => record(record(own(results, 'search'))['asked']);

function askedOf(results: Block): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const [what, field] of ASKED) {
    const value = own(results, field);
    if (value !== undefined && value !== null) found.set(what, clip(value));
  }
  const provenance = record(results['provenance']);
  const tokenizer = asText(provenance['tokenizer_sha256']);
  if (tokenizer !== undefined) found.set('tokenizer', clip(tokenizer));
  const checkpoint = asText(provenance['checkpoint']);
  if (checkpoint !== undefined) found.set('checkpoint', clip(checkpoint));
  const verifier = asText(record(provenance['verifier'])['checkpoint']);
  if (verifier !== undefined) found.set('verifier', clip(verifier));
  for (const [name, value] of Object.entries(settingsOfSearch(results)).slice(0, MAX_SETTINGS))
    if (value !== undefined) found.set(`search: ${clip(name)}`, clip(value));
  return found;
}

/** Short and safe to print. */
const clip = (value: unknown, most = 40): string => {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return /^[0-9a-f]{32,}$/.test(text) ? text.slice(0, 8) : quote(text, most).replace(/^"|"$/g, '');
};

function runOf(path: string, files: readonly ResultsFile[]): RunFiles {
  const [newest] = files;
  const contents = files
    .slice(0, MAX_RESULTS_FILES)
    .map((file) => ({ file, results: readResults(file.path) }))
    .map(({ file, results }) => ({ results, ...partsOf(file, results) }));
  const { results } = contents[0]!;
  const config = record(results['config']);
  // The newest of each: later entries of a map win.
  const older = [...contents].reverse();
  return {
    path,
    file: newest!.path,
    // A path whose end is its name.
    model: clip(asText(results['model_name']) || asText(config['model']) || basename(dirname(newest!.path)), 200),
    arithmetic: asText(config['arithmetic']) === undefined ? undefined : clip(config['arithmetic']),
    tasks: new Map(older.flatMap(({ tasks }) => [...tasks])),
    groups: new Map(older.flatMap(({ groups }) => [...groups])),
    asked: askedOf(results),
    unfinished: texts(results['unfinished']),
    content: results,
  };
}

/** Samples by themselves, with the results of the same run where they lie beside them. */
function runOfSamples(path: string): RunFiles {
  const [, task, date] = SAMPLES.exec(basename(path)) ?? [];
  const folder = dirname(path);
  const beside =
    date === undefined ? undefined : resultsIn(folder).find((file) => file.date === date && isUsable(file.path));
  if (beside !== undefined && task !== undefined) {
    const run = runOf(path, [beside]);
    const found = run.tasks.get(task);
    if (found !== undefined) return { ...run, file: path, tasks: new Map([[task, found]]), groups: new Map() };
  }
  const name = task ?? basename(path).replace(/\.jsonl$/, '');
  const alone: TaskFiles = {
    task: name,
    samplesPath: path,
    figures: {},
    config: {},
    isHigherBetter: {},
    version: undefined,
    shots: undefined,
  };
  return {
    path,
    file: path,
    model: basename(folder),
    arithmetic: undefined,
    tasks: new Map([[name, alone]]),
    groups: new Map(),
    asked: new Map(),
    unfinished: [],
    content: {},
  };
}

function isUsable(path: string): boolean {
  try {
    readResults(path);
    return true;
  } catch {
    return false;
  }
}

/** A folder of results, a results_*.json, or a samples_*.jsonl. Throws UserError. */
export function findRun(path: string): RunFiles {
  let isFolder: boolean;
  try {
    isFolder = statSync(path).isDirectory();
  } catch (error) {
    throw new UserError(`${path}: ${reasonOf(error)}`, FINISH, { cause: error });
  }
  if (isFolder) return runOf(path, resultsOfFolder(path));
  if (path.endsWith('.jsonl')) return runOfSamples(path);
  if (path.endsWith('.json')) return runOf(path, [{ path, date: dateOf(basename(path)) }]);
  throw new UserError(`${path}: neither a folder of results, nor results_*.json or samples_*.jsonl`, FINISH);
}
