/** Datasets: JSON lines, plain or gzip, from a file, a pipe or the standard input, read as a stream within bounds. */
import { createHash } from 'node:crypto';
import { constants, createReadStream, openSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Socket } from 'node:net';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { createGunzip, type Gunzip } from 'node:zlib';
import { UserError } from '../errors.js';
import { codeOf, reasonOf } from '../system/errno.js';
import { bytes } from '../system/format.js';
import { isDeeperThan, MAX_JSON_DEPTH } from '../system/json.js';
import { quoteForShell } from '../system/shell.js';
import { chooseDocs, needsTotal, printDocs, type ClosedRange, type Selection } from './selection.js';
import { badRecord, type Question, type Task } from './tasks/task.js';

/** Limits beyond which a file is refused; sizes in bytes. */
export interface DatasetBounds {
  readonly maxLineBytes: number;
  /** Size of the text, after decompression. */
  readonly maxTotalBytes: number;
  /**
   * Decompressed size divided by compressed size, checked after the first 16 MiB. JSON text compresses 3 to 20 times.
   */
  readonly maxRatio: number;
}

export const DEFAULT_BOUNDS: DatasetBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 2 ** 31, maxRatio: 200 };
const RATIO_FROM_BYTES = 16 << 20;

/** The value of `--data` for the standard input. */
export const STDIN = '-';

const nameOf = (path: string): string => (path === STDIN ? 'stdin' : path);

function systemProblem(path: string, error: unknown): UserError {
  const code = codeOf(error);
  const options = { cause: error };
  const hint = path === STDIN ? 'Try: tilewright run … --data FILE' : `Try: ls -l ${quoteForShell(path)}`;
  if (code === 'ENOENT') return new UserError(`no such dataset: ${path}`, 'Check the path given with --data', options);
  if (code === 'EISDIR')
    return new UserError(
      `${path} is a folder, not a dataset file`,
      'Give one .jsonl or .jsonl.gz file with --data',
      options,
    );
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
async function openStream(path: string): Promise<Readable> {
  if (path === STDIN) return process.stdin;
  const status = await stat(path);
  if (status.isFIFO())
    return new Socket({ fd: openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), readable: true });
  if (status.isCharacterDevice() || status.isBlockDevice() || status.isSocket())
    throw new UserError(`${path} is neither a file nor a pipe`, 'Give one .jsonl or .jsonl.gz file with --data');
  return createReadStream(path, { highWaterMark: 1 << 18 });
}

/** The bytes of a dataset, decompressed where they start with gzip's magic number. */
async function* readBytes(path: string, bounds: DatasetBounds, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
  if (signal?.aborted === true) throw new Error('stopped before the data set was read');
  const raw = await openStream(path);
  const stop = (): void => {
    raw.destroy(new Error('stopped while the data set was being read'));
  };
  signal?.addEventListener('abort', stop, { once: true });
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
          `${nameOf(path)} decompresses to more than ${bounds.maxRatio} times its size, far more than any question set`,
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
  readonly bounds?: DatasetBounds | undefined;
  /** Called with all decompressed text, in order. */
  readonly onBytes?: (chunk: Uint8Array) => void;
  /** Stops reading, even from a pipe that sends nothing. */
  readonly signal?: AbortSignal | undefined;
}

/** The lines that are not blank. Throws UserError. */
export async function* readLines(path: string, options: ReadOptions = {}): AsyncGenerator<Line> {
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
        'A dataset has one question per line. If this is a JSON array, convert it with: jq -c ".[]"',
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
    for await (const chunk of readBytes(path, bounds, signal)) {
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
    throw error instanceof UserError ? error : systemProblem(path, error);
  }
}

export interface Dataset {
  /** The chosen questions, in the order of the file. */
  readonly questions: readonly Question[];
  /** Their numbers: ascending, disjoint ranges. */
  readonly docs: readonly ClosedRange[];
  /** Number of questions in the file. */
  readonly total: number;
  /** Hex SHA-256 of the decompressed text: the same for a file and its .gz. */
  readonly sha256: string;
}

export interface DatasetOptions extends Selection {
  /** A file, a pipe, or `-` for the standard input. */
  readonly path: string;
  readonly task: Task;
  readonly bounds?: DatasetBounds;
  readonly signal?: AbortSignal | undefined;
}

function parse(task: Task, line: Line, where: string): unknown {
  // Checked here, because a value that can be parsed may still be too deep to print into the samples.
  if (isDeeperThan(line.text, MAX_JSON_DEPTH))
    throw badRecord(task, where, `the line is nested more than ${MAX_JSON_DEPTH} deep`);
  try {
    return JSON.parse(line.text);
  } catch (error) {
    throw badRecord(task, where, `the line is not JSON (${error instanceof Error ? error.message : String(error)})`);
  }
}

/** Refuses a range that starts after the last question; next to other ranges the mistake would go unnoticed. */
function checkRanges({ docs = [], path, task }: DatasetOptions, total: number): void {
  if (total === 0)
    throw new UserError(`${nameOf(path)} holds no questions`, `Each line of ${task.name} is ${task.schema}`);
  const behind = docs.find(({ first }) => first >= total);
  if (behind === undefined) return;
  throw new UserError(
    `--docs ${printDocs([behind])} starts after the last question: ${nameOf(path)} has ${total} (0 to ${total - 1})`,
    `Example: --docs 0:${total} (all of them)`,
  );
}

/**
 * Reads the chosen questions and the rest of the file. Lines outside the selection are counted and hashed, but not
 * parsed. Throws UserError with `file:line`.
 */
export async function loadDataset(options: DatasetOptions): Promise<Dataset> {
  const { path, task, bounds, signal } = options;
  const hash = createHash('sha256');
  const name = basename(nameOf(path));
  const read = (line: Line, docId: number): Question => {
    const where = `${name}:${line.number}`;
    return { ...task.read(parse(task, line, where), docId, where), line: line.number };
  };
  const questions: Question[] = [];
  /** All lines, if the selection depends on the number of lines. */
  const held: Line[] | undefined = needsTotal(options) ? [] : undefined;
  const early = held === undefined ? chooseDocs(options) : [];
  let total = 0,
    range = 0;
  for await (const line of readLines(path, { bounds, signal, onBytes: (chunk) => hash.update(chunk) })) {
    const docId = total++;
    held?.push(line);
    while (docId >= (early[range]?.end ?? Infinity)) range++;
    if (docId >= (early[range]?.first ?? Infinity)) questions.push(read(line, docId));
  }
  checkRanges(options, total);
  const docs = chooseDocs(options, total);
  if (held !== undefined)
    for (const { first, end } of docs)
      for (const [i, line] of held.slice(first, end).entries()) questions.push(read(line, first + i));
  return { questions, docs, total, sha256: hash.digest('hex') };
}
