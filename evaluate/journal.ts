/**
 * The journal of finished questions: JSON lines (journalLines.ts), append-only, so that a run that was killed can
 * continue.
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
import { UserError } from '../errors.js';
import { codeOf, diskProblem, quoteForShell } from '../system/process.js';
import {
  checkHeader,
  isIntact,
  JOURNAL_FORMAT,
  parseEntry,
  printEntry,
  printLine,
  type RunIdentity,
} from './journalLines.js';
import type { Scores } from './metrics.js';

const HEADER_START = '{"journal":';
const SYNC_INTERVAL_MS = 1000;
const MAX_BYTES = 2 ** 30;

/** Which journal to open, and what its answers must be of. */
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

/** An open journal. */
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
      if (this.#bytes === 0) this.#append(printLine({ journal: JOURNAL_FORMAT, run: identity }));
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
