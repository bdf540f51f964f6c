/**
 * The samples of a task as a run wrote them: found line by line once, and read again as documents come. The file is
 * untrusted: its lines are bounded, and what they hold is compared, never believed.
 */
import { createHash } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { UserError } from '../../errors.js';
import { isRecord, parsePythonJson } from '../../system/json.js';
import { FileLines } from '../../system/lines.js';
import { readRange } from '../../system/read.js';

const MAX_LINE_BYTES = 64 << 20;
const MAX_LINES = 4_000_000;
const AGAIN = 'Name the samples that the run wrote';

/** Where a line lies. */
interface Place {
  /** From 1. */
  readonly number: number;
  readonly offset: number;
  readonly length: number;
}

/** A line that is none of a sample, or not where a run writes it. */
export interface StrayLine {
  /** From 1. */
  readonly number: number;
  readonly problem: string;
  readonly doc?: number;
}

export class RecordedSamples {
  readonly path: string;
  /** Numbers of documents in the order of their first lines. */
  readonly documents: readonly number[];
  readonly strays: readonly StrayLine[];
  /** Of the whole file, hexadecimal. */
  readonly sha256: string;
  /** By filter and number of the document. */
  readonly #places: ReadonlyMap<string, ReadonlyMap<number, Place>>;
  readonly #fd: number;

  /** Throws UserError where the file cannot be read or a line is too long. */
  constructor(path: string) {
    this.path = path;
    const hash = createHash('sha256');
    const lines = new FileLines(path, {
      maxLineBytes: MAX_LINE_BYTES,
      hint: AGAIN,
      onBytes: (part) => hash.update(part),
    });
    const places = new Map<string, Map<number, Place>>();
    const strays: StrayLine[] = [];
    let last: { readonly filter: string; readonly docId: number } | undefined;
    try {
      for (let line = lines.next(); line !== undefined; line = lines.next()) {
        const { number, offset, bytes, isEnded } = line;
        if (number > MAX_LINES) throw new UserError(`${path}: more than ${MAX_LINES} lines`, AGAIN);
        const found = isEnded ? headOf(bytes.toString('utf8')) : undefined;
        if (found === undefined) {
          strays.push({ number, problem: isEnded ? 'is no sample' : 'was cut off' });
          continue;
        }
        const { docId, filter } = found;
        const own = places.get(filter) ?? new Map<number, Place>();
        // A run writes all documents for one filter, in their order, and then for the next.
        const isNew = !places.has(filter);
        places.set(filter, own);
        if (own.has(docId)) strays.push({ number, doc: docId, problem: 'is a second line of its document' });
        else {
          if (last !== undefined && !isNew && (last.filter !== filter || last.docId > docId))
            strays.push({ number, doc: docId, problem: 'is not in its place: documents are in their order' });
          own.set(docId, { number, offset, length: bytes.length });
        }
        last = found;
      }
    } finally {
      lines.close();
    }
    this.strays = strays;
    this.sha256 = hash.digest('hex');
    this.#places = places;
    this.documents = [...([...places.values()][0]?.keys() ?? [])];
    this.#fd = openSync(path, 'r');
  }

  get filters(): readonly string[] {
    return [...this.#places.keys()];
  }

  /** The documents that have a line by a filter. */
  documentsBy(filter: string): Iterable<number> {
    return this.#places.get(filter)?.keys() ?? [];
  }

  /** The line of a document, without its end; undefined where there is none. */
  line(filter: string, docId: number): { readonly text: string; readonly number: number } | undefined {
    const place = this.#places.get(filter)?.get(docId);
    if (place === undefined) return undefined;
    return { number: place.number, text: readRange(this.#fd, place.offset, place.length).toString('utf8') };
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** What a line says that it is; undefined for what is no sample. */
function headOf(text: string): { readonly docId: number; readonly filter: string } | undefined {
  const sample = sampleOf(text);
  const docId = sample?.['doc_id'];
  const filter = sample?.['filter'];
  if (!Number.isSafeInteger(docId) || Number(docId) < 0 || typeof filter !== 'string') return undefined;
  return { docId: Number(docId), filter };
}

/** A line as JSON; undefined for what is no object. */
export function sampleOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = parsePythonJson(text, '');
    return isRecord(value) ? value : undefined;
  } catch (error) {
    if (error instanceof UserError) return undefined;
    throw error;
  }
}
