/** The folder of a checkpoint that is being written: under a temporary name, synced to disk, then renamed. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UsageError, UserError } from '../../errors.js';
import type { WeightEntry } from '../../models/model/tensors.js';
import type { SafetensorsLayout } from '../../models/weights/safetensors.js';
import { codeOf, diskProblem } from '../../system/errno.js';
import { bytes } from '../../system/format.js';
import { hasEnded, PROCESS_MARK, processMark } from '../../system/process.js';
import { readRange, withFile } from '../../system/read.js';
import { makeFolder, prepareOutput, syncFolder } from '../../system/write.js';

const ANOTHER = 'free some space, or give another folder';
const WEIGHTS = 'model.safetensors';
const PIECE_BYTES = 8 << 20;
/** Space to leave free beside the checkpoint, bytes: a full disk affects everybody. */
const SPARE_BYTES = 64 << 20;

function writeBytes(fd: number, data: Uint8Array, offset: number): void {
  for (let at = 0; at < data.length;) at += writeSync(fd, data, at, data.length - at, offset + at);
}

/** Runs `write`, with errors of the system as UserError. */
function guarded<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    if (codeOf(error) === '' || error instanceof UserError) throw error;
    throw diskProblem(path, error, ANOTHER);
  }
}

/** The bytes of a file; who may do what with it stays behind. */
function copyTo(fd: number, target: string, path: string): void {
  withFile(path, (from, size) => {
    for (let at = 0; at < size; at += PIECE_BYTES) {
      const piece = readRange(from, at, Math.min(PIECE_BYTES, size - at));
      guarded(target, () => writeBytes(fd, piece, at));
    }
  });
}

const UNFINISHED = new RegExp(`^\\.(${PROCESS_MARK})\\.new$`);

/** What processes that were killed left beside `target`. */
function removeLeftovers(target: string): void {
  for (const name of readdirSync(dirname(target))) {
    if (!name.startsWith(`${basename(target)}.`)) continue;
    const mark = UNFINISHED.exec(name.slice(basename(target).length))?.[1];
    if (mark !== undefined && hasEnded(mark)) rmSync(join(dirname(target), name), { recursive: true, force: true });
  }
}

/**
 * Proves, before any work is done, that a new folder can be written there. Throws UsageError where something is there
 * already, UserError where it cannot be written.
 */
export function prepareFolder(path: string): void {
  const target = resolve(path);
  if (existsSync(target))
    throw new UsageError(`${path}: is there already`, 'give the path of a new folder, or delete it');
  try {
    prepareOutput(dirname(target));
    removeLeftovers(target);
  } catch (error) {
    throw error instanceof UserError
      ? new UserError(error.message, ANOTHER, { cause: error })
      : diskProblem(path, error, ANOTHER);
  }
}

export class CheckpointFolder {
  /** Absolute path of the weights while they are written. */
  readonly weights: string;
  private readonly target: string;
  private readonly folder: string;
  private readonly layout: SafetensorsLayout;
  private fd: number | undefined;

  /** Nothing is there before the first tensor is written. Throws UserError where the disk has no room. */
  constructor(path: string, layout: SafetensorsLayout) {
    this.target = resolve(path);
    this.folder = `${this.target}.${processMark()}.new`;
    this.weights = join(this.folder, WEIGHTS);
    this.layout = layout;
    const { bavail, bsize } = guarded(path, () => statfsSync(dirname(this.target)));
    if (bavail * bsize < layout.sizeBytes + SPARE_BYTES)
      throw new UserError(
        `${path}: the checkpoint takes ${bytes(layout.sizeBytes)}, the disk has ${bytes(bavail * bsize)} left`,
        ANOTHER,
      );
  }

  private open(): number {
    rmSync(this.folder, { recursive: true, force: true });
    makeFolder(this.folder);
    this.fd = openSync(this.weights, 'wx');
    ftruncateSync(this.fd, this.layout.sizeBytes);
    writeBytes(this.fd, this.layout.header, 0);
    return this.fd;
  }

  write({ offset }: Pick<WeightEntry, 'offset'>, data: Uint8Array): void {
    guarded(this.weights, () => {
      writeBytes(this.fd ?? this.open(), data, offset);
    });
  }

  /** Copies a tensor as it is stored elsewhere. */
  copy(to: WeightEntry, file: string, from: Pick<WeightEntry, 'offset'>): void {
    withFile(file, (fd) => {
      for (let at = 0; at < to.byteLength; at += PIECE_BYTES)
        this.write(
          { offset: to.offset + at },
          readRange(fd, from.offset + at, Math.min(PIECE_BYTES, to.byteLength - at)),
        );
    });
  }

  /** Adds the other files, and moves the folder to its place. */
  finish(texts: ReadonlyMap<string, string>, copied: readonly string[]): void {
    guarded(this.target, () => {
      fsyncSync(this.fd!);
      this.close();
      for (const [name, text] of texts) this.add(name, (fd) => writeBytes(fd, Buffer.from(text), 0));
      for (const path of copied) this.add(basename(path), (fd) => copyTo(fd, this.target, path));
      syncFolder(this.folder);
      if (existsSync(this.target)) throw new UsageError(`${this.target}: is there by now`, 'give another folder');
      renameSync(this.folder, this.target);
      syncFolder(dirname(this.target));
    });
  }

  /** Leaves nothing behind where it was not finished. */
  abandon(): void {
    this.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  private close(): void {
    if (this.fd !== undefined) closeSync(this.fd);
    this.fd = undefined;
  }

  /** A file of the folder, synced. */
  private add(name: string, write: (fd: number) => void): void {
    const fd = openSync(join(this.folder, name), 'wx');
    try {
      write(fd);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  }
}
