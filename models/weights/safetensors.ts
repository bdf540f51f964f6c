/** Safetensors files: headers that are read and checked, and the layout of files that are written. */
import { createHash } from 'node:crypto';
import { UserError } from '../../errors.js';
import { isRecord, parseJson, quote } from '../../system/json.js';
import { decodeUtf8, readRange, withFile } from '../../system/read.js';
import type { WeightEntry, WeightFile } from '../model/tensors.js';

// JSON.parse silently keeps the last of two equal keys. A file with contradictory entries for one tensor must be
// refused.

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * The first key that occurs twice in one object of `text`, compared after unescaping; undefined if there is none.
 * `text` must already have been accepted by JSON.parse. One pass, memory proportional to the number of keys.
 */
export function findDuplicateKey(text: string): string | undefined {
  /** Keys seen in each open object; undefined for an open array. */
  const open: (Set<string> | undefined)[] = [];
  let expectsKey = false;
  for (let i = 0; i < text.length; i++) {
    switch (text[i]) {
      case '{':
        open.push(new Set());
        expectsKey = true;
        break;
      case '[':
        open.push(undefined);
        expectsKey = false;
        break;
      case '}':
      case ']':
        open.pop();
        expectsKey = false;
        break;
      case ',':
        expectsKey = open.at(-1) !== undefined;
        break;
      case '"': {
        const start = i;
        let escaped = false;
        for (i++; text.charCodeAt(i) !== QUOTE; i++) {
          if (i >= text.length) return undefined; // Not valid JSON. The parser reports it.
          if (text.charCodeAt(i) === BACKSLASH) {
            escaped = true;
            i++;
          }
        }
        const keys = open.at(-1);
        if (expectsKey && keys !== undefined) {
          const key = escaped ? (JSON.parse(text.slice(start, i + 1)) as string) : text.slice(start + 1, i);
          if (keys.has(key)) return key;
          keys.add(key);
        }
        expectsKey = false;
        break;
      }
      default:
        break;
    }
  }
  return undefined;
}

// Headers of safetensors files: 8 bytes of length, that many bytes of JSON, then the tensors back to back.
// https://github.com/huggingface/safetensors#format. The file is hostile until every rule has been checked.

/**
 * Bounds on one file, far above real ones: a model of 70 billion weights has headers of 0.1 MB in all, the largest
 * mixtures of experts have a few thousand tensors per file. The format itself allows 100 MB.
 */
export const MAX_HEADER_BYTES = 16 << 20;
export const MAX_TENSORS = 1 << 16;
const LENGTH_BYTES = 8;

/** Bits of one element of every type that the format knows; only a few can be weights here (see checkpoint.ts). */
const ELEMENT_BITS: Readonly<Record<string, number>> = {
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  BOOL: 8,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
};

export interface SafetensorsHeader extends WeightFile {
  readonly metadata: ReadonlyMap<string, string>;
}

const REFETCH = 'the file is damaged or was not written completely: download it again';
const REWRITE = 'the file is damaged or hostile: get it from its publisher again';

/** Number of elements of a shape; undefined above 2^53, since no such tensor fits in a file. */
function elementCount(shape: readonly number[]): number | undefined {
  if (shape.includes(0)) return 0;
  let count = 1;
  for (const extent of shape) {
    count *= extent;
    if (count > Number.MAX_SAFE_INTEGER) return undefined;
  }
  return count;
}

/** Number of objects and lists in a JSON text, which bounds the cost of parsing it. */
function countContainers(json: Uint8Array): number {
  let count = 0;
  for (let i = 0; i < json.length; i++) {
    const byte = json[i];
    if (byte === 0x5b || byte === 0x7b) count++;
    else if (byte === 0x22) {
      for (i++; i < json.length && json[i] !== 0x22; i++) if (json[i] === 0x5c) i++;
    }
  }
  return count;
}

const isSize = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

function parseEntry(
  name: string,
  value: unknown,
  where: string,
): { dtype: string; shape: number[]; begin: number; end: number } {
  const place = `${where}: tensor ${quote(name, 120)}`;
  if (!isRecord(value)) throw new UserError(`${place}: expected an object, got ${quote(value)}`, REWRITE);
  const { dtype, shape, data_offsets: offsets, ...rest } = value;
  const extra = Object.keys(rest)[0];
  if (extra !== undefined) throw new UserError(`${place}: unknown field ${quote(extra)}`, REWRITE);
  const bits = typeof dtype === 'string' && Object.hasOwn(ELEMENT_BITS, dtype) ? ELEMENT_BITS[dtype] : undefined;
  if (typeof dtype !== 'string' || bits === undefined)
    throw new UserError(`${place}: unknown dtype ${quote(dtype)}`, REWRITE);
  if (!Array.isArray(shape) || !shape.every(isSize))
    throw new UserError(`${place}: shape must be a list of sizes, got ${quote(shape)}`, REWRITE);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    throw new UserError(`${place}: data_offsets must be two byte offsets, got ${quote(offsets)}`, REWRITE);
  }
  const [begin = 0, end = 0] = offsets;
  if (begin > end) throw new UserError(`${place}: starts at byte ${begin} but ends at byte ${end}`, REWRITE);
  const count = elementCount(shape);
  const wanted = count === undefined ? undefined : (count * bits) / 8;
  if (wanted !== end - begin) {
    throw new UserError(
      `${place}: ${dtype} ${quote(shape)} takes ${wanted ?? 'more than 2^53'} bytes, ` +
        `but the header gives it ${end - begin}`,
      REWRITE,
    );
  }
  return { dtype, shape, begin, end };
}

/** Checks every rule between the header's JSON and the `dataBytes` that follow it. Throws UserError, one line. */
export function parseSafetensorsHeader(
  json: Uint8Array,
  dataBytes: number,
  where: string,
): { readonly entries: readonly WeightEntry[]; readonly metadata: ReadonlyMap<string, string> } {
  if (json[0] !== 0x7b)
    throw new UserError(`${where}: the header does not start with '{': not a safetensors file`, REFETCH);
  // A tensor is an object with two lists; the header and its metadata are objects.
  if (countContainers(json) > 3 * MAX_TENSORS + 2)
    throw new UserError(
      `${where}: the header describes more than the ${MAX_TENSORS} tensors that a file may have`,
      REWRITE,
    );
  const text = decodeUtf8(json, `${where}: header`, REFETCH);
  const header = parseJson(text, `${where}: header`, REFETCH);
  if (!isRecord(header)) throw new UserError(`${where}: the header is not a JSON object`, REWRITE);
  const duplicate = findDuplicateKey(text);
  if (duplicate !== undefined)
    throw new UserError(`${where}: the header has the key ${quote(duplicate, 120)} twice`, REWRITE);

  const metadata = new Map<string, string>();
  const found: { name: string; dtype: string; shape: number[]; begin: number; end: number }[] = [];
  for (const [name, value] of Object.entries(header)) {
    if (name !== '__metadata__') {
      found.push({ name, ...parseEntry(name, value, where) });
      continue;
    }
    if (!isRecord(value))
      throw new UserError(`${where}: __metadata__ must be an object of strings, got ${quote(value)}`, REWRITE);
    for (const [key, entry] of Object.entries(value)) {
      if (typeof entry !== 'string')
        throw new UserError(`${where}: __metadata__ ${quote(key)} must be a string, got ${quote(entry)}`, REWRITE);
      metadata.set(key, entry);
    }
  }
  found.sort((a, b) => a.begin - b.begin || a.end - b.end);
  const base = LENGTH_BYTES + json.length;
  let covered = 0;
  let last = '';
  for (const { name, begin, end } of found) {
    if (begin !== covered) {
      const what =
        begin < covered ? `overlaps ${last === '' ? 'the header' : quote(last, 120)}` : 'leaves a hole before it';
      throw new UserError(
        `${where}: tensor ${quote(name, 120)} starts at byte ${begin} of the data ` +
          `but the one before ends at ${covered}: it ${what}`,
        REWRITE,
      );
    }
    covered = end;
    last = name;
  }
  if (covered > dataBytes) {
    const cut = found.find((entry) => entry.end > dataBytes)?.name ?? last;
    throw new UserError(
      `${where}: truncated: the header describes ${base + covered} bytes, the file has ${base + dataBytes}; ` +
        `tensor ${quote(cut, 120)} is the first one that is cut off`,
      REFETCH,
    );
  }
  if (covered < dataBytes)
    throw new UserError(`${where}: ${dataBytes - covered} bytes after the last tensor belong to no tensor`, REWRITE);
  return {
    entries: found.map(({ name, dtype, shape, begin, end }) => ({
      name,
      dtype,
      shape,
      offset: base + begin,
      byteLength: end - begin,
    })),
    metadata,
  };
}

/** Reads and checks the header of a safetensors file; the tensors themselves are not touched. Throws UserError. */
export function readSafetensorsHeader(file: string): SafetensorsHeader {
  return withFile(
    file,
    (fd, sizeBytes) => {
      const prefix = readRange(fd, 0, LENGTH_BYTES);
      if (prefix.length < LENGTH_BYTES)
        throw new UserError(`${file}: ${sizeBytes} bytes: too short for a safetensors file`, REFETCH);
      const length = prefix.readBigUInt64LE();
      if (length > BigInt(MAX_HEADER_BYTES)) {
        throw new UserError(
          `${file}: the header claims ${length} bytes, more than the limit of ${MAX_HEADER_BYTES}: ` +
            'not a safetensors file, or a damaged one',
          REFETCH,
        );
      }
      const headerBytes = Number(length);
      if (headerBytes > sizeBytes - LENGTH_BYTES) {
        throw new UserError(
          `${file}: truncated: the header claims ${headerBytes} bytes, ` +
            `the file has ${sizeBytes - LENGTH_BYTES} after the first ${LENGTH_BYTES}`,
          REFETCH,
        );
      }
      const json = readRange(fd, LENGTH_BYTES, headerBytes);
      if (json.length < headerBytes)
        throw new UserError(`${file}: changed while it was read`, 'wait until it is written, then run again');
      const { entries, metadata } = parseSafetensorsHeader(json, sizeBytes - LENGTH_BYTES - headerBytes, file);
      return { file, sizeBytes, entries, metadata, headerHash: createHash('sha256').update(json).digest('hex') };
    },
    REFETCH,
  );
}

// Where tensors lie in a safetensors file that is to be written: https://github.com/huggingface/safetensors#format.

export interface SafetensorsLayout {
  /** What the file begins with. */
  readonly header: Uint8Array;
  readonly entries: readonly WeightEntry[];
  readonly sizeBytes: number;
}

const ALIGNMENT = 8;

/** Bytes of an element, for its place; 8 where it is unknown. */
const elementBytes = ({ dtype }: Pick<WeightEntry, 'dtype'>): number => Number(/(\d+)/.exec(dtype)?.[1] ?? 64) / 8;

/** Wider elements come first, so that all are aligned. Readers in Python want to be told that it is theirs. */
export function layOut(tensors: readonly Omit<WeightEntry, 'offset'>[]): SafetensorsLayout {
  const sorted = [...tensors].sort((a, b) => elementBytes(b) - elementBytes(a) || (a.name < b.name ? -1 : 1));
  const described: [string, unknown][] = [['__metadata__', { format: 'pt' }]];
  let at = 0;
  const places = sorted.map((tensor) => {
    const place = { ...tensor, offset: at };
    at += tensor.byteLength;
    described.push([tensor.name, { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [place.offset, at] }]);
    return place;
  });
  const json = Buffer.from(JSON.stringify(Object.fromEntries(described)));
  const length = Math.ceil(json.length / ALIGNMENT) * ALIGNMENT;
  const header = Buffer.alloc(LENGTH_BYTES + length, ' ');
  header.writeBigUInt64LE(BigInt(length), 0);
  json.copy(header, LENGTH_BYTES);
  const entries = places.map((place) => ({ ...place, offset: place.offset + header.length }));
  return { header, entries, sizeBytes: header.length + at };
}
