/**
 * A checkpoint with an adapter: tensors that the adapter replaces lie in a file of the cache, as f32, and the others
 * where they were. Products that ride are not in it.
 */
import { createHash } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { readSettings } from '../../settings.js';
import { at } from '../../system/at.js';
import { codeOf, diskProblem, processMark } from '../../system/process.js';
import { intruder } from '../../system/read.js';
import { makeFolder } from '../../system/write.js';
import type { Checkpoint } from '../checkpoint.js';
import type { TensorLocation, WeightEntry } from '../model/tensors.js';
import { layOut, type SafetensorsLayout } from '../weights/safetensors.js';
import type { Adapter } from './adapter.js';
import type { ResolvedAdapter } from './open.js';
import { changedRows, rowsOf, stepOf } from './values.js';

/** A checkpoint whose model an adapter has changed. */
export interface AdaptedCheckpoint extends Checkpoint {
  /** Its products ride beside the matrices of this checkpoint. */
  readonly adapter: Adapter;
}

/** To be raised whenever other values come of the same adapter. */
const VERSION = 1;

function folderOf(): string {
  const { cacheDir } = readSettings();
  try {
    if (cacheDir !== undefined) {
      const folder = join(resolve(cacheDir), 'overlays');
      makeFolder(folder, 0o700);
      if (intruder(statSync(folder)) === undefined) return folder;
    }
  } catch (error) {
    if (codeOf(error) === '') throw error;
  }
  // Without a cache that can be trusted it lasts as long as the process.
  const own = mkdtempSync(join(tmpdir(), 'tilewright-overlay-'));
  process.on('exit', () => rmSync(own, { recursive: true, force: true }));
  return own;
}

const isThere = (path: string, sizeBytes: number): boolean => {
  const status = lstatSync(path, { throwIfNoEntry: false });
  return status?.isFile() === true && intruder(status) === undefined && status.size === sizeBytes;
};

/** Writes all of it at `offset`. */
function writeAt(fd: number, data: Uint8Array, offset: number): void {
  for (let done = 0; done < data.length;) done += writeSync(fd, data, done, data.length - done, offset + done);
}

function writeOverlay(
  path: string,
  layout: SafetensorsLayout,
  checkpoint: Checkpoint,
  { changes }: ResolvedAdapter,
): void {
  const temporary = `${path}.${processMark()}.tmp`;
  let fd: number | undefined;
  try {
    fd = openSync(temporary, 'w', 0o600);
    ftruncateSync(fd, layout.sizeBytes);
    writeAt(fd, layout.header, 0);
    for (const { name, offset } of layout.entries) {
      const change = changes.get(name)!;
      const from = change.from === undefined ? undefined : checkpoint.tensors.get(change.from);
      const [rows, columns] = [at(change.shape, 0), change.shape[1] ?? 1];
      const read = changedRows(change, from && rowsOf(from));
      const step = stepOf(columns);
      for (let first = 0; first < rows; first += step) {
        const values = Float32Array.from(read(first, Math.min(step, rows - first)));
        writeAt(fd, new Uint8Array(values.buffer), offset + first * columns * 4);
      }
    }
    fsyncSync(fd);
    closeSync(fd);
    fd = undefined;
    renameSync(temporary, path);
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
    rmSync(temporary, { force: true });
    if (codeOf(error) === '') throw error;
    throw diskProblem(path, error, 'free some space, or name another cache: export TILEWRIGHT_CACHE=/path');
  }
}

/**
 * The checkpoint with an adapter that was opened for it. Reads and writes what the adapter replaces, where the cache
 * does not have it. Throws UserError.
 */
export function withAdapter(checkpoint: Checkpoint, adapter: ResolvedAdapter): AdaptedCheckpoint {
  const { changes, model, hash } = adapter;
  const key = createHash('sha256').update(`adapted ${VERSION}\n${checkpoint.fingerprint()}\n${hash}\n`).digest('hex');
  const tensors = new Map<string, TensorLocation>();
  const overlay = changes.size === 0 ? undefined : overlayAt(key, checkpoint, adapter);
  const wanted = model === checkpoint.model ? checkpoint.tensors.keys() : namesOf(checkpoint, adapter);
  for (const name of wanted) {
    const entry = overlay?.entries.get(name);
    const alias =
      model.tied === undefined && checkpoint.model.tied?.head === name ? checkpoint.model.tied.embedding : name;
    const own = checkpoint.tensors.get(alias);
    if (entry !== undefined && overlay !== undefined) {
      const { shape, offset, byteLength } = entry;
      tensors.set(name, { kind: 'file', name, format: 'f32', shape, file: overlay.path, offset, byteLength });
    } else if (own !== undefined) tensors.set(name, own.name === name ? own : { ...own, name });
  }
  return {
    ...checkpoint,
    model,
    config: model.config,
    tensors,
    files: overlay === undefined ? checkpoint.files : [...checkpoint.files, overlay.path],
    warnings: [...checkpoint.warnings, ...adapter.warnings],
    fingerprint: () => key,
    adapter,
  };
}

/** Tensors of the model that an adapter has made: those of the base that it still has, and its own. */
function namesOf({ model: base, tensors }: Checkpoint, { model, changes }: ResolvedAdapter): readonly string[] {
  const [before, after] = [base, model].map(
    (each) =>
      new Set(
        each.tensors.flatMap(({ name, parts, partOf }) => parts?.map((part) => part.name) ?? [partOf?.name ?? name]),
      ),
  );
  const kept = [...tensors.keys()].filter((name) => after!.has(name) || !before!.has(name));
  return [...new Set([...kept, ...after!, ...changes.keys()])];
}

function overlayAt(
  key: string,
  checkpoint: Checkpoint,
  adapter: ResolvedAdapter,
): { readonly path: string; readonly entries: ReadonlyMap<string, WeightEntry> } {
  const layout = layOut(
    [...adapter.changes].map(([name, { shape }]) => ({
      name,
      dtype: 'F32',
      shape,
      byteLength: 4 * shape.reduce((all, extent) => all * extent, 1),
    })),
  );
  const path = join(folderOf(), `${key}.safetensors`);
  if (!isThere(path, layout.sizeBytes)) writeOverlay(path, layout, checkpoint, adapter);
  else {
    const now = new Date();
    utimesSync(path, now, now);
  }
  return { path, entries: new Map(layout.entries.map((entry) => [entry.name, entry])) };
}
