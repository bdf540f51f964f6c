/** Writes a made-up checkpoint: first into a folder beside its place, moved there when it is complete. */
import {
  closeSync,
  copyFileSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { UserError } from '../../errors.js';
import { codeOf } from '../../system/errno.js';
import { bytesWritten, fillBlocks, makeFillWork, stopFilling, type FillWork } from './fill.js';
import { blocksOf, type MadeCheckpoint } from './layout.js';

export interface WriteRequest {
  readonly checkpoint: MadeCheckpoint;
  readonly seed: number;
  /** Text of config.json. */
  readonly config: string;
  /** Copied into the folder under their own names. */
  readonly tokenizerFiles: readonly string[];
  /** Must not exist, or be empty. */
  readonly out: string;
  readonly threads: number;
  readonly onProgress?: (doneBytes: number) => void;
  readonly signal?: AbortSignal;
}

const PROGRESS_MS = 200;
/** Space to leave free beside the checkpoint, bytes: a full disk affects everybody. */
const SPARE = 64 << 20;

const gigabytes = (bytes: number): string => (bytes / 1e9).toFixed(bytes < 1e8 ? 3 : 1);

/** The nearest existing folder above `path`. */
const existingAbove = (path: string): string => (existsSync(path) ? path : existingAbove(dirname(path)));

/** Refuses a place that is taken or too small, before anything is written. Throws UserError. */
function checkPlace(out: string, bytes: number): void {
  if (existsSync(out)) {
    let names: string[];
    try {
      names = readdirSync(out);
    } catch (error) {
      throw new UserError(`--out ${out}: is not a folder that can be read`, 'give the path of a new folder', {
        cause: error,
      });
    }
    if (names.length > 0)
      throw new UserError(`--out ${out}: the folder is not empty`, 'give another, or delete it first');
  }
  const { bavail, bsize } = statfsSync(existingAbove(dirname(out)));
  if (bavail * bsize < bytes + SPARE) {
    throw new UserError(
      `--out ${out}: the checkpoint takes ${gigabytes(bytes)} GB, the disk has ${gigabytes(bavail * bsize)} GB left`,
      'give a folder on a larger disk, or make a shorter model: --layers N',
    );
  }
}

function explain(error: unknown, out: string): unknown {
  const code = codeOf(error);
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new UserError(`${out}: the disk is full`, 'make room, or make a shorter model: --layers N', {
      cause: error,
    });
  if (code === 'EACCES' || code === 'EROFS' || code === 'EPERM')
    return new UserError(`${out}: may not be written`, 'give a folder of your own', { cause: error });
  if (code === 'EFBIG')
    return new UserError(`${out}: files of this disk cannot be so large`, 'make smaller ones: --shard 2GB', {
      cause: error,
    });
  return error;
}

/** Works in this thread, for tests and where threads are not available. */
async function fillHere(work: FillWork): Promise<void> {
  for (const _block of fillBlocks(work)) await setImmediate();
}

const fillInThread = (work: FillWork, module: URL): Promise<void> =>
  new Promise((done, reject) => {
    const worker = new Worker(module, { workerData: work });
    worker.once('error', (error) => {
      stopFilling(work);
      reject(error);
    });
    worker.once('exit', () => done());
  });

/** Waits until each has settled, then throws the first error. */
async function all(jobs: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(jobs)) if (result.status === 'rejected') throw result.reason;
}

async function writeWeights(
  { checkpoint, seed, threads, onProgress, signal }: WriteRequest,
  folder: string,
): Promise<void> {
  const descriptors: number[] = [];
  try {
    for (const { name, header, bytes } of checkpoint.files) {
      const descriptor = openSync(join(folder, name), 'wx');
      descriptors.push(descriptor);
      ftruncateSync(descriptor, bytes);
      writeSync(descriptor, header, 0, header.length, 0);
    }
    const work = makeFillWork({ seed, dtype: checkpoint.dtype, blocks: blocksOf(checkpoint), descriptors });
    const stop = (): void => stopFilling(work);
    signal?.addEventListener('abort', stop);
    if (signal?.aborted === true) stop();
    const timer = setInterval(() => onProgress?.(bytesWritten(work)), PROGRESS_MS);
    try {
      const module = new URL('./worker.js', import.meta.url);
      const count = existsSync(module) ? Math.min(threads, work.blocks.length) : 1;
      await (count === 1 ? fillHere(work) : all(Array.from({ length: count }, () => fillInThread(work, module))));
    } finally {
      clearInterval(timer);
      signal?.removeEventListener('abort', stop);
    }
    onProgress?.(bytesWritten(work));
    signal?.throwIfAborted();
  } finally {
    for (const descriptor of descriptors) closeSync(descriptor);
  }
}

/**
 * Throws UserError if the place is taken, too small or cannot be written; rejects with the signal's reason if it was
 * aborted. An incomplete checkpoint is removed. Nothing is forced onto the disk, because what a crash loses can be made
 * again.
 */
export async function writeCheckpoint(request: WriteRequest): Promise<void> {
  const { checkpoint, config, tokenizerFiles } = request;
  const out = resolve(request.out);
  checkPlace(out, checkpoint.bytes);
  const folder = join(dirname(out), `.${basename(out)}.${process.pid}.part`);
  try {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'config.json'), config);
    if (checkpoint.index !== undefined) writeFileSync(join(folder, 'model.safetensors.index.json'), checkpoint.index);
    for (const file of tokenizerFiles) copyFileSync(file, join(folder, basename(file)));
    await writeWeights(request, folder);
    renameSync(folder, out);
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw explain(error, out);
  }
}
