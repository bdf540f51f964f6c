/** Text files of lines, plain or gzip, from a file, a pipe or the standard input, read as a stream within bounds. */
import { closeSync, constants, createReadStream, openSync, readSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Socket } from 'node:net';
import { resolve } from 'node:path';
import { Readable } from 'node:stream';
import { createGunzip, type Gunzip } from 'node:zlib';
import { UserError } from '../errors.js';
import { codeOf, isAborted, quoteForShell, reasonOf } from './process.js';
import { fileSize } from './read.js';
import { bytes } from './text.js';

/** Limits beyond which a file is refused; sizes in bytes. */
export interface LineBounds {
  readonly maxLineBytes: number;
  /** Size of the text, after decompression. */
  readonly maxTotalBytes: number;
  /**
   * Decompressed size divided by compressed size, checked after the first 16 MiB. JSON text compresses 3 to 20 times.
   */
  readonly maxRatio: number;
}

export const DEFAULT_BOUNDS: LineBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 2 ** 31, maxRatio: 200 };
const RATIO_FROM_BYTES = 16 << 20;

/** The name of the standard input as a path. */
const STDIN = '-';

export const nameOf = (path: string): string => (path === STDIN ? 'stdin' : path);

/** What a file is to its reader, for messages. */
export interface FileWords {
  /** `dataset` */
  readonly noun: string;
  /** The flag that names the file: `--data`. */
  readonly flag: string;
  /** `question`: what a line holds. */
  readonly item: string;
  /** The command that reads it: `run`. */
  readonly command: string;
}

function systemProblem(path: string, error: unknown, { noun, flag, command }: FileWords): UserError {
  const code = codeOf(error);
  const options = { cause: error };
  const hint = path === STDIN ? `Try: tilewright ${command} … ${flag} FILE` : `Try: ls -l ${quoteForShell(path)}`;
  if (code === 'ENOENT')
    return new UserError(`no such ${noun}: ${path}`, `Check ${flag}: ${resolve(path)} is not there`, options);
  if (code === 'EISDIR')
    return new UserError(`${path} is a folder, not a file`, `Give one .jsonl or .jsonl.gz file with ${flag}`, options);
  if (code === 'EACCES') return new UserError(`${path} may not be read`, hint, options);
  if (code.startsWith('Z_')) {
    return new UserError(
      `${nameOf(path)}: the gzip data is truncated or damaged`,
      path === STDIN ? hint : `Fetch the file again; check it with: gzip -t ${quoteForShell(path)}`,
      options,
    );
  }
  return new UserError(`${nameOf(path)} cannot be read: ${reasonOf(error)}`, hint, options);
}

/**
 * A file, a pipe or the standard input as a stream. Pipes are polled: a blocking read would hold a thread that cannot
 * be stopped, and keep the process alive.
 */
async function openStream(path: string, { flag }: FileWords): Promise<Readable> {
  if (path === STDIN) return process.stdin;
  const status = await stat(path);
  if (status.isFIFO())
    return new Socket({ fd: openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), readable: true });
  if (status.isCharacterDevice() || status.isBlockDevice() || status.isSocket())
    throw new UserError(`${path} is neither a file nor a pipe`, `Give one .jsonl or .jsonl.gz file with ${flag}`);
  return createReadStream(path, { highWaterMark: 1 << 18 });
}

/** The bytes of a file, decompressed where they start with gzip's magic number. */
async function* readBytes(
  path: string,
  words: FileWords,
  bounds: LineBounds,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (isAborted(signal)) throw new Error(`stopped before the ${words.noun} was read`);
  const raw = await openStream(path, words);
  const stop = (): void => {
    raw.destroy(new Error(`stopped while the ${words.noun} was being read`));
  };
  signal?.addEventListener('abort', stop, { once: true });
  // It may have been aborted while the file was opened: no event tells of that.
  if (isAborted(signal)) stop();
  const chunks = (raw as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  let rawBytes = 0;
  const nextChunk = async (): Promise<Buffer | undefined> => {
    const next = await chunks.next();
    if (next.done === true) return undefined;
    rawBytes += next.value.length;
    return next.value;
  };
  let head = Buffer.alloc(0);
  const all = async function* (): AsyncGenerator<Buffer> {
    yield head;
    for (let chunk = await nextChunk(); chunk !== undefined; chunk = await nextChunk()) yield chunk;
  };
  let unzip: Gunzip | undefined;
  let total = 0;
  try {
    // The first chunk of a pipe may be a single byte.
    for (let chunk = await nextChunk(); chunk !== undefined; chunk = await nextChunk()) {
      head = Buffer.concat([head, chunk]);
      if (head.length >= 2) break;
    }
    const isGzip = head[0] === 0x1f && head[1] === 0x8b;
    if (isGzip) {
      const compressed = Readable.from(all());
      const inflate = compressed.pipe(createGunzip());
      // A read error must end the decompressor too, or the loop below would wait forever.
      compressed.on('error', (error) => inflate.destroy(error));
      unzip = inflate;
    }
    for await (const chunk of unzip === undefined ? all() : (unzip as AsyncIterable<Buffer>)) {
      total += chunk.length;
      if (total > bounds.maxTotalBytes) {
        throw new UserError(`${nameOf(path)} holds more than ${bytes(bounds.maxTotalBytes)} of text`, 'Split the file');
      }
      if (isGzip && total > RATIO_FROM_BYTES && total > bounds.maxRatio * rawBytes) {
        throw new UserError(
          `${nameOf(path)} decompresses to more than ${bounds.maxRatio} times its size: no ${words.noun} does`,
          `Look at it with: gzip -l ${quoteForShell(path)}`,
        );
      }
      yield chunk;
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    raw.destroy();
    unzip?.destroy();
  }
}

/** A line that is not blank, with its number in the file, counted from 1. */
export interface Line {
  readonly number: number;
  readonly text: string;
}

export interface ReadOptions {
  readonly bounds?: LineBounds | undefined;
  /** Called with all decompressed text, in order. */
  readonly onBytes?: (chunk: Uint8Array) => void;
  /** Stops reading, even from a pipe that sends nothing. */
  readonly signal?: AbortSignal | undefined;
}

/** The lines that are not blank. Throws UserError. */
export async function* readLines(path: string, words: FileWords, options: ReadOptions = {}): AsyncGenerator<Line> {
  const { bounds = DEFAULT_BOUNDS, onBytes, signal } = options;
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let number = 0;
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  const hold = (part: Uint8Array): void => {
    heldBytes += part.length;
    if (heldBytes > bounds.maxLineBytes) {
      throw new UserError(
        `${nameOf(path)}:${number + 1}: the line is longer than ${bytes(bounds.maxLineBytes)}`,
        `A ${words.noun} has one ${words.item} per line. If this is a JSON array, convert it with: jq -c ".[]"`,
      );
    }
    held.push(part);
  };
  const finish = (): Line | undefined => {
    number++;
    let text;
    try {
      text = decoder.decode(held.length === 1 ? held[0] : Buffer.concat(held));
    } catch (error) {
      throw new UserError(
        `${nameOf(path)}:${number}: the line is not UTF-8 text`,
        'Convert the file with: iconv -t utf-8',
        {
          cause: error,
        },
      );
    }
    held = [];
    heldBytes = 0;
    return text.trim() === '' ? undefined : { number, text };
  };
  try {
    for await (const chunk of readBytes(path, words, bounds, signal)) {
      onBytes?.(chunk);
      let start = 0;
      for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
        const isBlank = end === start && heldBytes === 0;
        if (!isBlank) hold(chunk.subarray(start, end));
        start = end + 1;
        if (isBlank) {
          number++;
          continue;
        }
        const line = finish();
        if (line !== undefined) yield line;
      }
      if (start < chunk.length) hold(chunk.subarray(start));
    }
    const last = heldBytes > 0 ? finish() : undefined;
    if (last !== undefined) yield last;
  } catch (error) {
    throw error instanceof UserError ? error : systemProblem(path, error, words);
  }
}

// Lines of a file one after another, with their places in it; a line is bounded before it is held.

const BUFFER = 1 << 20;

export interface FileLineOptions {
  readonly maxLineBytes: number;
  /** What to do about a file that cannot be read. */
  readonly hint: string;
  /** Called with all bytes, in order. */
  readonly onBytes?: (part: Buffer) => void;
}

export interface FileLine {
  /** From 1. */
  readonly number: number;
  /** Where it begins in the file. */
  readonly offset: number;
  /** Without its end. */
  readonly bytes: Buffer;
  /** False for a last line that has no end: the file was cut off, or its writer puts none. */
  readonly isEnded: boolean;
}

export class FileLines {
  readonly path: string;
  readonly #fd: number;
  readonly #options: FileLineOptions;
  readonly #buffer = Buffer.alloc(BUFFER);
  #held = Buffer.alloc(0);
  #number = 0;
  #offset = 0;

  /** Throws UserError. */
  constructor(path: string, options: FileLineOptions) {
    this.path = path;
    this.#options = options;
    // A pipe would be waited for.
    if (fileSize(path, options.hint) === undefined) throw new UserError(`${path}: no such file`, options.hint);
    this.#fd = this.#system(() => openSync(path, 'r'));
  }

  /** Undefined at the end. Throws UserError for a line that is too long. */
  next(): FileLine | undefined {
    const { maxLineBytes, hint, onBytes } = this.#options;
    const parts = [this.#held];
    let length = this.#held.length;
    let end = this.#held.indexOf(10);
    while (end < 0) {
      const read = this.#system(() => readSync(this.#fd, this.#buffer, 0, BUFFER, null));
      if (read === 0) break;
      const part = Buffer.from(this.#buffer.subarray(0, read));
      onBytes?.(part);
      const at = part.indexOf(10);
      if (at >= 0) end = length + at;
      parts.push(part);
      length += read;
      if ((end < 0 ? length : end) > maxLineBytes)
        throw new UserError(`${this.path}:${this.#number + 1}: the line is too long`, hint);
    }
    if (end < 0 && length === 0) return undefined;
    const all = parts.length === 1 ? this.#held : Buffer.concat(parts);
    const isEnded = end >= 0;
    const bytes = isEnded ? all.subarray(0, end) : all;
    this.#held = isEnded ? all.subarray(end + 1) : Buffer.alloc(0);
    const line = { number: ++this.#number, offset: this.#offset, bytes, isEnded };
    this.#offset += bytes.length + 1;
    return line;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #system<T>(call: () => T): T {
    try {
      return call();
    } catch (error) {
      if (codeOf(error) === '') throw error;
      throw new UserError(`${this.path}: cannot be read: ${reasonOf(error)}`, this.#options.hint, { cause: error });
    }
  }
}
