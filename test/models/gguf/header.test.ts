/** Headers of GGUF files: what is read, and the one line with which hostile and unknown files are refused. */
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../../models/checkpoint.js';
import { type GgufHeader, parseGgufHeader } from '../../../models/gguf/file.js';
import { GGUF_TYPES, ggufFile, type GgufFile, ggufPairs, type GgufTensor, text, u32, u64 } from '../../support/gguf.js';
import { SMALL_CONFIG, temporaryFolder, userError } from '../support.js';

const parse = (file: Buffer): GgufHeader =>
  parseGgufHeader((offset, length) => file.subarray(offset, offset + length), file.length, 'x.gguf');
const refusal = (file: Buffer): string => {
  const { message } = userError(() => parse(file));
  expect(message).not.toContain('\n');
  return message;
};

const tensor = (name: string, shape: readonly number[], type = 0, bytes = 4): GgufTensor => ({
  name,
  shape,
  type,
  bytes: Buffer.alloc(bytes * shape.reduce((a, b) => a * b, 1)),
});
const FILE: GgufFile = {
  pairs: {
    'general.architecture': { text: 'llama' },
    'a.whole': { u32: 7 },
    'a.large': { u64: 2n ** 60n },
    'a.number': { f32: 1e-5 },
    'a.flag': { flag: true },
    'a.texts': { texts: ['', 'é', '▁a'] },
    'a.flags': { flags: [true, false] },
    'a.numbers': { i32s: [-1, 2] },
  },
  tensors: [tensor('a.weight', [2, 3]), tensor('b.weight', [5], 1, 2), tensor('c.weight', [4], 30, 2)],
};

describe('the header of a GGUF file', () => {
  it.each([2, 3])('says what the file holds, version %s', (version) => {
    const { metadata, entries, sizeBytes } = parse(ggufFile({ ...FILE, version }));
    expect(metadata.whole('a.whole', 0, 10)).toBe(7);
    expect(metadata.number('a.large')).toBe(2 ** 60);
    // As config.json would have it, not the f32 next to it.
    expect(metadata.number('a.number')).toBe(1e-5);
    expect(metadata.flag('a.flag')).toBe(true);
    expect(metadata.texts('a.texts', 8)).toEqual(['', 'é', '▁a']);
    expect(metadata.flags('a.flags')).toEqual([true, false]);
    expect(metadata.numbers('a.numbers')).toEqual([-1, 2]);
    expect(metadata.text('b')).toBeUndefined();
    expect(metadata.unasked('a.')).toEqual([]);
    expect(metadata.unasked('general.')).toEqual(['general.architecture']);
    expect(entries.map(({ name, dtype, shape, byteLength }) => ({ name, dtype, shape, byteLength }))).toEqual([
      { name: 'a.weight', dtype: 'F32', shape: [2, 3], byteLength: 24 },
      { name: 'b.weight', dtype: 'F16', shape: [5], byteLength: 10 },
      { name: 'c.weight', dtype: 'BF16', shape: [4], byteLength: 8 },
    ]);
    expect(entries.map(({ offset }) => offset - entries[0]!.offset)).toEqual([0, 32, 64]);
    expect(entries[2]!.offset + 32).toBe(sizeBytes);
  });

  it('aligns tensors as it says', () => {
    const { entries } = parse(ggufFile({ ...FILE, alignment: 64, pairs: { 'general.alignment': { u32: 64 } } }));
    expect(entries.map(({ offset }) => offset % 64)).toEqual([0, 0, 0]);
    expect(entries[1]!.offset - entries[0]!.offset).toBe(64);
  });

  it('asks for values of their kind', () => {
    const { metadata } = parse(ggufFile(FILE));
    expect(userError(() => metadata.text('a.whole')).message).toBe('x.gguf: a.whole: expected a text, got 7');
    expect(userError(() => metadata.whole('a.whole', 8, 9)).message).toContain('a whole number from 8 to 9, got 7');
    expect(userError(() => metadata.numbers('a.texts')).message).toContain('a list of numbers, got a list of 3');
    expect(userError(() => metadata.texts('a.texts', 1)).message).toContain('element 1 has 2 bytes; the limit is 1');
  });
});

const HUGE = 2n ** 63n;
const start = (tensors: bigint | number, pairs: bigint | number, ...rest: Buffer[]): Buffer =>
  Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors), u64(pairs), ...rest]);
/** A file with one key and this value. */
const pair = (...value: Buffer[]): Buffer => start(0, 1, text('key'), ...value, Buffer.alloc(64));
const described = (
  name: string,
  extents: readonly (bigint | number)[],
  type: number,
  offset: bigint | number,
): Buffer => Buffer.concat([text(name), u32(extents.length), ...extents.map(u64), u32(type), u64(offset)]);

describe('a hostile GGUF file is refused', () => {
  it.each<[string, Buffer, string]>([
    ['nothing in it', Buffer.alloc(0), 'does not begin with "GGUF"'],
    ['another magic', Buffer.from('GGML\u0003\0\0\0'), 'does not begin with "GGUF"'],
    ['version 1', Buffer.concat([Buffer.from('GGUF'), u32(1), u64(0)]), 'GGUF version 1 is not read'],
    ['big-endian', Buffer.concat([Buffer.from('GGUF'), u32(3 << 24), u64(0)]), 'a big-endian GGUF file'],
    ['cut off', Buffer.from('GGUF\u0003\0\0\0'), 'truncated: the number of tensors ends at byte 16'],
    ['2^63 tensors', start(HUGE, 0), `the number of tensors is ${HUGE}; the limit is 262144`],
    ['2^63 keys', start(0, HUGE), `the number of keys is ${HUGE}`],
    ['a million keys', start(0, 1_000_000), '1000000 keys; the limit is 65536'],
    ['a key of 2^63 bytes', start(0, 1, u64(HUGE)), `the length of key 0 is ${HUGE}; the limit is 1024`],
    ['a text past the end', pair(u32(8), u64(1000)), 'truncated: "key" ends at byte 1047'],
    ['a text of 2^63 bytes', pair(u32(8), u64(HUGE)), `the length of "key" is ${HUGE}`],
    ['an unknown type', pair(u32(13)), '"key" has a value of unknown type 13'],
    ['a flag of 2', pair(u32(7), Buffer.of(2)), '"key": expected 0 or 1 for false or true, got 2'],
    ['lists of lists', pair(u32(9), u32(9), u64(1)), '"key" is a list of lists'],
    ['a list of an unknown type', pair(u32(9), u32(99), u64(1)), '"key" is a list of elements of unknown type 99'],
    ['2^63 elements', pair(u32(9), u32(4), u64(HUGE)), `the number of elements of "key" is ${HUGE}`],
    ['elements past the end', pair(u32(9), u32(4), u64(1 << 20)), 'truncated: "key" ends at byte'],
    ['texts past the end', pair(u32(9), u32(8), u64(1 << 20)), 'truncated: '],
    ['a key twice', start(0, 2, ...[1, 2].flatMap(() => [text('a'), u32(7), Buffer.of(1)])), '"a" occurs twice'],
    ['an empty key', start(0, 1, text(''), u32(7), Buffer.of(1)), 'key 0 is empty'],
    ['a text that is no UTF-8', pair(u32(8), u64(1), Buffer.of(0xff)), '"key": not valid UTF-8'],
  ])('with %s', (_, file, wanted) => {
    expect(refusal(file)).toContain(wanted);
  });

  const tensors = (...entries: Buffer[]): Buffer => start(entries.length, 0, ...entries, Buffer.alloc(256));
  it.each<[string, Buffer, string]>([
    ['no name', tensors(described('', [4], 0, 0)), 'expected a name of printable characters'],
    ['a long name', tensors(described('x'.repeat(65), [4], 0, 0)), 'is 65; the limit is 64'],
    ['no dimensions', tensors(described('a', [], 0, 0)), 'tensor "a" has 0 dimensions'],
    ['five dimensions', tensors(described('a', [1, 1, 1, 1, 1], 0, 0)), 'tensor "a" has 5 dimensions'],
    ['2^32 dimensions', tensors(Buffer.concat([text('a'), u32(0xffffffff)])), 'tensor "a" has 4294967295 dimensions'],
    ['an extent of 2^63', tensors(described('a', [HUGE], 0, 0)), `an extent of tensor "a" is ${HUGE}`],
    ['an extent of 0', tensors(described('a', [0, 4], 0, 0)), 'tensor "a" has extents 0, 4'],
    ['a product beyond 2^64', tensors(described('a', [2 ** 40, 2 ** 40], 0, 0)), 'expected 1 to 2^50 elements'],
    ['a part of a block', tensors(described('a', [33], 8, 0)), 'is Q8_0 with rows of 33: expected multiples of 32'],
    ['an offset of 2^63', tensors(described('a', [4], 0, HUGE)), `the offset of tensor "a" is ${HUGE}`],
    ['an offset between', tensors(described('a', [4], 0, 4)), 'begins at byte 4, no multiple of 32'],
    ['data past the end', tensors(described('a', [1 << 20], 0, 0)), 'truncated: tensor "a" ends at byte 4194304'],
    ['a hole', tensors(described('a', [4], 0, 64)), '64 bytes before tensor "a" belong to no tensor'],
    ['more data', tensors(described('a', [4], 0, 0)), 'bytes after the last tensor belong to no tensor'],
    [
      'an overlap',
      tensors(described('a', [16], 0, 0), described('b', [4], 0, 32)),
      'tensor "b" begins at byte 32 of the data and overlaps tensor "a"',
    ],
    ['a name twice', tensors(described('a', [8], 0, 0), described('a', [8], 0, 32)), 'tensor "a" occurs twice'],
  ])('with a tensor of %s', (_, file, wanted) => {
    expect(refusal(file)).toContain(wanted);
  });

  it.each([
    [3, 'Q4_1'],
    [6, 'Q5_0'],
    [7, 'Q5_1'],
    [10, 'Q2_K'],
    [11, 'Q3_K'],
    [15, 'Q8_K'],
    [23, 'IQ4_XS'],
    [34, 'TQ1_0'],
    [40, 'NVFP4'],
    [77, 'an unknown type, 77'],
  ])('with elements of type %s by their name', (type, name) => {
    expect(refusal(tensors(described('a', [256], type, 0)))).toBe(`x.gguf: tensor "a" is ${name}, which is not read`);
  });

  it.each([0, 3, 48, 1 << 21])('with an alignment of %s', (alignment) => {
    const file = ggufFile({ pairs: { 'general.alignment': { u32: alignment } }, tensors: [] });
    expect(refusal(file)).toContain('general.alignment: expected a power of two');
  });
});

const PAIRS = ggufPairs(SMALL_CONFIG);
/** The files of a model in `count`, with the first one's path. */
function parts(count: number, change: (part: number, file: GgufFile) => GgufFile = (_, file) => file): string {
  const dir = temporaryFolder();
  for (let part = 0; part < count; part++) {
    const split = { 'split.no': { u32: part }, 'split.count': { u32: count } };
    const file = { pairs: { ...(part === 0 ? PAIRS : {}), ...split }, tensors: [tensor(`t${part}.weight`, [8])] };
    const name = `m-${String(part + 1).padStart(5, '0')}-of-${String(count).padStart(5, '0')}.gguf`;
    writeFileSync(join(dir, name), ggufFile(change(part, file)));
  }
  return dir;
}
const opening = (path: string): string => userError(() => openCheckpoint(path)).message;

describe('the files of a model', () => {
  it('are found by the path of one, or of their folder', () => {
    const dir = parts(2);
    // Both are read: the embedding table is in neither.
    for (const path of [dir, join(dir, 'm-00001-of-00002.gguf'), join(dir, 'm-00002-of-00002.gguf')])
      expect(opening(path)).toBe(`${join(dir, 'm-00001-of-00002.gguf')}: tensor token_embd.weight is missing`);
  });

  it('are refused where one is missing, in another place, or has tensors of another', () => {
    const dir = parts(2);
    copyFileSync(join(dir, 'm-00001-of-00002.gguf'), join(dir, 'm-00001-of-00003.gguf'));
    expect(opening(join(dir, 'm-00001-of-00003.gguf'))).toContain('in 3 files, and m-00002-of-00003.gguf is missing');
    expect(opening(dir)).toContain('has 2 GGUF models: m-00001-of-00002.gguf, m-00001-of-00003.gguf');
    copyFileSync(join(dir, 'm-00001-of-00002.gguf'), join(dir, 'alone.gguf'));
    expect(opening(join(dir, 'alone.gguf'))).toContain('says that it is file 1 of 2, and is file 1 of 1');
    expect(opening(parts(2, (_, file) => ({ ...file, tensors: [tensor('t', [8])] })))).toContain(
      'has tensor "t", which',
    );
    const miscounted = parts(2, (_, file) => ({
      ...file,
      pairs: { ...file.pairs, 'split.tensors.count': { u32: 3 } },
    }));
    expect(opening(miscounted)).toContain('says that the model has 3 tensors, and its files have 2');
  });

  it('are missing where there are none', () => {
    expect(opening(join(temporaryFolder(), 'model.gguf'))).toContain('model.gguf: no such file');
    expect(Object.keys(GGUF_TYPES)).toContain('Q6_K');
  });
});
