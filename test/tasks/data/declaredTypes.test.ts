/**
 * Types that README.md declares, compared with repr() of what `datasets` 5.0.1 (pandas 3.0.6, pyarrow 25) makes of the
 * same columns: of JSON lines, CSV and Parquet. Columns of text in CSV are those that it reads where the types are
 * given to load_dataset.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { readSplit } from '../../../tasks/data/splits.js';
import { repr } from '../../../python/show.js';

interface Case {
  /** The feature of the column `a`, beside a text `q`. */
  readonly declared: string;
  readonly file?: string;
  readonly content?: string;
  /** Of a Parquet file, in its place. */
  readonly table?: string;
  /** Absent: it is refused. */
  readonly rows?: readonly string[];
}
const { cases, tables } = JSON.parse(
  readFileSync(fileURLToPath(new URL('files/declared.json', import.meta.url)), 'utf8'),
) as { readonly cases: readonly Case[]; readonly tables: Readonly<Record<string, string>> };

const root = mkdtempSync(join(tmpdir(), 'tilewright-declared-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

let folders = 0;
async function read({ declared, file = 'test.parquet', content, table }: Case): Promise<string[]> {
  const name = `o/${folders++}`;
  mkdirSync(join(root, name), { recursive: true });
  const feature = declared
    .split('\n')
    .map((line) => `    ${line}\n`)
    .join('');
  const features = `  - name: q\n    dtype: string\n  - name: a\n${feature}`;
  writeFileSync(join(root, name, 'README.md'), `---\ndataset_info:\n  features:\n${features}---\n`);
  writeFileSync(join(root, name, file), table === undefined ? content! : Buffer.from(tables[table]!, 'base64'));
  const rows: string[] = [];
  for await (const row of readSplit(root, name, undefined, 'test')) rows.push(repr(row));
  return rows;
}

describe.each(['test.jsonl', 'test.csv', undefined])('types that README.md declares, in %s', (file) => {
  const own = cases.filter((each) => each.file === file);
  it.each(own.map((each) => [each.declared, each.content ?? each.table, each] as const))(
    '%j, of %j',
    async (_, __, each) => {
      if (each.rows === undefined) await expect(read(each)).rejects.toThrow(UserError);
      else expect(await read(each)).toEqual(each.rows);
    },
  );
});

describe('what is refused', () => {
  const jsonl = (declared: string, a: string): Case => ({ declared, file: 'test.jsonl', content: `{"a": ${a}}\n` });
  it.each([
    [
      jsonl('dtype: int32', '3000000000'),
      ':1: a: 3000000000, where the type of the column is whole numbers from -2147',
    ],
    [
      jsonl('sequence:\n- name: t\n  dtype: string', '[{"t": "u"}]'),
      ':1: a: lists, where the type of the column is rec',
    ],
    [jsonl('list: int64\nlength: 2', '[1]'), ':1: a: [1], where the type of the column is lists of 2'],
    [jsonl('dtype: binary', '"x"'), ':1: a: text, where the type of the column is of a kind that is not read'],
    [jsonl('sequence:\n  class_label:\n    names: [x, y]', '["z"]'), ':1: a: no class "z"; there are 2: x, y'],
    [{ declared: 'dtype: int8', file: 'test.csv', content: 'q,a\nx,300\n' }, 'test.csv:2: a: 300, where the type'],
    [
      { declared: 'dtype: int8', file: 'test.csv', content: 'q,a,b\nx,3,4\n' },
      'b: neither the first rows nor README.md',
    ],
  ] as const)('%j says %s', async (each, message) => {
    await expect(read(each)).rejects.toThrow(message);
  });
});
