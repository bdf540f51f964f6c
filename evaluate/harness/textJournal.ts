/** The journal of generated texts: JSON lines, append-only, each with its checksum, beside that of scores. */
import { appendFileSync, existsSync, readFileSync, truncateSync } from 'node:fs';
import { UserError } from '../../errors.js';
import { isRecord } from '../../system/json.js';
import { diskProblem } from '../../system/process.js';
import { fileSize } from '../../system/read.js';
import { keepAside } from '../journal.js';
import { isIntact, printLine, type RunIdentity } from '../journalLines.js';

const FORMAT = 1;
const MAX_BYTES = 2 ** 30;
const ADVICE = 'Free some space, then run the same command with --resume: finished texts are kept';
const FRESH = 'Run without --resume to start again (the old journal is kept beside the new one)';

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
const isPlace = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) < MAX_SAMPLES;

function parsed(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = isIntact(line) ? JSON.parse(line) : undefined;
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export class TextJournal {
  readonly path: string;
  /** By `number request`, in the order of samples. */
  readonly #done = new Map<string, string[]>();

  /** Throws UserError if the journal to go on with is damaged or belongs to another run. */
  constructor(path: string, identity: RunIdentity, resume: boolean) {
    this.path = path;
    const isThere = existsSync(path);
    if (isThere && resume) this.#read(identity);
    else {
      if (isThere) keepAside(path);
      this.#write(printLine({ texts: FORMAT, run: identity }));
    }
  }

  #read(identity: RunIdentity): void {
    const { path } = this;
    if ((fileSize(path) ?? 0) > MAX_BYTES) throw new UserError(`${path} is larger than a journal can be`, FRESH);
    const bytes = readFileSync(path);
    const whole = bytes.lastIndexOf(10) + 1;
    const [first = '', ...lines] = bytes.toString('utf8', 0, Math.max(0, whole - 1)).split('\n');
    const header = parsed(first);
    const run = isRecord(header?.['run']) ? header['run'] : {};
    const differing = [...new Set([...Object.keys(run), ...Object.keys(identity)])].filter(
      (name) => run[name] !== identity[name],
    );
    if (header?.['texts'] === FORMAT && identity['endTokens'] !== undefined && run['endTokens'] === undefined)
      throw new UserError(
        `${path} does not say which tokens ended its texts: an older version wrote it, which did not note them`,
        FRESH,
      );
    if (header?.['texts'] !== FORMAT || differing.length > 0)
      throw new UserError(`${path} belongs to another run: it differs in ${differing.join(', ') || 'its form'}`, FRESH);
    for (const [i, line] of lines.entries()) {
      const entry = parsed(line);
      const [number, request, text] = [entry?.['doc_id'], entry?.['request'], entry?.['text']];
      const sample = entry?.['sample'] ?? 0;
      if (typeof number !== 'number' || typeof request !== 'number' || typeof text !== 'string' || !isPlace(sample))
        throw new UserError(`${path}:${i + 2}: the line was edited or damaged`, FRESH);
      this.#keep({ number, request, sample, text });
    }
    // The rest of a line that was being written.
    if (whole < bytes.length) truncateSync(path, whole);
  }

  /** How many texts there are. */
  get size(): number {
    let texts = 0;
    for (const found of this.#done.values()) found.forEach(() => texts++);
    return texts;
  }

  /** The texts of a request that are there: all, or the first ones. */
  textsOf(number: number, request: number): readonly string[] {
    const found = this.#done.get(`${number} ${request}`) ?? [];
    const gap = found.findIndex((text: string | undefined) => text === undefined);
    return gap < 0 ? found : found.slice(0, gap);
  }

  #keep({ number, request, sample, text }: KeptText): void {
    const key = `${number} ${request}`;
    const found = this.#done.get(key) ?? [];
    found[sample] = text;
    this.#done.set(key, found);
  }

  append({ number, request, sample, text }: KeptText): void {
    this.#write(printLine({ doc_id: number, request, ...(sample > 0 ? { sample } : {}), text }));
  }

  #write(line: string): void {
    try {
      appendFileSync(this.path, line);
    } catch (error) {
      throw diskProblem(this.path, error, ADVICE);
    }
  }
}
