/** Pages that are compressed: as many bytes as their headers say, and never more. */
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { bounded, keepingPages } from '../../../tasks/data/read.js';

const MAGIC = [0x28, 0xb5, 0x2f, 0xfd];
/** A frame of one segment whose content has this size, with blocks of a byte that repeats. */
const repeated = (size: number, ...runs: number[]): Uint8Array => {
  const blocks = runs.flatMap((run, i) => {
    const header = (run << 3) | (1 << 1) | (i === runs.length - 1 ? 1 : 0);
    return [header & 255, (header >> 8) & 255, header >> 16, 0x61];
  });
  return Uint8Array.from([...MAGIC, 0xa0, ...new Uint8Array(Uint32Array.of(size).buffer), ...blocks]);
};

describe('a page', () => {
  it('is as long as its header says', () => {
    const text = Buffer.from('abc'.repeat(1000));
    expect(Buffer.from(bounded['BROTLI']!(brotliCompressSync(text), 3000))).toEqual(text);
    expect(Buffer.from(bounded['GZIP']!(gzipSync(text), 3000))).toEqual(text);
    expect(Buffer.from(bounded['ZSTD']!(repeated(5, 2, 3), 5)).toString()).toBe('aaaaa');
  });

  it.each([
    ['BROTLI', brotliCompressSync(Buffer.alloc(50 << 20)), 10],
    ['ZSTD', repeated(5, 2, 3), 10],
    ['ZSTD', repeated(2 ** 31, ...Array.from({ length: 1000 }, () => 2 ** 21 - 1)), 10],
    ['ZSTD', Uint8Array.of(...MAGIC, 0xe0, 0), 10],
    ['ZSTD', Uint8Array.of(1, 2, 3), 10],
    ['SNAPPY', Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2), 10],
    ['LZ4_RAW', Uint8Array.of(0x1f, 1, 0, 255, 255, 255, 255, 255), 10],
    ['GZIP', gzipSync('a'), 2 ** 29],
  ] as const)('of %s that does not fit is refused (%#)', (codec, bytes, size) => {
    expect(() => bounded[codec]!(bytes, size)).toThrow();
  });

  it('of a row group is decompressed once, by its bytes, its codec and its size', () => {
    const asked: string[] = [];
    const of = (codec: string) => (input: Uint8Array, size: number) => {
      asked.push(`${codec} ${input[0]} ${size}`);
      return new Uint8Array(size);
    };
    const kept = keepingPages({ ZSTD: of('z'), GZIP: of('g') });
    const first = kept['ZSTD']!(Uint8Array.of(1, 2), 3);
    expect(kept['ZSTD']!(Uint8Array.of(0, 1, 2).subarray(1), 3)).toBe(first);
    kept['ZSTD']!(Uint8Array.of(1, 2), 4);
    kept['GZIP']!(Uint8Array.of(1, 2), 3);
    kept['ZSTD']!(Uint8Array.of(1, 3), 3);
    expect(asked).toEqual(['z 1 3', 'z 1 4', 'g 1 3', 'z 1 3']);
    // Those of a large group are not all kept.
    asked.length = 0;
    for (const size of [20 << 20, 20 << 20, 20 << 20, 21 << 20, 21 << 20]) kept['ZSTD']!(Uint8Array.of(9), size);
    expect(asked).toEqual([`z 9 ${20 << 20}`, `z 9 ${21 << 20}`, `z 9 ${21 << 20}`]);
  });

  it('ends where its header says, whatever follows in a frame without a size', () => {
    const frame = Uint8Array.from([...MAGIC, 0x00, 0x58, ...repeated(0, 2 ** 21 - 1, 2 ** 21 - 1).subarray(9)]);
    expect(bounded['ZSTD']!(frame, 10)).toHaveLength(10);
  });
});
