/** GGUF files: element types, headers, and models in several files. */
import { at } from '../../system/at.js';
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { BLOCKS, type StoredBlock } from '../../ir/blocks.js';
import { quote } from '../../system/json.js';
import { fileSize, isFolder, readRange, withFile } from '../../system/read.js';
import type { WeightEntry, WeightFile } from '../model/tensors.js';
import { Cursor, type Metadata, type ReadBytes, readMetadata, REFETCH } from './metadata.js';

// Element types of GGUF tensors: names by number, and sizes of those that are read. Facts: ggml's type table.

/** How the elements of a row are stored: blocks of `blockElements` elements in `blockBytes` bytes. */
export interface ElementType {
  readonly name: string;
  readonly blockElements: number;
  readonly blockBytes: number;
  /** Default: elements are floats. */
  readonly block?: StoredBlock;
}

const quantized = (name: string, block: StoredBlock): ElementType => ({
  name,
  blockElements: BLOCKS[block].elements,
  blockBytes: BLOCKS[block].bytes,
  block,
});

const READ: Readonly<Record<number, ElementType>> = {
  0: { name: 'F32', blockElements: 1, blockBytes: 4 },
  1: { name: 'F16', blockElements: 1, blockBytes: 2 },
  2: quantized('Q4_0', 'q4_0'),
  8: quantized('Q8_0', 'q8_0'),
  12: quantized('Q4_K', 'q4_k'),
  13: quantized('Q5_K', 'q5_k'),
  14: quantized('Q6_K', 'q6_k'),
  30: { name: 'BF16', blockElements: 1, blockBytes: 2 },
  39: quantized('MXFP4', 'mxfp4'),
};

/** Types that a file may have and that are not read. */
const OTHERS: Readonly<Record<number, string>> = {
  3: 'Q4_1',
  6: 'Q5_0',
  7: 'Q5_1',
  9: 'Q8_1',
  10: 'Q2_K',
  11: 'Q3_K',
  15: 'Q8_K',
  16: 'IQ2_XXS',
  17: 'IQ2_XS',
  18: 'IQ3_XXS',
  19: 'IQ1_S',
  20: 'IQ4_NL',
  21: 'IQ3_S',
  22: 'IQ2_S',
  23: 'IQ4_XS',
  24: 'I8',
  25: 'I16',
  26: 'I32',
  27: 'I64',
  28: 'F64',
  29: 'IQ1_M',
  34: 'TQ1_0',
  35: 'TQ2_0',
  40: 'NVFP4',
};

export const READ_TYPES: readonly string[] = Object.values(READ).map(({ name }) => name);

/** The type of this number; undefined if it is not read. */
export const elementType = (code: number): ElementType | undefined =>
  Object.hasOwn(READ, code) ? READ[code] : undefined;

/** The blocks of a type by its name; undefined if its elements are floats. */
export const blockOf = (name: string): StoredBlock | undefined =>
  Object.values(READ).find((type) => type.name === name)?.block;

/** The name of a type that is not read. */
export const otherType = (code: number): string =>
  (Object.hasOwn(OTHERS, code) ? OTHERS[code] : undefined) ?? `an unknown type, ${code}`;

// The header of a GGUF file, versions 2 and 3, little endian: metadata, and the names, shapes, types and places of
// tensors. Facts: ggml's docs/gguf.md. Everything is bounded by the size of the file before it is allocated.

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
  if (at(extents, 0) % type.blockElements !== 0)
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

// The files of a GGUF model: one, or several that are called NAME-00001-of-0000N.gguf.

const SUFFIX = '.gguf';
const PART = /^(.+)-(\d{5})-of-(\d{5})\.gguf$/;
/** Files of a model's encoder of pictures, by the name that converters give them. */
const BESIDE = /^mmproj/i;
const MAX_PARTS = 4096;
const AGAIN = 'download all files of the model again from one revision';

/** Names of the models among files of a folder: of one in several files, its first. */
const modelsAmong = (names: readonly string[]): readonly string[] =>
  names.filter((name) => !BESIDE.test(name) && (PART.exec(name)?.[2] ?? '00001') === '00001');

/**
 * The first file of the GGUF model at `path`, a file or a folder with exactly one model; undefined if it is neither.
 * Throws UserError for a folder with several.
 */
export function findGguf(path: string): string | undefined {
  const full = resolve(path);
  if (!isFolder(full)) return full.endsWith(SUFFIX) ? firstFile(full) : undefined;
  const names = readdirSync(full).filter((name) => name.endsWith(SUFFIX) && !isFolder(join(full, name)));
  const models = modelsAmong(names.sort());
  if (models.length > 1)
    throw new UserError(
      `${path}: has ${models.length} GGUF models: ${models.slice(0, 4).join(', ')}${models.length > 4 ? ', …' : ''}`,
      'give the path of one of these files',
    );
  return models[0] === undefined ? undefined : join(full, models[0]);
}

function firstFile(path: string): string {
  const part = PART.exec(basename(path));
  return part === null ? path : join(dirname(path), `${part[1]}-00001-of-${part[3]}.gguf`);
}

/** The paths of all files of the model whose first one is `first`. Throws UserError where one is missing. */
function ggufFiles(first: string): readonly string[] {
  const part = PART.exec(basename(first));
  if (part === null) return [first];
  const [, name, , count] = part;
  if (Number(count) < 1 || Number(count) > MAX_PARTS)
    throw new UserError(`${first}: ${Number(count)} files; expected 1 to ${MAX_PARTS}`, AGAIN);
  return Array.from({ length: Number(count) }, (_, i) => {
    const path = join(dirname(first), `${name}-${String(i + 1).padStart(5, '0')}-of-${count}.gguf`);
    if (fileSize(path) === undefined)
      throw new UserError(`${first}: the model is in ${Number(count)} files, and ${basename(path)} is missing`, AGAIN);
    return path;
  });
}

/** Headers of all files. Each says which one it is, and how many there are. Throws UserError. */
export function readGgufFiles(first: string): readonly [GgufHeader, ...GgufHeader[]] {
  const headers = ggufFiles(first).map(readGgufHeader);
  const names = new Map<string, string>();
  headers.forEach(({ file, metadata, entries }, i) => {
    const number = metadata.whole('split.no', 0, MAX_PARTS) ?? 0;
    const count = metadata.whole('split.count', 0, MAX_PARTS) ?? 0;
    // A model in one file says nothing, 0 or 1.
    if (number !== i || Math.max(1, count) !== headers.length)
      throw new UserError(
        `${file}: says that it is file ${number + 1} of ${Math.max(1, count)}, ` +
          `and is file ${i + 1} of ${headers.length}`,
        'give files of a model in several their names back: NAME-00001-of-0000N.gguf',
      );
    for (const { name } of entries) {
      const other = names.get(name);
      if (other !== undefined)
        throw new UserError(`${file}: has tensor ${quote(name, 80)}, which ${other} has too`, AGAIN);
      names.set(name, file);
    }
  });
  const [head, ...others] = headers;
  const stated = head!.metadata.whole('split.tensors.count', 0, 2 ** 31);
  if (stated !== undefined && stated !== names.size)
    throw new UserError(`${first}: says that the model has ${stated} tensors, and its files have ${names.size}`, AGAIN);
  return [head!, ...others];
}
