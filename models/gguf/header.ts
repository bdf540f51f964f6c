/**
 * The header of a GGUF file, versions 2 and 3, little endian: metadata, and the names, shapes, types and places of
 * tensors. Facts: ggml's docs/gguf.md. Everything is bounded by the size of the file before it is allocated.
 */
import { createHash } from 'node:crypto';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readRange, withFile } from '../../system/read.js';
import type { WeightEntry, WeightFile } from '../family/weightFile.js';
import { Cursor, REFETCH, type ReadBytes } from './cursor.js';
import { elementType, otherType, READ_TYPES } from './elementTypes.js';
import { readMetadata, type Metadata } from './metadata.js';

const MAGIC = 'GGUF';
const VERSIONS: readonly number[] = [2, 3];
const MAX_TENSORS = 1 << 18;
const MAX_NAME_BYTES = 64;
const MAX_DIMENSIONS = 4;
const MAX_EXTENT = 2 ** 40;
const MAX_ALIGNMENT = 1 << 20;
const DEFAULT_ALIGNMENT = 32;
const OTHER_FILE = `use a file of the model whose tensors are ${READ_TYPES.join(', ')}`;

export interface GgufHeader extends WeightFile {
  readonly metadata: Metadata;
}

/** Reads and checks the header of a GGUF file; the tensors themselves are not touched. Throws UserError, one line. */
export const readGgufHeader = (file: string): GgufHeader =>
  withFile(
    file,
    (fd, sizeBytes) => parseGgufHeader((offset, length) => readRange(fd, offset, length), sizeBytes, file),
    REFETCH,
  );

/** A tensor as the header describes it, before the place of the data is known. */
interface Described {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly byteLength: number;
}

/** As readGgufHeader, of a file of `sizeBytes` that `read` reads. */
export function parseGgufHeader(read: ReadBytes, sizeBytes: number, where: string): GgufHeader {
  const cursor = new Cursor(read, sizeBytes, where);
  const magic = sizeBytes < MAGIC.length ? '' : cursor.take(MAGIC.length, 'the first bytes').toString('latin1');
  if (magic !== MAGIC) cursor.fail('it does not begin with "GGUF": not a GGUF file');
  const version = cursor.u32('the version');
  if (version > 0 && version % 65_536 === 0)
    throw new UserError(`${where}: a big-endian GGUF file, which is not read`, 'use the little-endian file');
  if (!VERSIONS.includes(version))
    throw new UserError(
      `${where}: GGUF version ${version} is not read; versions ${VERSIONS.join(' and ')} are`,
      'convert the model again with a current converter',
    );
  const tensors = cursor.size('the number of tensors', MAX_TENSORS);
  const metadata = readMetadata(cursor, cursor.size('the number of keys', 2 ** 32));
  const found = Array.from({ length: tensors }, (_, i) => readTensor(cursor, i));
  const headerHash = createHash('sha256').update(cursor.passed()).digest('hex');
  const alignment = alignmentOf(metadata, cursor);
  const start = Math.ceil(cursor.offset / alignment) * alignment;
  checkPlaces(found, sizeBytes - start, alignment, cursor);
  const entries = found.map(({ begin, ...rest }): WeightEntry => ({ ...rest, offset: start + begin }));
  return { file: where, sizeBytes, entries, headerHash, metadata };
}

function alignmentOf(metadata: Metadata, cursor: Cursor): number {
  const alignment = metadata.whole('general.alignment', 0, 2 ** 32) ?? DEFAULT_ALIGNMENT;
  if (alignment < 1 || alignment > MAX_ALIGNMENT || Math.log2(alignment) % 1 !== 0)
    cursor.fail(`general.alignment: expected a power of two, at most ${MAX_ALIGNMENT}, got ${alignment}`);
  return alignment;
}

function readTensor(cursor: Cursor, index: number): Described {
  const place = `the name of tensor ${index}`;
  const name = cursor.text(place, MAX_NAME_BYTES).toString('utf8');
  const shown = `tensor ${quote(name, 80)}`;
  if (!/^[\x21-\x7e]+$/.test(name)) cursor.fail(`${shown}: expected a name of printable characters`);
  const dimensions = cursor.u32(`the dimensions of ${shown}`);
  if (dimensions < 1 || dimensions > MAX_DIMENSIONS)
    cursor.fail(`${shown} has ${dimensions} dimensions; expected 1 to ${MAX_DIMENSIONS}`);
  const extents = Array.from({ length: dimensions }, () => cursor.size(`an extent of ${shown}`, MAX_EXTENT));
  const elements = extents.reduce((product, extent) => product * extent, 1);
  if (elements < 1 || elements > Number.MAX_SAFE_INTEGER / 8)
    cursor.fail(`${shown} has extents ${extents.join(', ')}: expected 1 to 2^50 elements`);
  const code = cursor.u32(`the type of ${shown}`);
  const type = elementType(code);
  if (type === undefined)
    throw new UserError(`${cursor.where}: ${shown} is ${otherType(code)}, which is not read`, OTHER_FILE);
  if (extents[0]! % type.blockElements !== 0)
    cursor.fail(`${shown} is ${type.name} with rows of ${extents[0]}: expected multiples of ${type.blockElements}`);
  const begin = cursor.size(`the offset of ${shown}`, Number.MAX_SAFE_INTEGER);
  const byteLength = (elements / type.blockElements) * type.blockBytes;
  // Extents are stored from the fastest on.
  return { name, dtype: type.name, shape: extents.reverse(), begin, byteLength };
}

/**
 * Tensors lie one after another from the beginning of the data on, each at a multiple of the alignment, without holes.
 */
function checkPlaces(found: readonly Described[], dataBytes: number, alignment: number, cursor: Cursor): void {
  const names = new Set<string>();
  let end = 0;
  let before = 'the header';
  for (const { name, begin, byteLength } of [...found].sort((a, b) => a.begin - b.begin)) {
    const shown = `tensor ${quote(name, 80)}`;
    if (names.has(name)) cursor.fail(`${shown} occurs twice`);
    names.add(name);
    if (begin % alignment !== 0) cursor.fail(`${shown} begins at byte ${begin}, no multiple of ${alignment}`);
    if (begin < end) cursor.fail(`${shown} begins at byte ${begin} of the data and overlaps ${before}`);
    if (begin - end >= alignment) cursor.fail(`${begin - end} bytes before ${shown} belong to no tensor`);
    if (begin + byteLength > dataBytes)
      cursor.fail(
        `truncated: ${shown} ends at byte ${begin + byteLength} of the data, ` + `which has ${Math.max(0, dataBytes)}`,
      );
    end = begin + byteLength;
    before = shown;
  }
  if (dataBytes - end >= alignment) cursor.fail(`${dataBytes - end} bytes after the last tensor belong to no tensor`);
}
