import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { UserError } from '../../errors.js';
import { findDuplicateKey, parseSafetensorsHeader, readSafetensorsHeader } from '../../models/weights/safetensors.js';
import { type HeaderEntry, layOut, safetensors, temporaryFolder, userError } from './support.js';

const GOOD = layOut([
  ['a', [2, 3]],
  ['b', []],
  ['empty', [0, 5]],
  ['c', [4]],
]);

function write(content: Uint8Array): string {
  const path = join(temporaryFolder(), 'model.safetensors');
  writeFileSync(path, content);
  return path;
}
const refusal = (content: Uint8Array): UserError => userError(() => readSafetensorsHeader(write(content)));
/** The error for GOOD with some entries replaced. */
const refusalOf = (changes: Record<string, Partial<HeaderEntry> | object>, data = GOOD.size): string => {
  const header: Record<string, object> = { ...GOOD.header };
  for (const [name, change] of Object.entries(changes)) header[name] = { ...header[name], ...change };
  return refusal(safetensors(header, data)).message;
};

describe('readSafetensorsHeader', () => {
  it('places every tensor in the file', () => {
    const header = { __metadata__: { format: 'pt' }, ...GOOD.header };
    const path = write(safetensors(header, GOOD.size));
    const read = readSafetensorsHeader(path);
    const base = 8 + JSON.stringify(header).length;
    expect(read.entries).toEqual([
      { name: 'a', dtype: 'BF16', shape: [2, 3], offset: base, byteLength: 12 },
      { name: 'b', dtype: 'BF16', shape: [], offset: base + 12, byteLength: 2 },
      { name: 'empty', dtype: 'BF16', shape: [0, 5], offset: base + 14, byteLength: 0 },
      { name: 'c', dtype: 'BF16', shape: [4], offset: base + 14, byteLength: 8 },
    ]);
    expect(read.metadata).toEqual(new Map([['format', 'pt']]));
    expect(read.sizeBytes).toBe(base + GOOD.size);
  });

  it('accepts a padded header, entries in any order, and names that are awkward in JavaScript', () => {
    const header =
      '{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},' +
      '"0":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}   ';
    expect(
      readSafetensorsHeader(write(safetensors(header, 4))).entries.map(({ name, byteLength }) => [name, byteLength]),
    ).toEqual([
      ['0', 3],
      ['__proto__', 1],
    ]);
  });

  it.each([
    [
      'a hole',
      { c: { data_offsets: [16, 24] } },
      26,
      'tensor "c" starts at byte 16 of the data but the one before ends at 14: it leaves a hole',
    ],
    ['a hole at the start', { a: { data_offsets: [1, 13] } }, 22, 'leaves a hole'],
    [
      'an overlap',
      { c: { data_offsets: [13, 21] } },
      22,
      'tensor "c" starts at byte 13 of the data but the one before ends at 14: it overlaps',
    ],
    ['two tensors in one place', { d: { dtype: 'BF16', shape: [4], data_offsets: [14, 22] } }, 22, 'overlaps'],
    ['an end before its start', { c: { data_offsets: [22, 14] } }, 22, 'starts at byte 22 but ends at byte 14'],
    [
      'a length that is not the shape',
      { a: { shape: [2, 4] } },
      22,
      'tensor "a": BF16 [2,4] takes 16 bytes, but the header gives it 12',
    ],
    ['a product past 2^53', { a: { shape: [2 ** 40, 2 ** 40] } }, 22, 'takes more than 2^53 bytes'],
    ['half a byte', { a: { dtype: 'F4', shape: [25] } }, 22, 'takes 12.5 bytes'],
    ['a negative extent', { a: { shape: [-2, -3] } }, 22, 'shape must be a list of sizes, got [-2,-3]'],
    ['a fraction', { a: { shape: [1.5, 4] } }, 22, 'shape must be a list of sizes'],
    ['an unknown element type', { a: { dtype: 'toString' } }, 22, 'unknown dtype "toString"'],
    ['offsets that are text', { a: { data_offsets: ['0', '12'] } }, 22, 'data_offsets must be two byte offsets'],
    ['one offset', { a: { data_offsets: [0] } }, 22, 'data_offsets must be two byte offsets'],
    ['an unknown field', { a: { stride: 1 } }, 22, 'unknown field "stride"'],
    ['metadata that is no text', { __metadata__: { n: 1 } }, 22, '__metadata__ "n" must be a string, got 1'],
    ['bytes after the end', {}, 23, '1 bytes after the last tensor belong to no tensor'],
  ])('refuses %s', (_, changes, data, expected) => {
    expect(refusalOf(changes, data)).toContain(expected);
  });

  it('refuses a tensor that is not an object', () => {
    expect(refusal(safetensors('{"a":[1]}', 0)).message).toContain('tensor "a": expected an object, got [1]');
  });

  it('names the first tensor that a truncated file cuts off, and what to do', () => {
    const path = write(safetensors(GOOD.header, GOOD.size));
    const size = readSafetensorsHeader(path).sizeBytes;
    truncateSync(path, size - 1);
    const error = userError(() => readSafetensorsHeader(path));
    expect(error.message).toBe(
      `${path}: truncated: the header describes ${size} bytes, the file has ${size - 1}; tensor ` +
        '"c" is the first one that is cut off',
    );
    expect(error.hint).toContain('download it again');
    truncateSync(path, size - 9);
    expect(userError(() => readSafetensorsHeader(path)).message).toContain('tensor "b"');
  });

  it('refuses a file that is too short, too long, missing, or not a file', () => {
    expect(refusal(Buffer.alloc(7)).message).toContain('7 bytes: too short');
    expect(refusal(safetensors('', 0)).message).toContain("does not start with '{'");
    expect(refusal(safetensors(' {}', 0)).message).toContain("does not start with '{'");
    expect(refusal(safetensors('{"a":', 0)).message).toContain('not valid JSON');
    expect(userError(() => readSafetensorsHeader('/nowhere/model.safetensors')).message).toBe(
      '/nowhere/model.safetensors: no such file',
    );
    expect(userError(() => readSafetensorsHeader(temporaryFolder())).message).toContain(
      'not a regular file but a folder',
    );
    const notUtf8 = safetensors('{"a":"xx"}', 0);
    notUtf8[8 + 6] = 0xff;
    expect(refusal(notUtf8).message).toContain('header: not valid UTF-8');
  });

  it.each([
    [16_777_216n, 'truncated: the header claims 16777216 bytes, the file has 64'],
    [16_777_217n, 'the header claims 16777217 bytes, more than the limit of 16777216'],
    [2n ** 64n - 1n, 'the header claims 18446744073709551615 bytes'],
    [65n, 'truncated: the header claims 65 bytes, the file has 64'],
  ])('allocates nothing for a header that claims %d bytes', (length, expected) => {
    const content = Buffer.alloc(72);
    content.writeBigUInt64LE(length);
    const path = write(content);
    const alloc = vi.spyOn(Buffer, 'alloc');
    const error = userError(() => readSafetensorsHeader(path));
    expect(error.message).toContain(expected);
    expect(Math.max(...alloc.mock.calls.map(([size]) => size))).toBe(8);
  });

  it.each([
    ['lists in lists', (bytes: number) => `{"a":${'['.repeat(bytes)}`, 'describes more than the 65536 tensors'],
    ['lists beside lists', (bytes: number) => `{"a":[${'[],'.repeat(bytes / 3)}[]]}`, 'describes more than the 65536'],
    ['deep metadata', () => `{"__metadata__":{"k":${'['.repeat(300)}${']'.repeat(300)}}}`, 'nested more than 200 deep'],
    [
      'empty tensors',
      (bytes: number) => {
        const empty = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}';
        return `{${Array.from({ length: bytes / 60 }, (_, i) => `"${i}":${empty}`).join(',')}}`;
      },
      'describes more than the 65536 tensors',
    ],
  ])('refuses %s before parsing', (_, make, expected) => {
    const content = safetensors(make(15_000_000), 0);
    const parse = vi.spyOn(JSON, 'parse');
    expect(refusal(content).message).toContain(expected);
    expect(parse).not.toHaveBeenCalled();
  });

  it('does not count a bracket in a name or in metadata as a tensor', () => {
    const text = JSON.stringify({ __metadata__: { notes: '[{'.repeat(200_000), quote: '\\"[' } });
    expect(parseSafetensorsHeader(Buffer.from(text), 0, 'x').metadata.size).toBe(2);
  });
});

describe('duplicate keys', () => {
  it.each([
    ['{"a":1,"a":2}', 'a'],
    ['{"a":1,"\\u0061":2}', 'a'],
    ['{"x":{"k":"v","k":"v"}}', 'k'],
    ['{"x":[{"y":1},{"z":1,"z":2}]}', 'z'],
    ['{"":1,"":2}', ''],
    ['{"__proto__":1,"__proto__":2}', '__proto__'],
    ['{"a\\"":1,"b":"a\\"","a\\"":2}', 'a"'],
    ['{"a":"a","b":["a","a"],"c":{"a":1,"b":2}}', undefined],
    ['["a","a"]', undefined],
    ['{"a":"\\\\","b":"{\\"b\\":1,\\"b\\":2}"}', undefined],
  ])('%s → %s', (text, expected) => {
    JSON.parse(text);
    expect(findDuplicateKey(text)).toBe(expected);
  });

  it('finds none in anything that JSON.stringify writes, and any that is added', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.string(), (value, key) => {
        expect(findDuplicateKey(JSON.stringify(value))).toBeUndefined();
        const twice = `{${JSON.stringify(key)}:${JSON.stringify(value)},"-${'x'}":0,${JSON.stringify(key)}:1}`;
        fc.pre(key !== '-x');
        expect(findDuplicateKey(twice)).toBe(key);
      }),
    );
  });

  it('are refused in headers', () => {
    const entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';
    expect(refusal(safetensors(`{"a":${entry},"a":${entry}}`, 0)).message).toContain(
      'the header has the key "a" twice',
    );
    expect(
      refusal(safetensors('{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0)).message,
    ).toContain('key "dtype" twice');
  });
});

describe('hostile files', () => {
  /** Accepted headers cover their data exactly; everything else is a UserError. */
  const check = (header: Uint8Array, dataBytes: number): void => {
    let entries;
    try {
      ({ entries } = parseSafetensorsHeader(header, dataBytes, 'f'));
    } catch (error) {
      expect(error).toBeInstanceOf(UserError);
      expect((error as UserError).message).not.toContain('\n');
      return;
    }
    const sorted = [...entries].sort((a, b) => a.offset - b.offset || a.byteLength - b.byteLength);
    let at = 8 + header.length;
    for (const entry of sorted) {
      expect(entry.offset).toBe(at);
      at += entry.byteLength;
    }
    expect(at).toBe(8 + header.length + dataBytes);
  };

  it('give a UserError or a sound header for arbitrary bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat(64), (bytes, data) => check(bytes, data)),
      { numRuns: 500 },
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const path = write(bytes);
        expect(() => readSafetensorsHeader(path)).toThrow(UserError);
      }),
      { numRuns: 100 },
    );
  });

  const size = fc.oneof(fc.nat(12), fc.constantFrom(-1, -0, 0.5, 2 ** 31, 2 ** 53, 1e308, null, '1'));
  const entry = fc.record(
    {
      dtype: fc.oneof(fc.constantFrom('BF16', 'F32', 'U8', 'F4', 'BOOL'), fc.jsonValue({ maxDepth: 1 })),
      shape: fc.oneof(fc.array(size, { maxLength: 3 }), fc.jsonValue({ maxDepth: 1 })),
      data_offsets: fc.oneof(fc.tuple(size, size), fc.jsonValue({ maxDepth: 1 })),
    },
    { requiredKeys: [] },
  );

  it('give the same for headers of the right form with any contents', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.oneof(fc.string(), fc.constant('__metadata__')), fc.oneof(entry, fc.jsonValue()), {
          maxKeys: 4,
        }),
        fc.nat(24),
        (header, data) => check(Buffer.from(JSON.stringify(header)), data),
      ),
      { numRuns: 2000 },
    );
  });

  it('give the same for a valid header with one byte changed', () => {
    const json = Buffer.from(JSON.stringify(GOOD.header));
    fc.assert(
      fc.property(fc.nat(json.length - 1), fc.nat(255), fc.constantFrom(-1, 0, 1), (at, byte, more) => {
        const changed = Buffer.from(json);
        changed[at] = byte;
        check(changed, GOOD.size + more);
      }),
      { numRuns: 2000 },
    );
  });
});
