/** The place of every byte of a made-up checkpoint. Pure: writes nothing. */
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
import { UserError } from '../errors.js';
import { roundUp } from '../ir/types.js';
import type { Model } from '../models/model/model.js';
import type { ExpectedTensor } from '../models/model/tensors.js';
import { codeOf } from '../system/process.js';
import {
  BLOCK_BYTES,
  bytesWritten,
  ELEMENT_BYTES,
  type FillBlock,
  fillBlocks,
  type FillWork,
  type MadeDType,
  type MadeTensor,
  makeFillWork,
  stopFilling,
} from './checkpointValues.js';
import { at } from '../system/at.js';

export interface MadeFile {
  readonly name: string;
  /** The length and JSON that precede the tensors. */
  readonly header: Uint8Array;
  readonly tensors: readonly MadeTensor[];
  readonly bytes: number;
}

export interface MadeCheckpoint {
  readonly dtype: MadeDType;
  readonly files: readonly MadeFile[];
  /** Text of model.safetensors.index.json; undefined for a checkpoint of one file, which has none. */
  readonly index: string | undefined;
  /** The size of all weight files together, bytes. */
  readonly bytes: number;
}

/** The most files that a checkpoint may have and still be read. */
const MAX_FILES = 4096;
/** The JSON is padded so that tensors start at a multiple of this. */
const ALIGNMENT = 8;

type SizedTensor = ExpectedTensor & { readonly bytes: number };

function layOutFile(name: string, tensors: readonly SizedTensor[], dtype: MadeDType): MadeFile {
  const described: Record<string, object> = { __metadata__: { format: 'pt' } };
  let end = 0;
  const starts = tensors.map(({ name: tensor, shape, bytes }) => {
    const begin = end;
    end += bytes;
    described[tensor] = { dtype: dtype.toUpperCase(), shape, data_offsets: [begin, end] };
    return begin;
  });
  const text = JSON.stringify(described);
  const json = Buffer.from(text.padEnd(roundUp(Buffer.byteLength(text), ALIGNMENT)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const header = Buffer.concat([length, json]);
  return {
    name,
    header,
    bytes: header.length + end,
    tensors: tensors.map(({ name: tensor, role, bytes }, i) => ({
      name: tensor,
      role,
      bytes,
      offset: header.length + at(starts, i),
    })),
  };
}

/**
 * Places tensors in the order of the computation, and starts a new file where the next tensor would exceed `fileBytes`
 * (a larger tensor gets its own file). Throws UserError if the limit is so small that there would be too many files.
 */
export function layOut(model: Model, dtype: MadeDType, fileBytes: number): MadeCheckpoint {
  const groups: SizedTensor[][] = [];
  let room = 0;
  for (const tensor of model.tensors) {
    const bytes = tensor.shape.reduce((product, extent) => product * extent, ELEMENT_BYTES);
    if (groups.length === 0 || bytes > room) {
      groups.push([]);
      room = fileBytes;
    }
    groups.at(-1)!.push({ ...tensor, bytes });
    room -= bytes;
  }
  if (groups.length > MAX_FILES)
    throw new UserError(
      `--shard: ${groups.length} files; a checkpoint may have ${MAX_FILES}`,
      'give a larger size, for example: --shard 10GB',
    );
  const digits = (number: number): string => String(number).padStart(5, '0');
  const nameOf = (i: number): string =>
    groups.length === 1 ? 'model.safetensors' : `model-${digits(i + 1)}-of-${digits(groups.length)}.safetensors`;
  const files = groups.map((tensors, i) => layOutFile(nameOf(i), tensors, dtype));
  const map = Object.fromEntries(files.flatMap(({ name, tensors }) => tensors.map((tensor) => [tensor.name, name])));
  const total = groups.flat().reduce((sum, { bytes }) => sum + bytes, 0);
  return {
    dtype,
    files,
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    index:
      files.length === 1
        ? undefined
        : `${JSON.stringify({ metadata: { total_size: total }, weight_map: map }, undefined, 1)}\n`,
  };
}

/** All blocks. Neighbours are in different files, because one file takes one writer at a time. */
export function blocksOf({ files }: MadeCheckpoint): FillBlock[] {
  const byFile = files.map(({ tensors }, file) =>
    tensors.flatMap((tensor) =>
      Array.from({ length: Math.ceil(tensor.bytes / BLOCK_BYTES) }, (_, number): FillBlock => ({
        file,
        tensor,
        number,
        offset: tensor.offset + number * BLOCK_BYTES,
        bytes: Math.min(BLOCK_BYTES, tensor.bytes - number * BLOCK_BYTES),
      })),
    ),
  );
  const longest = Math.max(...byFile.map((blocks) => blocks.length));
  return Array.from({ length: longest }, (_, i) => byFile.flatMap((blocks) => blocks[i] ?? [])).flat();
}

/** Writes a made-up checkpoint: first into a folder beside its place, moved there when it is complete. */

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
      const module = new URL('./checkpointValues.js', import.meta.url);
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
