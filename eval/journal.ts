/**
 * The journal of finished questions: JSON lines, append-only, so that a run that was killed can continue. Line 1
 * identifies the run; each further line is a finished question {doc_id, ll, greedy}, with
 * the log-probabilities of its tokens where a run keeps them. Every line ends with its checksum,
 * so that an edited or damaged answer is never used.
 */
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  statSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { UserError } from '../errors.js';
import { codeOf, diskProblem } from '../system/errno.js';
import { isRecord, quote } from '../system/json.js';
import { quoteForShell } from '../system/shell.js';
import type { Scores } from './metrics.js';

/** Everything that must agree before another run may use the answers: dataset hash, task, model, precision … */
export type RunIdentity = Readonly<Record<string, string | number | boolean | null>>;

const FORMAT = 2;
const HEADER_START = '{"journal":';
const SYNC_INTERVAL_MS = 1000;
const MAX_BYTES = 2 ** 30;

export interface JournalOptions {
  readonly path: string;
  readonly identity: RunIdentity;
  /** Continue the existing journal. Otherwise it is kept under a numbered name. */
  readonly resume: boolean;
  /** Number of choices of each question of this run, by doc_id. */
  readonly choices: ReadonlyMap<number, number>;
}

/** Each data file of a task has its own journal. `dataset` is the file's hash. */
export const journalPath = (folder: string, task: string, dataset: string): string =>
  join(folder, `journal_${task}_${dataset.slice(0, 8)}.jsonl`);

/** Whether a file name is that of a journal of the task, for any data. */
export const isJournalOf = (task: string, name: string): boolean =>
  name.startsWith(`journal_${task}_`) && /^[0-9a-f]{8}\.jsonl$/.test(name.slice(`journal_${task}_`.length));

const CHECKSUM = /,"crc32":"([0-9a-f]{8})"\}$/;

/** A JSON object as a line that ends with the CRC-32 of the object without it. */
export function printLine(value: object): string {
  const text = JSON.stringify(value);
  return `${text.slice(0, -1)},"crc32":"${crc32(text).toString(16).padStart(8, '0')}"}\n`;
}

/** Whether a line's checksum is right. */
export function isIntact(line: string): boolean {
  const [end, checksum] = CHECKSUM.exec(line) ?? [];
  return end !== undefined && crc32(`${line.slice(0, -end.length)}}`) === Number.parseInt(checksum!, 16);
}

function parseObject(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Undefined if the line is not a finished question of this run. */
function parseEntry(line: string, choices: JournalOptions['choices']): Scores | undefined {
  const entry = parseObject(line);
  const docId = entry?.['doc_id'],
    ll = entry?.['ll'],
    greedy = entry?.['greedy'];
  if (typeof docId !== 'number' || !Array.isArray(ll) || !Array.isArray(greedy)) return undefined;
  const count = choices.get(docId);
  const isWhole =
    ll.length === count &&
    greedy.length === count &&
    ll.every((value) => typeof value === 'number' && Number.isFinite(value)) &&
    greedy.every((value) => typeof value === 'boolean');
  if (!isWhole) return undefined;
  const scores = { docId, ll: ll as number[], greedy: greedy as boolean[] };
  const tokens = entry?.['tokens'];
  if (tokens === undefined) return scores;
  return isTokens(tokens, ll.length) ? { ...scores, tokens } : undefined;
}

const isTokens = (value: unknown, choices: number): value is number[][] =>
  Array.isArray(value) &&
  value.length === choices &&
  value.every((each) => Array.isArray(each) && each.every((x) => typeof x === 'number' && Number.isFinite(x)));

/** JSON prints a double with enough digits to read back the same double. */
const printEntry = ({ docId, ll, greedy, tokens }: Scores): string =>
  printLine({ doc_id: docId, ll, greedy, ...(tokens === undefined ? {} : { tokens }) });

const shown = (value: unknown): string => {
  const text = value === undefined ? 'absent' : quote(value, 1000);
  return text.length > 40 ? `${text.slice(0, 16)}…"` : text;
};

/** Compares a journal's first line with a run, in the facts of `identity` or, by default, in all. */
function checkHeader(path: string, line: string, identity: RunIdentity, names?: readonly string[]): void {
  const header = parseObject(line);
  const fresh =
    'Run without --resume to start again (the old journal is kept beside the new one), or give another --out';
  if (header === undefined || header['journal'] === undefined) throw new UserError(`${path} is not a journal`, fresh);
  if (header['journal'] !== FORMAT) {
    throw new UserError(
      `${path} has journal format ${shown(header['journal'])}, but this version writes ${FORMAT}`,
      fresh,
    );
  }
  const found = isRecord(header['run']) ? header['run'] : {};
  if (!isIntact(line)) throw new UserError(`${path}:1: the line was edited or damaged: its checksum is wrong`, fresh);
  const all = names ?? [...new Set([...Object.keys(identity), ...Object.keys(found)])];
  const differing = all.filter((name) => found[name] !== identity[name]).sort();
  if (differing.length === 0) return;
  const list = differing
    .map(
      (name) =>
        `${/^\w{1,40}$/.test(name) ? name : quote(name)} (journal ${shown(found[name])}, now ${shown(identity[name])})`,
    )
    .join(', ');
  throw new UserError(`${path} belongs to another run: it differs in ${list}`, fresh);
}

const MAX_HEADER_BYTES = 1 << 16;

/**
 * Refuses a journal of another run by what is known before the model is compiled; the rest is compared when it is
 * opened. Throws UserError.
 */
export function checkJournal(path: string, known: RunIdentity): void {
  if (!existsSync(path)) return;
  const bytes = Buffer.alloc(MAX_HEADER_BYTES);
  const fd = openSync(path, 'r');
  try {
    const end = bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0)).indexOf(10);
    if (end > 0) checkHeader(path, bytes.toString('utf8', 0, end), known, Object.keys(known));
  } finally {
    closeSync(fd);
  }
}

const deleteLine = (path: string, number: number): string =>
  `Delete the line to score that question again: sed -i ${number}d ${quoteForShell(path)}; or run without --resume`;

/** The content of a journal: its finished questions, and the number of bytes up to the end of its last whole line. */
function readJournal({ path, identity, choices }: JournalOptions): { done: Map<number, Scores>; wholeBytes: number } {
  const done = new Map<number, Scores>();
  if (statSync(path).size > MAX_BYTES)
    throw new UserError(
      `${path} is larger than a journal can be`,
      `Look at it with: head -c 300 ${quoteForShell(path)}`,
    );
  const bytes = readFileSync(path);
  // An incomplete last line was being written when the run died.
  const wholeBytes = bytes.lastIndexOf(10) + 1;
  if (wholeBytes === 0) {
    const start = bytes.toString('utf8', 0, HEADER_START.length);
    if (!HEADER_START.startsWith(start))
      throw new UserError(`${path} is not a journal`, 'Move it away, or give another --out');
    return { done, wholeBytes };
  }
  let number = 0;
  for (let start = 0; start < wholeBytes;) {
    const end = bytes.indexOf(10, start);
    const line = bytes.toString('utf8', start, end);
    number++;
    if (number === 1) {
      checkHeader(path, line, identity);
    } else {
      const entry = parseEntry(line, choices);
      // A power cut may leave a damaged tail; the lines before it are good.
      if (entry === undefined && end + 1 === wholeBytes) return { done, wholeBytes: start };
      if (entry === undefined) {
        throw new UserError(`${path}:${number}: not a finished question of this run`, deleteLine(path, number));
      }
      if (!isIntact(line)) {
        throw new UserError(
          `${path}:${number}: the line was edited or damaged: its checksum is wrong`,
          deleteLine(path, number),
        );
      }
      // Computed again for the sake of its tokens: the answers are the same.
      if (!done.has(entry.docId) || entry.tokens !== undefined) done.set(entry.docId, entry);
    }
    start = end + 1;
  }
  return { done, wholeBytes };
}

/**
 * Gives a journal the first numbered name that is free (journal_x.1.jsonl): starting again never destroys answers. The
 * name is reserved by creating the file, so that two processes cannot overwrite each other's.
 */
export function keepAside(path: string): { readonly path: string; readonly questions: number } {
  const lines =
    statSync(path).size > MAX_BYTES ? 1 : readFileSync(path).reduce((n, byte) => n + (byte === 10 ? 1 : 0), 0);
  for (let number = 1; ; number++) {
    const kept = path.replace(/(\.jsonl)?$/, `.${number}$1`);
    try {
      closeSync(openSync(kept, 'wx'));
    } catch (error) {
      if (codeOf(error) === 'EEXIST') continue;
      throw error;
    }
    renameSync(path, kept);
    return { path: kept, questions: Math.max(0, lines - 1) };
  }
}

export class Journal {
  readonly path: string;
  /** The new name of an earlier run's journal, if there was one. */
  readonly kept: { readonly path: string; readonly questions: number } | undefined;
  /** Questions that were finished when the journal was opened. */
  readonly done: ReadonlyMap<number, Scores>;
  readonly #fd: number;
  #bytes: number;
  #lastSync = 0;
  #isDirty = false;

  /** Opens or starts the journal. Throws UserError if it belongs to another run, is damaged, or cannot be written. */
  constructor(options: JournalOptions) {
    const { path, identity } = options;
    this.path = path;
    const isThere = existsSync(path);
    const found = options.resume && isThere ? readJournal(options) : { done: new Map<number, Scores>(), wholeBytes: 0 };
    this.done = found.done;
    this.#bytes = found.wholeBytes;
    try {
      this.kept = isThere && !options.resume ? keepAside(path) : undefined;
      this.#fd = openSync(path, existsSync(path) ? 'r+' : 'wx+');
    } catch (error) {
      throw diskProblem(path, error, 'Check the folder given with --out');
    }
    try {
      ftruncateSync(this.#fd, this.#bytes);
      if (this.#bytes === 0) this.#append(printLine({ journal: FORMAT, run: identity }));
    } catch (error) {
      closeSync(this.#fd);
      throw error instanceof UserError ? error : diskProblem(path, error, 'Check the folder given with --out');
    }
  }

  /** Writes finished questions immediately. They are synced to disk within about a second. */
  append(finished: readonly Scores[]): void {
    if (finished.length > 0) this.#append(finished.map(printEntry).join(''));
  }

  #append(text: string): void {
    const bytes = Buffer.from(text);
    const start = this.#bytes;
    if (fstatSync(this.#fd).size !== start) {
      throw new UserError(
        `${this.path}: another process is writing this journal`,
        'Wait for the other run, or give this one another --out',
      );
    }
    try {
      for (let at = 0; at < bytes.length;) at += writeSync(this.#fd, bytes, at, bytes.length - at, start + at);
      this.#bytes = start + bytes.length;
      this.#isDirty = true;
      if (performance.now() - this.#lastSync >= SYNC_INTERVAL_MS) this.sync();
    } catch (error) {
      // Removes the rest of the failed write. If that fails too, reading tolerates the incomplete line.
      try {
        ftruncateSync(this.#fd, start);
      } catch (_second) {
        // The first error is reported.
      }
      throw diskProblem(
        this.path,
        error,
        'Free some space, then run the same command with --resume: finished questions are kept',
      );
    }
  }

  /** Syncs the journal to disk. */
  sync(): void {
    if (!this.#isDirty) return;
    fsyncSync(this.#fd);
    this.#isDirty = false;
    this.#lastSync = performance.now();
  }

  close(): void {
    try {
      this.sync();
    } finally {
      closeSync(this.#fd);
    }
  }
}
