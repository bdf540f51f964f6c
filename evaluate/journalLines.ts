/**
 * The lines of a journal, as JSON that ends with its checksum, so that an edited or damaged answer is never used. The
 * first identifies the run; each further line is a finished question {doc_id, ll, greedy}, with the log-probabilities
 * of its tokens where a run keeps them.
 */
import { crc32 } from 'node:zlib';
import { UserError } from '../errors.js';
import { defined } from '../system/defined.js';
import { isRecord, quote } from '../system/json.js';
import type { Scores } from './metrics.js';

/** Everything that must agree before another run may use the answers: dataset hash, task, model, precision … */
export type RunIdentity = Readonly<Record<string, string | number | boolean | null>>;

/** The version of journals that is written, and the only one that is read. */
export const JOURNAL_FORMAT = 2;

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

/**
 * A finished question; undefined if the line is not one of this run. `choices`: the number of choices of each question,
 * by doc_id.
 */
export function parseEntry(line: string, choices: ReadonlyMap<number, number>): Scores | undefined {
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
export const printEntry = ({ docId, ll, greedy, tokens }: Scores): string =>
  printLine({ doc_id: docId, ll, greedy, ...defined({ tokens }) });

const shown = (value: unknown): string => {
  const text = value === undefined ? 'absent' : quote(value, 1000);
  return text.length > 40 ? `${text.slice(0, 16)}…"` : text;
};

/** Compares a journal's first line with a run, in the facts `names` or, by default, in all. Throws UserError. */
export function checkHeader(path: string, line: string, identity: RunIdentity, names?: readonly string[]): void {
  const header = parseObject(line);
  const fresh =
    'Run without --resume to start again (the old journal is kept beside the new one), or give another --out';
  if (header === undefined || header['journal'] === undefined) throw new UserError(`${path} is not a journal`, fresh);
  if (header['journal'] !== JOURNAL_FORMAT) {
    throw new UserError(
      `${path} has journal format ${shown(header['journal'])}, but this version writes ${JOURNAL_FORMAT}`,
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
