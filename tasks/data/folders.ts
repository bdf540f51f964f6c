/** Finds the folder of a data set: a clone of its hub repository, or a snapshot in the hub's cache. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { isFolder, readBounded } from '../../system/read.js';
import { DataSettingError } from './noRows.js';

/** Where data sets are looked for. */
export interface DataRoots {
  /** --data-root: the only place then; a folder of clones (`owner/name`), a hub cache, or what holds one as `hub`. */
  readonly root?: string | undefined;
  /** Caches of the hub, as the environment names them. */
  readonly hubCaches?: readonly string[] | undefined;
  /** Where `datasets` keeps converted copies: only to say that they are not read. */
  readonly datasetsCache?: string | undefined;
}

const NAME = /^[\w.-]{1,100}(\/[\w.-]{1,100})?$/;

/** A name of the hub, `owner/name` or `name`. Throws UserError for anything else. */
function checkDatasetName(dataset: string): void {
  if (!NAME.test(dataset) || dataset.split('/').some((part) => /^\.+$/.test(part)))
    throw new DataSettingError('dataset_path', `${quote(dataset)} is no name of a data set`);
}

/** The snapshot of a cached repository that a revision names, `main` unless another is asked for. */
function snapshotOf(repository: string, revision: string): string | undefined {
  const snapshots = join(repository, 'snapshots');
  if (!isFolder(snapshots)) return undefined;
  const reference = join(repository, 'refs', revision);
  const commit = existsSync(reference) ? readBounded(reference, 1000).toString('latin1').trim() : revision;
  if (/^[\w.-]+$/.test(commit) && isFolder(join(snapshots, commit))) return join(snapshots, commit);
  if (revision !== 'main') return undefined;
  // Without a reference, the latest.
  const dated = readdirSync(snapshots).map((name) => ({ name, time: statSync(join(snapshots, name)).mtimeMs }));
  const latest = dated.sort((a, b) => b.time - a.time)[0]?.name;
  return latest === undefined ? undefined : join(snapshots, latest);
}

/** The command that downloads what is missing to where it is looked for. */
export function downloadCommand(dataset: string, roots: DataRoots, include?: string): string {
  const to = roots.root === undefined ? '' : ` --local-dir ${join(roots.root, dataset)}`;
  const only = include === undefined ? '' : ` --include '${include}'`;
  return `hf download --repo-type dataset ${dataset}${only}${to}`;
}

/** Throws UserError with the command that downloads it. */
export function datasetFolder(dataset: string, roots: DataRoots, revision = 'main'): string {
  checkDatasetName(dataset);
  if (!/^[\w.-]{1,100}(\/[\w.-]{1,100}){0,3}$/.test(revision) || revision.includes('..'))
    throw new UserError(`${quote(revision)} is no revision of a data set`);
  const cached = `datasets--${dataset.replaceAll('/', '--')}`;
  const places = roots.root === undefined ? (roots.hubCaches ?? []) : [roots.root, join(roots.root, 'hub')];
  for (const place of places) {
    const snapshot = snapshotOf(join(place, cached), revision);
    if (snapshot !== undefined) return snapshot;
    if (roots.root !== undefined && isFolder(join(place, dataset))) return join(place, dataset);
  }
  if (
    roots.root !== undefined &&
    basename(roots.root) === basename(dataset) &&
    existsSync(join(roots.root, 'README.md'))
  )
    return roots.root;
  const converted = join(roots.datasetsCache ?? '', dataset.replaceAll('/', '___'));
  const isConverted = roots.root === undefined && roots.datasetsCache !== undefined && isFolder(converted);
  throw new UserError(
    `the data set ${dataset} is not in ${places[0] ?? 'any folder: there is no home folder'}` +
      (isConverted ? `; ${converted} has a converted copy, which is not read` : ''),
    downloadCommand(dataset, roots),
  );
}
