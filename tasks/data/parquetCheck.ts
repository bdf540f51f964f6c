/**
 * Checks the pages of a Parquet column before they are decoded. A few bytes of a hostile file can ask for billions of
 * values: pages say how many they have, and so do runs inside of them.
 */
import { at as elementAt } from '../../system/at.js';
import type { ColumnMetaData, Compressors, SchemaTree } from 'hyparquet';
import { parquetHeader } from 'hyparquet/src/column.js';
import { decompressPage } from 'hyparquet/src/datapage.js';
import { getMaxDefinitionLevel, getMaxRepetitionLevel } from 'hyparquet/src/schema.js';
import { MAX_PAGE } from './read.js';

/** All pages of a column of one row group. */
const MAX_COLUMN = 1 << 30;
/** Values of one column of one row group, items of lists included. */
export const MAX_VALUES = 50_000_000;

/** A file that is whole and cannot be read all the same. */
export class Unsupported extends Error {}

const bitWidth = (value: number): number => 32 - Math.clz32(value);
const isIndexed = (encoding: string | undefined): boolean =>
  encoding === 'PLAIN_DICTIONARY' || encoding === 'RLE_DICTIONARY';

class Runs {
  readonly #bytes: Uint8Array;
  at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.#bytes = bytes;
    this.at = at;
  }

  byte(): number {
    const value = this.#bytes[this.at++];
    if (value === undefined) throw new Error('a page ends within its values');
    return value;
  }

  #varint(): number {
    let result = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      result += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return result;
    }
    throw new Error('a number in a page has no end');
  }

  length(): number {
    return this.byte() + (this.byte() << 8) + (this.byte() << 16) + this.byte() * 2 ** 24;
  }

  /**
   * `count` values of `width` bits in runs. A run of packed values may end in up to 7 that mean nothing. Returns how
   * many are `counted`.
   */
  check(count: number, width: number, counted?: number): number {
    let found = 0;
    for (let seen = 0; seen < count;) {
      const header = this.#varint();
      const values = header % 2 === 1 ? ((header - 1) / 2) * 8 : header / 2;
      if (values === 0) throw new Error('a run without values');
      if (values > count - seen + (header % 2 === 1 ? 503 : 0))
        throw new Error(`a run of ${values} values, where ${count - seen} are left`);
      const bytes = header % 2 === 1 ? (values / 8) * width : Math.ceil(width / 8);
      if (counted !== undefined) {
        const first = this.#bits(this.at, 0, width);
        const inRun = Math.min(values, count - seen);
        if (header % 2 === 0) found += first === counted ? inRun : 0;
        else for (let i = 0; i < inRun; i++) found += this.#bits(this.at, i * width, width) === counted ? 1 : 0;
      }
      this.at += bytes;
      seen += values;
    }
    return found;
  }

  #bits(at: number, from: number, width: number): number {
    let value = 0;
    for (let bit = from; bit < from + width; bit++)
      value += (((this.#bytes[at + (bit >> 3)] ?? 0) >> (bit & 7)) & 1) * 2 ** (bit - from);
    return value;
  }
}

/** Levels and indices of a page of the first version. */
function checkPage(page: Uint8Array, count: number, encoding: string | undefined, levels: readonly number[]): void {
  let at = 0;
  for (const level of levels) {
    if (level === 0) continue;
    const runs = new Runs(page, at);
    const length = runs.length();
    runs.check(count, bitWidth(level));
    at += 4 + length;
  }
  checkIndices(page, at, count, encoding, levels);
}

/** Fewer values than `count` are there where some are null: then the runs end with the page. */
function checkIndices(
  page: Uint8Array,
  at: number,
  count: number,
  encoding: string | undefined,
  levels: readonly number[],
): void {
  if (!isIndexed(encoding) || at >= page.length) return;
  const runs = new Runs(page, at);
  const width = runs.byte();
  if (width > 32) throw new Error(`indices of ${width} bits`);
  if (width === 0) return;
  const hasNulls = levels.some((level) => level > 0);
  try {
    runs.check(count, width);
  } catch (error) {
    if (!hasNulls || runs.at < page.length) throw error;
  }
}

/**
 * `bytes`: a column of one row group; `rows`: of that group. Throws Error for pages that ask for more than the column
 * says it has, or more than any data set needs.
 */
export function checkColumn(
  bytes: Uint8Array,
  column: ColumnMetaData,
  path: readonly SchemaTree[],
  rows: number,
  compressors: Compressors,
): void {
  const schemaPath = [...path];
  const levels = [getMaxRepetitionLevel(schemaPath), getMaxDefinitionLevel(schemaPath)];
  const limit = Number(column.num_values);
  if (!(limit >= 0 && limit <= MAX_VALUES)) throw new Error(`a column of ${column.num_values} values`);
  if (levels[0] === 0 && limit > rows) throw new Error(`a column of ${limit} values for ${rows} rows`);
  const reader = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), offset: 0 };
  let seen = 0,
    total = 0,
    dictionaries = 0;
  while (seen < limit && reader.offset < bytes.length - 1) {
    const header = parquetHeader(reader);
    const [compressed, plain] = [header.compressed_page_size, Number(header.uncompressed_page_size)];
    const body = bytes.subarray(reader.offset, reader.offset + compressed);
    if (!(compressed >= 0) || body.length < compressed) throw new Error('a page leads out of its column');
    if (!(plain >= 0 && plain <= MAX_PAGE)) throw new Error(`a page of ${plain} bytes is more than ${MAX_PAGE}`);
    total += plain;
    if (total > MAX_COLUMN) throw new Error(`pages of ${total} bytes are more than a column's ${MAX_COLUMN}`);
    reader.offset += compressed;
    const { data_page_header: first, data_page_header_v2: second, dictionary_page_header: dictionary } = header;
    if (dictionary !== undefined) {
      if (++dictionaries > 1) throw new Error('a column has two dictionaries');
      // Each value takes a bit of the page at least.
      if (!(dictionary.num_values >= 0 && dictionary.num_values <= plain * 8))
        throw new Error(`a dictionary of ${dictionary.num_values} values in ${plain} bytes`);
      continue;
    }
    const count = (first ?? second)?.num_values ?? 0;
    if (!(count >= 0 && seen + count <= limit)) throw new Error(`pages of more than the ${limit} values of the column`);
    seen += count;
    if (first !== undefined) {
      if (levels.every((level) => level === 0) && !isIndexed(first.encoding)) continue;
      checkPage(decompressPage(body, plain, column.codec, compressors), count, first.encoding, levels);
    } else if (second !== undefined) {
      const sizes = [second.repetition_levels_byte_length, second.definition_levels_byte_length];
      let at = 0,
        present = count;
      for (const [i, size] of sizes.entries()) {
        if (!(size >= 0 && at + size <= body.length)) throw new Error('levels lead out of their page');
        const level = levels[i] ?? 0;
        if (size > 0) present = new Runs(body.subarray(0, at + size), at).check(count, bitWidth(level), level);
        at += size;
      }
      if (second.num_nulls < 0 || second.num_nulls > count) throw new Error(`a page with ${second.num_nulls} nulls`);
      if (elementAt(levels, 1) > 0 && elementAt(sizes, 1) > 0 && present !== count - second.num_nulls)
        throw new Unsupported(`${column.path_in_schema.join('.')}: pages of version 2 that do not count empty lists`);
      if (!isIndexed(second.encoding)) continue;
      const rest = body.subarray(at);
      const page = second.is_compressed === false ? rest : decompressPage(rest, plain - at, column.codec, compressors);
      checkIndices(page, 0, count - second.num_nulls, second.encoding, levels);
    }
  }
}
