/**
 * Decompresses pages of Parquet files into as many bytes as their headers say, and never more: a few bytes of a
 * hostile page can stand for gigabytes.
 */
import { createHash } from 'node:crypto';
import { brotliDecompressSync } from 'node:zlib';
import { decompress as unpackZstd } from 'fzstd';
import type { Compressors } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';

/** No page of a data set has more bytes. */
export const MAX_PAGE = 1 << 28;

/** A Zstandard frame with its content's size says the page's; one without is cut at the page's end. */
function zstd(input: Uint8Array, size: number): Uint8Array {
  const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
  if (input.length < 6 || view.getUint32(0, true) !== 0xfd2fb528) throw new Error('a page is no Zstandard frame');
  const flags = view.getUint8(4);
  const isSingle = (flags & 0x20) !== 0;
  const at = (isSingle ? 5 : 6) + [0, 1, 2, 4][flags & 3]!;
  const width = [isSingle ? 1 : 0, 2, 4, 8][flags >> 6]!;
  if (input.length < at + width) throw new Error('a page ends within the header of its frame');
  const sizes: readonly (() => number)[] = [
    () => view.getUint8(at),
    () => view.getUint16(at, true) + 256,
    () => view.getUint32(at, true),
    () => Number(view.getBigUint64(at, true)),
  ];
  const said = width === 0 ? size : sizes[Math.log2(width)]!();
  if (said !== size) throw new Error(`a page of ${said} bytes, where its header says ${size}`);
  return unpackZstd(input, new Uint8Array(size));
}

const OURS: Compressors = {
  ...compressors,
  BROTLI: (input, size) => brotliDecompressSync(input, { maxOutputLength: Math.max(size, 1) }),
  ZSTD: zstd,
};

/** Bytes of pages that are kept. */
const MAX_KEPT = 32 << 20;

/**
 * The same decompressors, for one row group: its pages are checked first, then read in two parts, and decompressing
 * takes longer than either. A page that was decompressed before is returned again, and must not be changed. It is known
 * by the hash of its bytes, since whoever reads a file makes copies of them.
 */
export function keepingPages(compressors: Compressors): Compressors {
  const pages = new Map<string, Uint8Array>();
  let bytes = 0;
  return Object.fromEntries(
    Object.entries(compressors).map(([codec, inflate]) => [
      codec,
      (input: Uint8Array, size: number): Uint8Array => {
        const key = `${codec} ${size} ${createHash('sha256').update(input).digest('base64')}`;
        const known = pages.get(key);
        if (known !== undefined) return known;
        const page = inflate(input, size);
        if (bytes + page.length > MAX_KEPT) return page;
        pages.set(key, page);
        bytes += page.length;
        return page;
      },
    ]),
  );
}

/** Refuses pages whose header asks for more memory than a page of a data set has. */
export const bounded: Compressors = Object.fromEntries(
  Object.entries(OURS).map(([codec, inflate]) => [
    codec,
    (input: Uint8Array, size: number): Uint8Array => {
      if (!(size >= 0 && size <= MAX_PAGE))
        throw new Error(`a page of ${size} bytes is more than the limit of ${MAX_PAGE}`);
      // A page without values may have no bytes, or a frame of none.
      return size === 0 ? new Uint8Array(0) : inflate(input, size);
    },
  ]),
);
