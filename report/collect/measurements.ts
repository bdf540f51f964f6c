/** Traces and tuning records of a report: the files that were named, and those that lie in the folders of runs. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../../errors.js';
import { isFolder } from '../../system/read.js';
import type { Block, SectionName, Sections } from '../document/sections.js';
import { collectTraces } from './trace.js';
import { collectTuning } from './tuning.js';

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

const block = <K extends SectionName>(name: K, content: Sections[K]): Block => ({ name, content });

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
