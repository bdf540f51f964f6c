/** Reads rows of JSON: one object a line, or one array of objects; plain or compressed with gzip. */
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { fileSize } from '../../system/read.js';
import { isDict, isList, typeName, type Dict, type Value } from '../python/value.js';
import { withLabels, type ClassLabels } from './classLabels.js';
import { parseJsonValue } from './jsonValue.js';

/** An array of objects is read as a whole, so it is bounded as a line is. */
const MAX_LINE = 256 << 20;
const MAX_ROWS = 5_000_000;
const MAX_TEXT = 2 ** 36;
const AGAIN = 'Download the file again';
const NEWLINE = 0x0a;

/** Lines without their ends; an array of objects, which starts with a bracket, is one line. */
async function* linesOf(path: string): AsyncGenerator<string> {
  const file = createReadStream(path, { highWaterMark: 1 << 18 });
  const gunzip = path.endsWith('.gz') ? createGunzip() : undefined;
  const stream: Readable = gunzip ?? file;
  // An error of the file ends the decompression too.
  if (gunzip !== undefined) file.on('error', (error) => gunzip.destroy(error)).pipe(gunzip);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let pending: Buffer[] = [];
  let held = 0,
    total = 0;
  let isArray: boolean | undefined;
  const line = (): string => {
    const text = decoder.decode(pending.length === 1 ? pending[0] : Buffer.concat(pending));
    pending = [];
    held = 0;
    return text;
  };
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > MAX_TEXT) throw new Error(`more than ${MAX_TEXT} bytes of text`);
      let from = 0;
      isArray ??= firstMark(chunk);
      for (let at: number; isArray !== true && (at = chunk.indexOf(NEWLINE, from)) >= 0; from = at + 1) {
        pending.push(chunk.subarray(from, at));
        yield line();
      }
      pending.push(chunk.subarray(from));
      held += chunk.length - from;
      if (held > MAX_LINE) throw new Error(`a line of more than ${MAX_LINE} bytes`);
    }
    if (held > 0) yield line();
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

/**
 * Rows in order; each is read when it is taken. A row has the columns of the first one, with None where its line has no
 * such key, and those it adds. Throws UserError with file and line.
 */
export async function* jsonRows(path: string, labels: ClassLabels = new Map()): AsyncGenerator<Dict> {
  if (fileSize(path) === undefined) throw new UserError(`${path}: no such file`);
  let columns: readonly string[] | undefined;
  let number = 0,
    rows = 0;
  const rowOf = (value: Value, where: string): Dict => {
    if (!isDict(value)) throw new UserError(`${where}: expected an object, found ${typeName(value)}`, AGAIN);
    if (++rows > MAX_ROWS) throw new UserError(`${where}: more than ${MAX_ROWS} rows`);
    columns ??= [...value.keys()];
    const missing = columns.filter((name) => !value.has(name));
    const whole =
      missing.length === 0
        ? value
        : new Map([...columns.map((name) => [name, value.get(name) ?? null] as const), ...value]);
    return withLabels(whole, labels, () => where);
  };
  try {
    for await (const line of linesOf(path)) {
      number++;
      if (line.trim() === '') continue;
      const value = parsed(line, `${path}:${number}`);
      if (isList(value) && number === 1)
        for (const [i, item] of value.entries()) yield rowOf(item, `${path}, item ${i}`);
      else yield rowOf(value, `${path}:${number}`);
    }
  } catch (error) {
    if (error instanceof UserError || !(error instanceof Error)) throw error;
    throw new UserError(`${path}:${number + 1}: cannot be read: ${quote(error.message, 120).slice(1, -1)}`, AGAIN, {
      cause: error,
    });
  }
}

function parsed(line: string, where: string): Value {
  try {
    return parseJsonValue(line);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new UserError(`${where}: not valid JSON: ${quote(error.message, 100).slice(1, -1)}`, AGAIN, { cause: error });
  }
}
