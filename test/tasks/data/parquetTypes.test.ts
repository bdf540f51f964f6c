/** Types of Parquet columns, compared with str() and repr() of what `datasets` reads; whole files that are not read. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { decimalOf, dumpJson, repr, str } from '../../../python/show.js';
import { type Dict, isEqual, isTruthy, typeName } from '../../../python/value.js';
import { parquetRows } from '../../../tasks/data/parquet.js';

const FILES = fileURLToPath(new URL('files/', import.meta.url));
/** Columns of a row. */
type Shown = readonly (readonly [name: string, text: string, code: string])[];
const python = JSON.parse(readFileSync(join(FILES, 'python.json'), 'utf8')) as Record<string, readonly Shown[]>;
const folder = mkdtempSync(join(tmpdir(), 'tilewright-parquet-types-'));
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

async function rowsOf(path: string): Promise<Dict[]> {
  const rows: Dict[] = [];
  for await (const row of parquetRows(path)) rows.push(row);
  return rows;
}
const show = (row: Dict): unknown => [...row].map(([name, value]) => [name, str(value), repr(value)]);

describe('columns', () => {
  it.each(Object.keys(python))('of %s are shown as Python shows them', async (file) => {
    const rows = await rowsOf(join(FILES, file));
    expect(rows.map(show)).toEqual(python[file]);
  });

  it('of dates and bytes have a type, compare, and are text in the hash of a document', async () => {
    const [row, , , last] = await rowsOf(join(FILES, 'types.parquet'));
    const date = row!.get('d')!;
    expect(typeName(date)).toBe('date');
    expect(isTruthy(date) && !isTruthy(last!.get('b')!) && !isTruthy(last!.get('dec')!)).toBe(true);
    expect(isEqual(date, row!.get('d64')!)).toBe(true);
    expect(isEqual(date, last!.get('d')!)).toBe(false);
    expect(isEqual(date, '1970-01-01')).toBe(false);
    expect(dumpJson(new Map([['d', date]]))).toBe('{\n  "d": "1970-01-01"\n}');
  });

  it('of decimal numbers use an exponent where Python does', () => {
    expect([decimalOf(1n, 7), decimalOf(12n, 8), decimalOf(-1n, 6)].map(str)).toEqual(['1E-7', '1.2E-7', '-0.000001']);
  });
});

describe('a file', () => {
  it.each([
    ['zone.parquet', 'zone.parquet: p: times of a zone other than UTC are not read'],
    ['emptyLists.v2.parquet', 'pages of version 2 that do not count empty lists are not read'],
  ])('%s is refused by name', async (file, message) => {
    await expect(rowsOf(join(FILES, file))).rejects.toThrow(message);
  });

  it('that is damaged is read, or refused with one line', async () => {
    let state = 5;
    const next = (): number => (state = (state * 48271) % 2147483647) / 2147483647;
    const path = join(folder, 'x.parquet');
    for (const file of Object.keys(python)) {
      const bytes = readFileSync(join(FILES, file));
      const footer = bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8);
      for (let i = 0; i < 150; i++) {
        const changed = Buffer.from(bytes);
        const from = i % 2 === 0 ? footer : 0;
        for (let k = 0; k <= i % 4; k++) changed[from + Math.floor(next() * (bytes.length - 8 - from))] = next() * 256;
        writeFileSync(path, changed);
        const error: unknown = await rowsOf(path).then(
          () => undefined,
          (problem: unknown) => problem,
        );
        if (error === undefined) continue;
        expect(error).toBeInstanceOf(UserError);
        expect((error as UserError).message).toMatch(/^[^\n]*x\.parquet[^\n]*$/);
      }
    }
  });
});
