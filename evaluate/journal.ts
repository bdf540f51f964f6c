/**
 * Journals: JSON lines, append-only, so that a run that was killed can continue. The first line identifies the run;
 * each further one is a finished question with the log-likelihoods of its choices, or a generated text. A line ends
 * with its checksum, so that an edited or damaged answer is never used.
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
import { defined } from '../system/defined.js';
import { isRecord, quote } from '../system/json.js';
import { codeOf, diskProblem, quoteForShell } from '../system/process.js';
import type { Scores } from './metrics.js';

/** Everything that must agree before another run may use the answers: dataset hash, task, model, precision … */
export type RunIdentity = Readonly<Record<string, string | number | boolean | null>>;

/** What a journal holds. */
export interface EntryKind<E> {
  /** The key of the header that has the version, which is the only one that is read. */
  readonly mark: 'journal' | 'texts' | 'search';
  readonly version: number;
  readonly noun: string;
  /** Undefined for what is no entry of this run. */
  readonly parse: (line: Readonly<Record<string, unknown>>) => E | undefined;
  readonly print: (entry: E) => object;
}

const SYNC_INTERVAL_MS = 1000;
const MAX_BYTES = 2 ** 30;
const MAX_HEADER_BYTES = 1 << 16;
const FRESH = 'Run without --resume to start again (the old journal is kept beside the new one), or give another --out';

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

const shown = (value: unknown): string => {
  const text = value === undefined ? 'absent' : quote(value, 1000);
  return text.length > 40 ? `${text.slice(0, 16)}…"` : text;
};

/** Compares a journal's first line with a run, in the facts `names` or, by default, in all. Throws UserError. */
function checkHeader(
  path: string,
  line: string,
  { mark, version }: Pick<EntryKind<unknown>, 'mark' | 'version'>,
  identity: RunIdentity,
  names?: readonly string[],
): void {
  const header = parseObject(line);
  if (header === undefined || header[mark] === undefined) throw new UserError(`${path} is not a journal`, FRESH);
  if (header[mark] !== version) {
    throw new UserError(`${path} has journal format ${shown(header[mark])}, but this version writes ${version}`, FRESH);
  }
  const found = isRecord(header['run']) ? header['run'] : {};
  if (!isIntact(line)) throw new UserError(`${path}:1: the line was edited or damaged: its checksum is wrong`, FRESH);
  if (identity['endTokens'] !== undefined && found['endTokens'] === undefined)
    throw new UserError(
      `${path} does not say which tokens ended its texts: an older version wrote it, which did not note them`,
      FRESH,
    );
  const all = names ?? [...new Set([...Object.keys(identity), ...Object.keys(found)])];
  const differing = all.filter((name) => found[name] !== identity[name]).sort();
  if (differing.length === 0) return;
  const list = differing
    .map(
      (name) =>
        `${/^\w{1,40}$/.test(name) ? name : quote(name)} (journal ${shown(found[name])}, now ${shown(identity[name])})`,
    )
    .join(', ');
  throw new UserError(`${path} belongs to another run: it differs in ${list}`, FRESH);
}

/**
 * Refuses a journal of scores of another run by what is known before the model is compiled; the rest is compared when
 * it is opened. Throws UserError.
 */
export function checkJournal(path: string, known: RunIdentity): void {
  if (!existsSync(path)) return;
  const bytes = Buffer.alloc(MAX_HEADER_BYTES);
  const fd = openSync(path, 'r');
  try {
    const end = bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0)).indexOf(10);
    if (end > 0) checkHeader(path, bytes.toString('utf8', 0, end), SCORES, known, Object.keys(known));
  } finally {
    closeSync(fd);
  }
}

/** The entries of a journal, and the number of bytes up to the end of its last whole line. */
function readJournal<E>(
  path: string,
  identity: RunIdentity,
  kind: EntryKind<E>,
): { readonly entries: readonly E[]; readonly wholeBytes: number } {
  const entries: E[] = [];
  if (statSync(path).size > MAX_BYTES)
    throw new UserError(
      `${path} is larger than a journal can be`,
      `Look at it with: head -c 300 ${quoteForShell(path)}`,
    );
  const bytes = readFileSync(path);
  // An incomplete last line was being written when the run died.
  const wholeBytes = bytes.lastIndexOf(10) + 1;
  if (wholeBytes === 0) {
    const begin = `{"${kind.mark}":`;
    if (!begin.startsWith(bytes.toString('utf8', 0, begin.length)))
      throw new UserError(`${path} is not a journal`, 'Move it away, or give another --out');
    return { entries, wholeBytes };
  }
  let number = 0;
  for (let start = 0; start < wholeBytes;) {
    const end = bytes.indexOf(10, start);
    const line = bytes.toString('utf8', start, end);
    number++;
    if (number === 1) {
      checkHeader(path, line, kind, identity);
    } else {
      const parsed = parseObject(line);
      const entry = parsed && kind.parse(parsed);
      // A power cut may leave a damaged tail; the lines before it are good.
      if (entry === undefined && end + 1 === wholeBytes) return { entries, wholeBytes: start };
      const remedy =
        `Delete the line to compute that ${kind.noun} again: sed -i ${number}d ${quoteForShell(path)}; ` +
        'or run without --resume';
      if (entry === undefined)
        throw new UserError(`${path}:${number}: not a finished ${kind.noun} of this run`, remedy);
      if (!isIntact(line))
        throw new UserError(`${path}:${number}: the line was edited or damaged: its checksum is wrong`, remedy);
      entries.push(entry);
    }
    start = end + 1;
  }
  return { entries, wholeBytes };
}

/**
 * Gives a journal the first numbered name that is free (journal_x.1.jsonl): starting again never destroys answers. The
 * name is reserved by creating the file, so that two processes cannot overwrite each other's.
 */
function keepAside(path: string): { readonly path: string; readonly questions: number } {
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
export class JournalFile<E> {
  readonly path: string;
  /** The new name of an earlier run's journal, if there was one. */
  readonly kept: { readonly path: string; readonly questions: number } | undefined;
  /** What was finished when the journal was opened. */
  protected readonly entries: readonly E[];
  readonly #kind: EntryKind<E>;
  readonly #fd: number;
  #bytes: number;
  #lastSync = 0;
  #isDirty = false;

  /**
   * Continues the existing journal with `resume`; otherwise that is kept under a numbered name. Throws UserError if it
   * belongs to another run, is damaged, or cannot be written.
   */
  constructor(path: string, identity: RunIdentity, resume: boolean, kind: EntryKind<E>) {
    this.path = path;
    this.#kind = kind;
    const isThere = existsSync(path);
    const found = resume && isThere ? readJournal(path, identity, kind) : { entries: [], wholeBytes: 0 };
    this.entries = found.entries;
    this.#bytes = found.wholeBytes;
    try {
      this.kept = isThere && !resume ? keepAside(path) : undefined;
      this.#fd = openSync(path, existsSync(path) ? 'r+' : 'wx+');
    } catch (error) {
      throw diskProblem(path, error, 'Check the folder given with --out');
    }
    try {
      ftruncateSync(this.#fd, this.#bytes);
      if (this.#bytes === 0) this.#append(printLine({ [kind.mark]: kind.version, run: identity }));
    } catch (error) {
      closeSync(this.#fd);
      throw error instanceof UserError ? error : diskProblem(path, error, 'Check the folder given with --out');
    }
  }

  /** Writes what is finished immediately. It is synced to disk within about a second. */
  append(finished: readonly E[]): void {
    if (finished.length > 0) this.#append(finished.map((each) => printLine(this.#kind.print(each))).join(''));
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
        `Free some space, then run the same command with --resume: finished ${this.#kind.noun}s are kept`,
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

const SCORES = { mark: 'journal', version: 2 } as const;

/** Which journal to open, and what its answers must be of. */
export interface JournalOptions {
  readonly path: string;
  readonly identity: RunIdentity;
  /** Continue the existing journal. Otherwise it is kept under a numbered name. */
  readonly resume: boolean;
  /** Number of choices of each question of this run, by doc_id. */
  readonly choices: ReadonlyMap<number, number>;
}

/** Log-likelihoods of questions, with the log-probabilities of their tokens where a run keeps them. */
export class Journal extends JournalFile<Scores> {
  /** Questions that were finished when the journal was opened. */
  readonly done: ReadonlyMap<number, Scores>;

  constructor({ path, identity, resume, choices }: JournalOptions) {
    super(path, identity, resume, {
      ...SCORES,
      noun: 'question',
      parse: (line) => scoresOf(line, choices),
      // JSON prints a double with enough digits to read back the same double.
      print: ({ docId, ll, greedy, tokens }) => ({ doc_id: docId, ll, greedy, ...defined({ tokens }) }),
    });
    const done = new Map<number, Scores>();
    for (const entry of this.entries)
      // Computed again for the sake of its tokens: the answers are the same.
      if (!done.has(entry.docId) || entry.tokens !== undefined) done.set(entry.docId, entry);
    this.done = done;
  }
}

/** A finished question; undefined if the line is not one of this run. */
function scoresOf(entry: Readonly<Record<string, unknown>>, choices: ReadonlyMap<number, number>): Scores | undefined {
  const { doc_id: docId, ll, greedy, tokens } = entry;
  if (typeof docId !== 'number' || !Array.isArray(ll) || !Array.isArray(greedy)) return undefined;
  const count = choices.get(docId);
  const isWhole =
    ll.length === count &&
    greedy.length === count &&
    ll.every((value) => typeof value === 'number' && Number.isFinite(value)) &&
    greedy.every((value) => typeof value === 'boolean');
  if (!isWhole) return undefined;
  const scores = { docId, ll: ll as number[], greedy: greedy as boolean[] };
  if (tokens === undefined) return scores;
  return isTokens(tokens, ll.length) ? { ...scores, tokens } : undefined;
}

const isTokens = (value: unknown, choices: number): value is number[][] =>
  Array.isArray(value) &&
  value.length === choices &&
  value.every((each) => Array.isArray(each) && each.every((x) => typeof x === 'number' && Number.isFinite(x)));

export interface KeptText {
  /** The number of the document. */
  readonly number: number;
  /** Which of its requests. */
  readonly request: number;
  /** Which of the texts drawn for it. */
  readonly sample: number;
  readonly text: string;
}

const MAX_SAMPLES = 100_000;

const TEXTS: EntryKind<KeptText> = {
  mark: 'texts',
  version: 1,
  noun: 'text',
  parse: ({ doc_id: number, request, sample = 0, text }) =>
    typeof number === 'number' &&
    typeof request === 'number' &&
    typeof text === 'string' &&
    typeof sample === 'number' &&
    Number.isInteger(sample) &&
    sample >= 0 &&
    sample < MAX_SAMPLES
      ? { number, request, sample, text }
      : undefined,
  print: ({ number, request, sample, text }) => ({
    doc_id: number,
    request,
    ...(sample > 0 ? { sample } : {}),
    text,
  }),
};

/** Generated texts; their journal lies beside that of scores. */
export class TextJournal extends JournalFile<KeptText> {
  /** How many texts there were when the journal was opened. */
  readonly size: number;
  /** By `number request`, in the order of samples. */
  readonly #done = new Map<string, string[]>();

  constructor(path: string, identity: RunIdentity, resume: boolean) {
    super(path, identity, resume, TEXTS);
    this.size = this.entries.length;
    for (const { number, request, sample, text } of this.entries) {
      const key = `${number} ${request}`;
      const found = this.#done.get(key) ?? [];
      found[sample] = text;
      this.#done.set(key, found);
    }
  }

  /** The texts of a request that are there: all, or the first ones. */
  textsOf(number: number, request: number): readonly string[] {
    const found = this.#done.get(`${number} ${request}`) ?? [];
    const gap = found.findIndex((text: string | undefined) => text === undefined);
    return gap < 0 ? found : found.slice(0, gap);
  }
}
