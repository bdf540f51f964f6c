/** Comma-separated values with the types that pandas finds, and files that are none. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { csvRows } from '../../../tasks/data/csv.js';
import { Float } from '../../../python/value.js';
import { toPlain } from '../values.js';
import { expectLinear } from '../../support/growth.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-csv-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

let files = 0;
function rowsOf(content: string | Uint8Array, extension = 'csv'): unknown[] {
  const path = join(root, `${files++}.${extension}`);
  writeFileSync(path, content);
  return csvRows(path).map(toPlain);
}

describe('comma-separated values', () => {
  it.each([
    [
      'quotes, commas and line ends',
      'a,b\r\n"x, ""y""\nz",1\r\n\r\n w ,2',
      [
        { a: 'x, "y"\nz', b: 1 },
        { a: ' w ', b: 2 },
      ],
    ],
    [
      'missing values',
      'a,b\nNA,x\n"",None\n',
      [
        { a: null, b: 'x' },
        { a: null, b: null },
      ],
    ],
    [
      'whole numbers and text',
      'a,b\n1,007\n+2,7a\n',
      [
        { a: 1, b: '007' },
        { a: 2, b: '7a' },
      ],
    ],
    [
      'truth',
      'a,b\nTrue,true\nfalse,maybe\n',
      [
        { a: true, b: 'true' },
        { a: false, b: 'maybe' },
      ],
    ],
    ['short lines, and names that repeat', '\ufeffa,a,\n1,2\n', [{ a: 1, 'a.1': 2, 'Unnamed: 2': null }]],
  ])('%s', (_, content, expected) => {
    expect(rowsOf(content)).toEqual(expected);
  });

  it('makes floats of whole numbers with gaps', () => {
    const path = join(root, 'float.csv');
    writeFileSync(path, 'a,b\n1,1e3\n,.5\n');
    expect(csvRows(path).map((row) => [...row.values()])).toEqual([
      [new Float(1), new Float(1000)],
      [null, new Float(0.5)],
    ]);
  });

  it.each([
    ['a\n9223372036854775808\n1\n', [9223372036854775808n, 1]],
    ['a\n-9223372036854775808\n', [-9223372036854775808n]],
    ['a\n9223372036854775808\n-1\n', ['9223372036854775808', '-1']],
    ['a\n9223372036854775808\n1.5\n', [new Float(9.223372036854778e18), new Float(1.5)]],
    ['a\n0.1234567890123456789\n123456789.123456789\n', [new Float(0.1234567890123456), new Float(123456789.12345678)]],
    [
      'a\n0.0025158329759496566\n5.0206729224503585e-08\n',
      [new Float(0.0025158329759496), new Float(5.020672922450359e-8)],
    ],
    ['a\n-1e400\n1e-400\n-inf\n', [new Float(-Infinity), new Float(0), new Float(-Infinity)]],
  ])('reads numbers as pandas does: %j', (text, values) => {
    const path = join(root, 'number.csv');
    writeFileSync(path, text);
    expect(csvRows(path).map((row) => row.get('a'))).toEqual(values);
  });

  it('reads tabs and gzip', () => {
    expect(rowsOf('a\tb\nx,y\t"1\t2"\n', 'tsv')).toEqual([{ a: 'x,y', b: '1\t2' }]);
    expect(rowsOf(gzipSync('a\n1\n'), 'csv.gz')).toEqual([{ a: 1 }]);
  });

  it.each([
    ['', 'csv', 'there is no line in it'],
    ['a,b\n1,2,3\n', 'csv', ':2: 3 fields, and 2 columns have names'],
    ['a\n18446744073709551616\n', 'csv', '"a": a whole number of more than 64 bits has no type'],
    ['a,b\n9223372036854775808,x\n,y\n', 'csv', '"a": a whole number of 64 bits in a column with missing values'],
    ['a\n"x\n', 'csv', ':2: a quote that does not end'],
    ['not gzip', 'csv.gz', 'cannot be read'],
    [Uint8Array.of(0xff, 0xfe), 'csv', 'not valid UTF-8'],
  ])('refuses %#', (content, extension, message) => {
    expect(() => rowsOf(content, extension)).toThrow(message);
  });

  it('takes time in proportion to the text', () => {
    // A number of so many digits may have no type.
    const reading = (text: string) => (): void => {
      try {
        rowsOf(text);
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
      }
    };
    expectLinear((size) => reading(`a\n${'""'.repeat(size)}\n`), 50_000);
    expectLinear((size) => reading('a\n' + '"'.repeat(2 * size + 1)), 50_000);
    for (const long of ['1', '0', ' '])
      for (const end of ['x', '1x', '1.5', '1e1', '1'])
        expectLinear((size) => reading(`a\n${end}\n${long.repeat(size)}${end}\n`), 20_000);
    expect(rowsOf(`a\n${' '.repeat(300_000)}inf\n`)).toEqual([{ a: Infinity }]);
  });
});
