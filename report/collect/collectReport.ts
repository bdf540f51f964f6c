/** The blocks of a report, in the order in which they are shown. What is not there to read is left out. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../errors.js';
import { findRun } from '../../evaluate/compare/findRuns.js';
import { isFolder } from '../../system/read.js';
import { counted } from '../../system/text.js';
import type { About, Block, SectionName, Sections } from '../document/sections.js';
import { collectComparison } from './comparison.js';
import { type LoadedRun, loadRuns } from './loadRuns.js';
import { questionsOf, rowsOf, TextBlocks } from './questions.js';
import { collectResults } from './results.js';
import { Searches } from './search.js';
import { shortNamer } from './shortNames.js';
import { TokenFiles } from './tokens.js';
import { collectTraces } from './trace.js';
import { collectTuning } from './tuning.js';

export interface ReportRequest extends MeasurementPaths {
  /** Folders or files of results; none where there are traces or tuning records. */
  readonly runs: readonly string[];
  readonly title?: string;
  /** The program and its version. */
  readonly writer: string;
  readonly now: Date;
}

export interface CollectedReport {
  readonly about: About;
  readonly blocks: Iterable<Block>;
  /** The notes of `about`, with whole paths. */
  readonly notes: readonly string[];
}

const block = <K extends SectionName>(name: K, content: Sections[K]): Block => ({ name, content });

/** What is amiss with files, and did not end the reading. */
function notesOf(runs: readonly LoadedRun[]): string[] {
  return runs.flatMap(({ name, files, tasks }) => {
    const without = [...files.tasks.keys()].filter((task) => !tasks.has(task));
    return [
      ...(files.unfinished.length === 0
        ? []
        : [`${name}: not finished: ${counted(files.unfinished.length, 'task')} to do`]),
      ...(without.length === 0
        ? []
        : [`${name}: no samples_*.jsonl of ${counted(without.length, 'task')}: their questions are not on this page`]),
      ...[...tasks.values()].flatMap(({ set }) => set.notes),
    ];
  });
}

/** Blocks of questions, where there are samples. */
function* questionBlocks(runs: readonly LoadedRun[], tokens: TokenFiles): Generator<Block> {
  const rows = rowsOf(runs);
  if (rows.rows.length === 0) return;
  const texts = new TextBlocks(rows.rows, runs);
  yield block('questions', questionsOf(rows, runs, texts.starts));
  yield* texts.blocks();
  yield* tokens.blocks(rows.rows, texts.starts, (row) => texts.kept(row));
}

/** Whether there is something at a path that `findRun` would read, or say what is wrong with it. */
const holdsRun = (path: string): boolean => {
  try {
    findRun(path);
    return true;
  } catch {
    return !isFolder(path);
  }
};

/** Throws UserError for what cannot be read. */
export function collectReport({ runs: paths, title, writer, now, ...others }: ReportRequest): CollectedReport {
  const measured = collectMeasurements(others, paths);
  // A folder may hold nothing but a trace or records.
  const isBare = measured.blocks.length > 0 && !paths.some(holdsRun);
  const runs = isBare ? [] : loadRuns(paths);
  const tokens = new TokenFiles(runs);
  const searches = new Searches(runs);
  const tasks = new Set(runs.flatMap(({ files }) => [...files.tasks.keys()]));
  const names = runs.map(({ name }) => name).join(' · ');
  const of = `${tasks.size === 1 ? [...tasks][0]! : counted(tasks.size, 'task')}, ${counted(runs.length, 'run')}`;
  const notes = [...notesOf(runs), ...searches.notes, ...tokens.notes, ...measured.notes];
  const read = [
    ...runs.flatMap(({ files, tasks }) => [files.path, ...[...tasks.values()].map(({ set }) => set.path)]),
    ...tokens.paths,
    ...measured.paths,
  ];
  const about: About = {
    title: title ?? (isBare ? measured.title! : names),
    subtitle: isBare ? 'Measurements of the machine' : of,
    writer,
    written: now.toISOString(),
    notes: notes.map(shortNamer(read)),
  };
  const comparison = collectComparison(runs);
  return {
    about,
    notes,
    blocks: (function* () {
      yield block('about', about);
      if (!isBare) yield block('results', collectResults(runs));
      if (comparison !== undefined) yield block('comparison', comparison);
      if (searches.document.tasks.length > 0) yield block('search', searches.document);
      yield* searches.blocks();
      yield* questionBlocks(runs, tokens);
      yield* measured.blocks;
    })(),
  };
}

/** Traces and tuning records of a report: the files that were named, and those that lie in the folders of runs. */

export interface MeasurementPaths {
  /** Files of `run --trace`, and folders of them. */
  readonly traces?: readonly string[] | undefined;
  /** Files of tuning records and of `bench:gpu --json`, and folders of them. */
  readonly tuning?: readonly string[] | undefined;
}

const TRACE = /^(?:trace|.{1,200}[._-]trace)\.json$/;
const RECORDS = /^(?:tuning|.{1,200}[._-]tuning)\.jsonl$/;
const BENCH = /^(?:bench|.{1,200}[._-]bench)\.json$/;

const MAX_FILES = 64;

/** Files of a folder itself, by name. */
function filesOf(folder: string, names: readonly RegExp[]): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => names.some((pattern) => pattern.test(name)))
      .sort()
      .map((name) => join(folder, name));
  } catch {
    // Reading the folder for its results reports it.
    return [];
  }
}

/** Of what was named: files as they are, and those in folders; and those that lie beside results. */
function pathsOf(given: readonly string[], runs: readonly string[], names: readonly RegExp[]): readonly string[] {
  const named = given.flatMap((path) => {
    if (!isFolder(path)) return [path];
    const found = filesOf(path, names);
    if (found.length === 0) throw new UsageError(`${path}: holds nothing of that kind`, 'name the file itself');
    return found;
  });
  const beside = runs.filter(isFolder).flatMap((folder) => filesOf(folder, names));
  const paths = [...new Set([...named, ...beside])];
  if (paths.length > MAX_FILES)
    throw new UsageError(`${paths.length} files are more than a page can show`, `name at most ${MAX_FILES}`);
  return paths;
}

export interface CollectedMeasurements {
  readonly blocks: readonly Block[];
  readonly notes: readonly string[];
  /** The files. */
  readonly paths: readonly string[];
  /** What they are of, for a page without results. */
  readonly title: string | undefined;
}

/** Throws UserError for a file that cannot be read or is of another format. */
export function collectMeasurements(
  { traces = [], tuning = [] }: MeasurementPaths,
  runs: readonly string[],
): CollectedMeasurements {
  const tracePaths = pathsOf(traces, runs, [TRACE]);
  const tuningPaths = pathsOf(tuning, runs, [RECORDS, BENCH]);
  const machine = tracePaths.length === 0 ? undefined : collectTraces(tracePaths);
  const tuned = tuningPaths.length === 0 ? undefined : collectTuning(tuningPaths);
  const about = machine?.document.traces[0];
  return {
    blocks: [
      ...(machine === undefined ? [] : [block('machine', machine.document)]),
      ...(tuned === undefined ? [] : [block('tuning', tuned.document)]),
    ],
    notes: [...(machine?.notes ?? []), ...(tuned?.notes ?? [])],
    paths: [...tracePaths, ...tuningPaths],
    title: about?.about?.model ?? about?.file ?? tuned?.document.machines[0]?.name ?? tuned?.document.files[0],
  };
}
