/** How files of data are read: hints for what is wrong, decompression within bounds, lines. */
import { at as elementAt } from '../../system/at.js';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { brotliDecompressSync, createGunzip } from 'node:zlib';
import { decompress as unpackZstd } from 'fzstd';
import type { Compressors } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { UserError } from '../../errors.js';

/** What to do about a file that is not as it should be. */
export const CHECK = 'Check the file; if it was downloaded, download it again';

/** Files of a split without a row. The message names them, and not the task that asks for them. */
export class NoRows extends UserError {}

/** A setting of a task's file by which no data can be read. `key` is the setting; callers that know the file add it. */
export class DataSettingError extends UserError {
  readonly key: string;
  readonly problem: string;
  constructor(key: string, problem: string, hint?: string) {
    super(`${key}: ${problem}`, hint);
    this.key = key;
    this.problem = problem;
  }
}

// Decompresses pages of Parquet files into as many bytes as their headers say, and never more: a few bytes of a
// hostile page can stand for gigabytes.

/** No page of a data set has more bytes. */
export const MAX_PAGE = 1 << 28;

/** A Zstandard frame with its content's size says the page's; one without is cut at the page's end. */
function zstd(input: Uint8Array, size: number): Uint8Array {
  const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
  if (input.length < 6 || view.getUint32(0, true) !== 0xfd2fb528) throw new Error('a page is no Zstandard frame');
  const flags = view.getUint8(4);
  const isSingle = (flags & 0x20) !== 0;
  const at = (isSingle ? 5 : 6) + elementAt([0, 1, 2, 4], flags & 3);
  const width = elementAt([isSingle ? 1 : 0, 2, 4, 8], flags >> 6);
  if (input.length < at + width) throw new Error('a page ends within the header of its frame');
  const sizes: readonly (() => number)[] = [
    () => view.getUint8(at),
    () => view.getUint16(at, true) + 256,
    () => view.getUint32(at, true),
    () => Number(view.getBigUint64(at, true)),
  ];
  const said = width === 0 ? size : elementAt(sizes, Math.log2(width))();
  if (said !== size) throw new Error(`a page of ${said} bytes, where its header says ${size}`);
  return unpackZstd(input, new Uint8Array(size));
}

const OURS: Compressors = {
  ...compressors,
  BROTLI: (input, size) => brotliDecompressSync(input, { maxOutputLength: Math.max(size, 1) }),
  ZSTD: zstd,
};

/** Bytes of pages that are kept. */
const MAX_KEPT = 32 << 20;

/**
 * The same decompressors, for one row group: its pages are checked first, then read in two parts, and decompressing
 * takes longer than either. A page that was decompressed before is returned again, and must not be changed. It is known
 * by the hash of its bytes, since whoever reads a file makes copies of them.
 */
export function keepingPages(compressors: Compressors): Compressors {
  const pages = new Map<string, Uint8Array>();
  let bytes = 0;
  return Object.fromEntries(
    Object.entries(compressors).map(([codec, inflate]) => [
      codec,
      (input: Uint8Array, size: number): Uint8Array => {
        const key = `${codec} ${size} ${createHash('sha256').update(input).digest('base64')}`;
        const known = pages.get(key);
        if (known !== undefined) return known;
        const page = inflate(input, size);
        if (bytes + page.length > MAX_KEPT) return page;
        pages.set(key, page);
        bytes += page.length;
        return page;
      },
    ]),
  );
}

/** Refuses pages whose header asks for more memory than a page of a data set has. */
export const bounded: Compressors = Object.fromEntries(
  Object.entries(OURS).map(([codec, inflate]) => [
    codec,
    (input: Uint8Array, size: number): Uint8Array => {
      if (!(size >= 0 && size <= MAX_PAGE))
        throw new Error(`a page of ${size} bytes is more than the limit of ${MAX_PAGE}`);
      // A page without values may have no bytes, or a frame of none.
      return size === 0 ? new Uint8Array(0) : inflate(input, size);
    },
  ]),
);

// Lines of a file of JSON, plain or compressed with gzip.

/** An array of objects is read as a whole, so it is bounded as a line is. */
const MAX_LINE = 256 << 20;
const MAX_TEXT = 2 ** 36;
const NEWLINE = 0x0a;

export interface DataLine {
  readonly text: string;
  /** Where it starts, in bytes of the text. */
  readonly start: number;
}

/**
 * Lines without their ends; an array of objects, which starts with a bracket, is one line. Throws Error for a file
 * that cannot be read, and for a line that is too long.
 */
export async function* linesOf(path: string): AsyncGenerator<DataLine> {
  const file = createReadStream(path, { highWaterMark: 1 << 18 });
  const gunzip = path.endsWith('.gz') ? createGunzip() : undefined;
  const stream: Readable = gunzip ?? file;
  // An error of the file ends the decompression too.
  if (gunzip !== undefined) file.on('error', (error) => gunzip.destroy(error)).pipe(gunzip);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let pending: Buffer[] = [];
  let held = 0,
    total = 0,
    start = 0;
  let isArray: boolean | undefined;
  const line = (next: number): DataLine => {
    const found = { text: decoder.decode(pending.length === 1 ? pending[0] : Buffer.concat(pending)), start };
    pending = [];
    held = 0;
    start = next;
    return found;
  };
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const before = total;
      total += chunk.length;
      if (total > MAX_TEXT) throw new Error(`more than ${MAX_TEXT} bytes of text`);
      let from = 0;
      isArray ??= firstMark(chunk);
      for (let at: number; isArray !== true && (at = chunk.indexOf(NEWLINE, from)) >= 0; from = at + 1) {
        pending.push(chunk.subarray(from, at));
        yield line(before + at + 1);
      }
      pending.push(chunk.subarray(from));
      held += chunk.length - from;
      if (held > MAX_LINE) throw new Error(`a line of more than ${MAX_LINE} bytes`);
    }
    if (held > 0) yield line(total);
  } finally {
    file.destroy();
    gunzip?.destroy();
  }
}

/** Whether the first mark opens an array; undefined while there are only spaces. */
function firstMark(chunk: Buffer): boolean | undefined {
  const mark = /[^\s\ufeff]/.exec(chunk.toString('utf8', 0, 1024))?.[0];
  return mark === undefined ? undefined : mark === '[';
}
