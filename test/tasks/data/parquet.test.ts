/** Parquet files that ask for more than they have, are cut off, or have bytes changed: an error, never a crash. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ColumnMetaData, SchemaTree } from 'hyparquet';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { parquetRows } from '../../../tasks/data/parquet.js';
import { checkColumn } from '../../../tasks/data/parquetCheck.js';

const SHARED = fileURLToPath(new URL('../../../../shared/', import.meta.url));
const FILE = join(SHARED, 'data/hub/cais/mmlu/abstract_algebra/test-00000-of-00001.parquet');
const folder = mkdtempSync(join(tmpdir(), 'tilewright-parquet-'));
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

async function count(bytes: Uint8Array): Promise<number> {
  const path = join(folder, 'x.parquet');
  writeFileSync(path, bytes);
  let rows = 0;
  for await (const row of parquetRows(path)) rows += row.size > 0 ? 1 : 0;
  return rows;
}

describe.skipIf(!existsSync(FILE))('a real file', () => {
  const bytes = readFileSync(FILE);

  it('is read', async () => {
    expect(await count(bytes)).toBe(100);
  });

  it('that is cut off is refused', async () => {
    for (const length of [0, 3, 11, 100, bytes.length >> 1, bytes.length - 9, bytes.length - 1])
      await expect(count(bytes.subarray(0, length))).rejects.toThrow('x.parquet: not a readable Parquet file');
    const footer = Buffer.from(bytes);
    footer.writeUInt32LE(0xfffffff0, bytes.length - 8);
    await expect(count(footer)).rejects.toThrow('its description of 4294967280 bytes is more than it can be');
  });

  it('with changed bytes is read or refused, in bounded time and memory', async () => {
    let state = 7;
    const next = (): number => (state = (state * 48271) % 2147483647) / 2147483647;
    for (let i = 0; i < 300; i++) {
      const changed = Buffer.from(bytes);
      const inFooter = i % 2 === 0;
      const from = inFooter ? bytes.length - 8 - bytes.readUInt32LE(bytes.length - 8) : 0;
      for (let k = 0; k < 3; k++) changed[from + Math.floor(next() * (bytes.length - 8 - from))] = next() * 256;
      try {
        expect(await count(changed)).toBeLessThanOrEqual(100);
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
      }
    }
  });
});

const varint = (value: number): number[] =>
  value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
const field = (type: number, value: number): number[] => [(1 << 4) | type, ...varint(value * 2)];
/** A page of the first version, or a dictionary, with this header and body. */
function page(kind: number, values: number, body: readonly number[], size = body.length): Uint8Array {
  const inner = kind === 2 ? [...field(5, values), ...field(5, 0), 0] : [...field(5, values), ...field(5, 8), 0];
  const skip = kind === 2 ? (4 << 4) | 12 : (2 << 4) | 12;
  return Uint8Array.from([...field(5, kind), ...field(5, size), ...field(5, body.length), skip, ...inner, 0, ...body]);
}

describe('a page', () => {
  const leaf = { element: { name: 'x', repetition_type: 'REQUIRED' }, children: [], path: ['x'], count: 1 };
  const path = [{ ...leaf, path: [] }, leaf] as unknown as SchemaTree[];
  const check = (bytes: Uint8Array, values = 100, rows = 100): void => {
    const column = { codec: 'UNCOMPRESSED', num_values: BigInt(values) } as ColumnMetaData;
    checkColumn(bytes, column, path, rows, {});
  };

  it('with runs that fit is taken', () => {
    check(page(0, 100, [3, ...varint(200), 5]));
    check(page(0, 100, [1, ...varint(2 * 13 + 1), ...Array<number>(13).fill(0)]));
    check(page(2, 2, [1, 0, 0, 0, 65]));
  });

  it.each([
    ['more values than its column', page(0, 1_000_000, [3, ...varint(200), 5]), 100],
    ['a run of two billion values', page(0, 100, [3, ...varint(2 ** 32 - 2), 5]), 100],
    ['a run of none', page(0, 100, [3, 0, 5]), 100],
    ['no more bytes', page(0, 100, [3]), 100],
    ['two gigabytes', page(0, 100, [3, 1, 1], 2 ** 31 - 1), 100],
    ['a dictionary of two billion values', page(2, 2 ** 31 - 1, [1, 2, 3, 4]), 100],
    ['a column of two billion values', page(0, 100, [3, ...varint(200), 5]), 2 ** 31],
    ['indices of 255 bits', page(0, 100, [255, ...varint(200), 5]), 100],
  ])('that claims %s is refused before anything is allocated', (_, bytes, values) => {
    expect(() => {
      check(bytes, values, values);
    }).toThrow(Error);
  });
});
