/** Datasets: JSON lines, plain or gzip, read as a stream within bounds. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { createGunzip } from 'node:zlib';
import { UserError } from '../errors.js';
import { selectRange, type Selection } from './selection.js';
import { badRecord, type Question, type Task } from './tasks/task.js';

/** What a file may cost before it is refused; sizes in bytes. */
export interface DatasetBounds {
  readonly maxLineBytes: number;
  /** Of text, after decompression. */
  readonly maxTotalBytes: number;
  /** Decompressed over compressed size, checked past the first 16 MiB. JSON text compresses 3 to 20 times. */
  readonly maxRatio: number;
}

export const DEFAULT_BOUNDS: DatasetBounds = { maxLineBytes: 4 << 20, maxTotalBytes: 2 ** 31, maxRatio: 200 };
const RATIO_FROM_BYTES = 16 << 20;

const size = (bytes: number): string => (bytes >= 1 << 20 ? `${Math.round(bytes / (1 << 20))} MiB` : `${bytes} bytes`);

function systemProblem(path: string, error: unknown): UserError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const options = { cause: error };
  if (code === 'ENOENT') return new UserError(`no such dataset: ${path}`, 'Check the path given with --data', options);
  if (code === 'EISDIR')
    return new UserError(
      `${path} is a folder, not a dataset file`,
      'Give one .jsonl or .jsonl.gz file with --data',
      options,
    );
  if (code === 'EACCES') return new UserError(`${path} may not be read`, `Try: ls -l ${path}`, options);
  if (code.startsWith('Z_')) {
    return new UserError(
      `${path}: the gzip data is truncated or damaged`,
      `Fetch the file again; check it with: gzip -t ${path}`,
      options,
    );
  }
  return new UserError(
    `${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
    `Try: ls -l ${path}`,
    options,
  );
}

/** The bytes of a file, decompressed where it starts with gzip's magic number. */
async function* readBytes(path: string, bounds: DatasetBounds): AsyncGenerator<Uint8Array> {
  const head = new Uint8Array(2);
  const file = await open(path);
  try {
    await file.read(head, 0, 2, 0);
  } finally {
    await file.close();
  }
  const raw = createReadStream(path, { highWaterMark: 1 << 18 });
  const isGzip = head[0] === 0x1f && head[1] === 0x8b;
  const stream = isGzip ? raw.pipe(createGunzip()) : raw;
  // A reading error must end the decompressor too, or the loop below would wait for ever.
  if (stream !== raw) raw.on('error', (error) => stream.destroy(error));
  let total = 0;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > bounds.maxTotalBytes) {
        throw new UserError(`${path} holds more than ${size(bounds.maxTotalBytes)} of text`, 'Split the file');
      }
      if (isGzip && total > RATIO_FROM_BYTES && total > bounds.maxRatio * raw.bytesRead) {
        throw new UserError(
          `${path} decompresses to more than ${bounds.maxRatio} times its size, which no question set does`,
          `Look at it with: gzip -l ${path}`,
        );
      }
      yield chunk;
    }
  } finally {
    raw.destroy();
    stream.destroy();
  }
}

/** One line that holds something, with its number in the file counted from 1. */
export interface Line {
  readonly number: number;
  readonly text: string;
}

/** The lines that are not blank. onBytes sees every byte of decompressed text, in order. Throws UserError. */
export async function* readLines(
  path: string,
  bounds: DatasetBounds = DEFAULT_BOUNDS,
  onBytes?: (chunk: Uint8Array) => void,
): AsyncGenerator<Line> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let number = 0;
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  const hold = (part: Uint8Array): void => {
    heldBytes += part.length;
    if (heldBytes > bounds.maxLineBytes) {
      throw new UserError(
        `${path}:${number + 1}: the line is longer than ${size(bounds.maxLineBytes)}`,
        'A dataset has one question a line: is this a JSON array? Convert it with: jq -c ".[]"',
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
      throw new UserError(`${path}:${number}: the line is not UTF-8 text`, 'Convert the file with: iconv -t utf-8', {
        cause: error,
      });
    }
    held = [];
    heldBytes = 0;
    return text.trim() === '' ? undefined : { number, text };
  };
  try {
    for await (const chunk of readBytes(path, bounds)) {
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

/** A dataset once it was read to its end. */
export interface DatasetSummary {
  /** Questions in the file. */
  readonly total: number;
  /** Hex sha256 of the text, decompressed: the same for a file and its .gz. */
  readonly sha256: string;
}

export interface DatasetOptions extends Selection {
  readonly path: string;
  readonly task: Task;
  readonly bounds?: DatasetBounds;
}

/** Only a fraction needs the number of questions before the first of them is chosen. */
async function countLines(path: string, bounds: DatasetBounds): Promise<number> {
  let count = 0;
  for await (const _line of readLines(path, bounds)) count++;
  return count;
}

function parse(task: Task, line: Line, where: string): unknown {
  try {
    return JSON.parse(line.text);
  } catch (error) {
    throw badRecord(task, where, `the line is not JSON (${error instanceof Error ? error.message : String(error)})`);
  }
}

/**
 * The chosen questions in file order as they are read; returns the summary, for which the file is read to its end.
 * Lines outside the selection are counted and hashed, not parsed. Throws UserError with `file:line`.
 */
export async function* readQuestions(options: DatasetOptions): AsyncGenerator<Question, DatasetSummary> {
  const { path, task, bounds = DEFAULT_BOUNDS } = options;
  const isFraction = options.limit !== undefined && options.limit < 1;
  const { first, end } = selectRange(options, isFraction ? await countLines(path, bounds) : undefined);
  const hash = createHash('sha256');
  let total = 0;
  for await (const line of readLines(path, bounds, (chunk) => hash.update(chunk))) {
    const docId = total++;
    if (docId < first || docId >= end) continue;
    const where = `${basename(path)}:${line.number}`;
    yield task.read(parse(task, line, where), docId, where);
  }
  if (total === 0)
    throw new UserError(`${path} holds no questions`, `Each line of a ${task.name} file is ${task.schema}`);
  if (first >= total) {
    throw new UserError(
      `--docs starts at question ${first}, but ${path} has ${total} (0 to ${total - 1})`,
      `Example: --docs 0:${total} (all of them)`,
    );
  }
  return { total, sha256: hash.digest('hex') };
}

export interface Dataset extends DatasetSummary {
  readonly questions: readonly Question[];
}

/** Reads all chosen questions. */
export async function loadDataset(options: DatasetOptions): Promise<Dataset> {
  const reader = readQuestions(options);
  const questions: Question[] = [];
  for (;;) {
    const next = await reader.next();
    if (next.done === true) return { questions, ...next.value };
    questions.push(next.value);
  }
}
