/** The blocks of a report, in the order in which they are shown. What is not there to read is left out. */
import { counted } from '../../system/format.js';
import type { About } from '../document/about.js';
import type { Block, SectionName, Sections } from '../document/sections.js';
import { loadRuns } from './loadRuns.js';
import { collectResults } from './results.js';

export interface ReportRequest {
  /** Folders or files of results. */
  readonly runs: readonly string[];
  readonly title?: string;
  /** The program and its version. */
  readonly writer: string;
  readonly now: Date;
}

export interface CollectedReport {
  readonly about: About;
  readonly blocks: Iterable<Block>;
}

const block = <K extends SectionName>(name: K, content: Sections[K]): Block => ({ name, content });

/** Throws UserError for what cannot be read. */
export function collectReport({ runs: paths, title, writer, now }: ReportRequest): CollectedReport {
  const runs = loadRuns(paths);
  const results = collectResults(runs);
  const tasks = new Set(runs.flatMap(({ files }) => [...files.tasks.keys()]));
  const names = runs.map(({ name }) => name).join(' · ');
  const about: About = {
    title: title ?? names,
    subtitle: `${tasks.size === 1 ? [...tasks][0]! : counted(tasks.size, 'task')}, ${counted(runs.length, 'run')}`,
    writer,
    written: now.toISOString(),
    notes: runs.flatMap(({ files }) =>
      files.unfinished.length === 0
        ? []
        : [`${files.path}: not finished: ${counted(files.unfinished.length, 'task')} to do`],
    ),
  };
  return { about, blocks: [block('about', about), block('results', results)] };
}
