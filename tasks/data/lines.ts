/** Lines of a file of JSON, plain or compressed with gzip. */
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';

/** An array of objects is read as a whole, so it is bounded as a line is. */
const MAX_LINE = 256 << 20;
const MAX_TEXT = 2 ** 36;
const NEWLINE = 0x0a;

export interface Line {
  readonly text: string;
  /** Where it starts, in bytes of the text. */
  readonly start: number;
}

/**
 * Lines without their ends; an array of objects, which starts with a bracket, is one line. Throws Error for a file
 * that cannot be read, and for a line that is too long.
 */
export async function* linesOf(path: string): AsyncGenerator<Line> {
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
  const line = (next: number): Line => {
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
