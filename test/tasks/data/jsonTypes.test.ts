/** Rows of JSON, compared with repr() of what `datasets` reads: types of columns, their order, what is missing. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { repr } from '../../../python/show.js';
import { type Columns, jsonRows } from '../../../tasks/data/json.js';
import { openSplit } from '../../../tasks/data/splits.js';

const python = JSON.parse(
  readFileSync(fileURLToPath(new URL('files/pythonJson.json', import.meta.url)), 'utf8'),
) as readonly { readonly text: string; readonly rows?: readonly string[] }[];
const folder = mkdtempSync(join(tmpdir(), 'tilewright-json-types-'));
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

let files = 0;
function fileOf(text: string): string {
  const path = join(folder, `${files++}.jsonl`);
  writeFileSync(path, text);
  return path;
}
async function read(texts: readonly string[]): Promise<string[]> {
  const shown: string[] = [];
  const columns: Columns = { type: undefined };
  for (const text of texts) for await (const row of jsonRows(fileOf(text), undefined, columns)) shown.push(repr(row));
  return shown;
}

describe('one file', () => {
  it.each(python)('$text', async ({ text, rows }) => {
    if (rows === undefined) await expect(read([text])).rejects.toThrow(UserError);
    else expect(await read([text])).toEqual(rows);
  });
});

describe('a file after the first', () => {
  it.each([
    ['{"a":1}', '{"a":2.0}', "{'a': 2}"],
    ['{"a":1.5}', '{"a":2}', "{'a': 2.0}"],
    ['{"a":"x"}', '{"a":2}', "{'a': '2'}"],
    ['{"a":"x"}', '{"a":true}', "{'a': 'true'}"],
    ['{"a":"x"}', '{"a":"2015-05-29"}', "{'a': '2015-05-29 00:00:00'}"],
    ['{"a":1}', '{"a":true}', "{'a': 1}"],
    ['{"a":1,"b":2}', '{"b":1}', "{'a': None, 'b': 1}"],
    ['{"a":{"x":1,"y":2}}', '{"a":{"y":1}}', "{'a': {'x': None, 'y': 1}}"],
    ['{"a":{"x":1,"y":2}}', '{"a":{"y":1,"x":3}}', "{'a': {'x': 3, 'y': 1}}"],
    ['{"a":[1.5]}', '{"a":[2]}', "{'a': [2.0]}"],
    ['{"a":1}\n{"a":"x"}', '{"a":2.25}', "{'a': 2.25}"],
    ['{"a":1}', '[{"a":3}]', "{'a': 3}"],
  ])('with %s, then %s', async (first, second, row) => {
    expect((await read([first, second])).at(-1)).toBe(row);
  });

  it.each([
    ['{"a":1}', '{"a":2.5}', ':1: a: 2.5, where the type of the column is whole numbers'],
    ['{"a":1}', '{"b":1,"a":2}', ':1: b: neither the first rows nor README.md have such a column'],
    ['{"a":{"x":1}}', '{"a":{"y":1,"x":3}}', ':1: a.y: neither the first rows nor README.md have such a column'],
    ['{"a":null}', '{"a":1}', ':1: a: whole numbers, where the type of the column is nothing but null'],
    ['{"a":"2015-05-29"}', '{"a":"x"}', ':1: a: x, where the type of the column is times'],
    ['{"a":1}', '{"a":1}\n{"a":"x"}', ':1: a: values of several kinds, where'],
    ['{"d":"0000-01-01"}', '', ':1: a date -719528 days from 1970 is out of range'],
  ])('is refused with %s, then %s', async (first, second, message) => {
    await expect(read([first, second])).rejects.toThrow(message);
  });
});

it('rows with ever new keys are refused, as are whole numbers without end in texts', async () => {
  const rows = Array.from({ length: 20_000 }, (_, i) => `{"k${i}": 1}`).join('\n');
  await expect(read([rows])).rejects.toThrow(':1: 20000 records with 20000 keys are too many');
  const digits = '1'.repeat(1_000_000);
  expect((await read([`{"a": "${digits}"}\n{"a": 1}`]))[0]).toBe(`{'a': '${digits}'}`);
});

describe('a long file', () => {
  const line = `{"a": 1, "b": "${'x'.repeat(1000)}"}\n`;

  it('has the types of its first 10 MB, and is read batch after batch', async () => {
    const path = fileOf(`${line.repeat(11_000)}{"a": 2.0, "b": "y"}\n{"a": 2.5, "b": "y"}\n`);
    let rows = 0,
      last = '';
    const all = async (): Promise<void> => {
      for await (const row of jsonRows(path)) {
        rows++;
        last = repr(row);
      }
    };
    await expect(all()).rejects.toThrow(':11002: a: 2.5, where');
    expect([rows, last]).toEqual([11_001, "{'a': 2, 'b': 'y'}"]);
  });
});

describe('splits', () => {
  const rowsOf = async (files: ReadonlyMap<string, string>, split: string): Promise<string[]> => {
    const shown: string[] = [];
    const options = new Map([['data_files', files]]);
    for await (const row of openSplit({}, 'json', undefined, split, options)) shown.push(repr(row));
    return shown;
  };

  it('have the columns of the first one', async () => {
    const given = new Map([
      ['train', fileOf('{"b": 1.5, "a": 1}')],
      ['test', fileOf('{"a": 2, "b": 3}')],
    ]);
    expect(await rowsOf(given, 'test')).toEqual(["{'b': 3.0, 'a': 2}"]);
  });

  it.each(['', '\n', '[]'])('of %j are said to have no rows', async (text) => {
    const path = fileOf(text);
    await expect(rowsOf(new Map([['test', path]]), 'test')).rejects.toThrow(`the split "test" has no rows: ${path}`);
  });
});
