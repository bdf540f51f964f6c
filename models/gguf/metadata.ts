/** Reads the header of a GGUF file from its beginning. Nothing is allocated for a size that the file cannot hold. */
import { createHash } from 'node:crypto';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { decodeUtf8 } from '../../system/read.js';

/** Several times the header of the largest published vocabulary. */
const MAX_HEADER_BYTES = 256 << 20;
const FIRST_BYTES = 1 << 20;

export const REFETCH = 'download the file again';

/** `length` bytes of a file from byte `offset` on, or fewer if it ends earlier. */
export type ReadBytes = (offset: number, length: number) => Buffer;

/** A place in a file, little endian. `at` says what is read, for messages. */
export class Cursor {
  readonly where: string;
  private readonly read: ReadBytes;
  private readonly sizeBytes: number;
  private bytes: Buffer = Buffer.alloc(0);
  private position = 0;

  constructor(read: ReadBytes, sizeBytes: number, where: string) {
    this.read = read;
    this.sizeBytes = sizeBytes;
    this.where = where;
  }

  get offset(): number {
    return this.position;
  }

  /** What has been passed so far. */
  passed(): Buffer {
    return this.bytes.subarray(0, this.position);
  }

  u32(at: string): number {
    return this.take(4, at).readUInt32LE();
  }

  u64(at: string): bigint {
    return this.take(8, at).readBigUInt64LE();
  }

  /** A count or a size of at most `most`. */
  size(at: string, most: number): number {
    const value = this.u64(at);
    if (value > BigInt(most)) this.fail(`${at} is ${value}; the limit is ${most}`);
    return Number(value);
  }

  /** The bytes of a text, behind its length. */
  text(at: string, most: number): Buffer {
    return this.take(this.size(`the length of ${at}`, most), at);
  }

  /** The next `length` bytes. */
  take(length: number, at: string): Buffer {
    const start = this.position;
    const end = start + length;
    if (end > this.sizeBytes) this.fail(`truncated: ${at} ends at byte ${end}, and the file has ${this.sizeBytes}`);
    if (end > MAX_HEADER_BYTES) this.fail(`the header is longer than the limit of ${MAX_HEADER_BYTES} bytes, at ${at}`);
    if (end > this.bytes.length) this.fill(end);
    this.position = end;
    return this.bytes.subarray(start, end);
  }

  fail(what: string): never {
    throw new UserError(`${this.where}: ${what}`, REFETCH);
  }

  /** Reads on, twice as far each time. */
  private fill(end: number): void {
    const wanted = Math.min(this.sizeBytes, Math.max(end, FIRST_BYTES, 2 * this.bytes.length));
    const more = this.read(this.bytes.length, wanted - this.bytes.length);
    this.bytes = Buffer.concat([this.bytes, more]);
    if (this.bytes.length < end) this.fail('changed while it was read');
  }
}

// The metadata of a GGUF file: keys and typed values. Lists are decoded when they are asked for.

const MAX_PAIRS = 1 << 16;
const MAX_KEY_BYTES = 1024;
/** Of a text; a tokenizer.json may be among them. */
const MAX_TEXT_BYTES = 64 << 20;
const MAX_ELEMENTS = 1 << 22;

const TEXT = 8;
const LIST = 9;

interface NumberType {
  readonly bytes: number;
  readonly read: (bytes: Buffer, at: number) => number;
}

/** Types of numbers by their code. Integers beyond 2^53 lose digits, and are beyond every bound anyway. */
const NUMBERS: Readonly<Record<number, NumberType>> = {
  0: { bytes: 1, read: (bytes, at) => bytes.readUInt8(at) },
  1: { bytes: 1, read: (bytes, at) => bytes.readInt8(at) },
  2: { bytes: 2, read: (bytes, at) => bytes.readUInt16LE(at) },
  3: { bytes: 2, read: (bytes, at) => bytes.readInt16LE(at) },
  4: { bytes: 4, read: (bytes, at) => bytes.readUInt32LE(at) },
  5: { bytes: 4, read: (bytes, at) => bytes.readInt32LE(at) },
  6: { bytes: 4, read: (bytes, at) => shortest(bytes.readFloatLE(at)) },
  10: { bytes: 8, read: (bytes, at) => Number(bytes.readBigUInt64LE(at)) },
  11: { bytes: 8, read: (bytes, at) => Number(bytes.readBigInt64LE(at)) },
  12: { bytes: 8, read: (bytes, at) => bytes.readDoubleLE(at) },
};
const [SINGLE, FLAG] = [6, 7];
const numberType = (code: number): NumberType | undefined => (Object.hasOwn(NUMBERS, code) ? NUMBERS[code] : undefined);

/** The shortest decimal number that is this f32: 0.00001 for the f32 next to it, as config.json has it. */
function shortest(single: number): number {
  if (!Number.isFinite(single)) return single;
  for (let digits = 1; digits < 9; digits++) {
    const decimal = Number(single.toPrecision(digits));
    if (Math.fround(decimal) === single) return decimal;
  }
  return single;
}

/** A list, and where its elements begin in the header. */
interface MetadataList {
  readonly code: number;
  readonly count: number;
  readonly start: number;
}

type MetadataValue = number | boolean | string | MetadataList;

/** A value, and where it lies in the header with its key and its type. */
interface MetadataPair {
  readonly value: MetadataValue;
  readonly from: number;
  readonly to: number;
}

const isList = (value: MetadataValue | undefined): value is MetadataList => typeof value === 'object';

/** What kind of value it is, for messages. */
function kindOf(value: MetadataValue): string {
  return isList(value) ? `a list of ${value.count}` : quote(value);
}

export class Metadata {
  readonly where: string;
  private readonly pairs: ReadonlyMap<string, MetadataPair>;
  private readonly bytes: Buffer;
  private readonly asked = new Set<string>();

  constructor(where: string, pairs: ReadonlyMap<string, MetadataPair>, bytes: Buffer) {
    this.where = where;
    this.pairs = pairs;
    this.bytes = bytes;
  }

  has(key: string): boolean {
    return this.pairs.has(key);
  }

  /** Keys that begin with `prefix`. */
  keys(prefix: string): readonly string[] {
    return [...this.pairs.keys()].filter((key) => key.startsWith(prefix));
  }

  /** Keys that begin with `prefix` and that nobody asked for. */
  unasked(prefix: string): readonly string[] {
    return this.keys(prefix).filter((key) => !this.asked.has(key));
  }

  /** A number from `least` to `most`; undefined if there is no such key. Throws UserError. */
  number(key: string, least = -Infinity, most = Infinity): number | undefined {
    const value = this.ask(key);
    if (value === undefined || (typeof value === 'number' && value >= least && value <= most)) return value;
    const bounds = Number.isFinite(least) && Number.isFinite(most) ? ` from ${least} to ${most}` : '';
    return this.refuse(key, `a number${bounds}`, value);
  }

  /** A whole number from `least` to `most`; undefined if there is no such key. Throws UserError. */
  whole(key: string, least: number, most: number): number | undefined {
    const value = this.ask(key);
    if (value === undefined) return undefined;
    if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
    return this.refuse(key, `a whole number from ${least} to ${most}`, value);
  }

  flag(key: string): boolean | undefined {
    const value = this.ask(key);
    return value === undefined || typeof value === 'boolean' ? value : this.refuse(key, 'true or false', value);
  }

  text(key: string): string | undefined {
    const value = this.ask(key);
    return value === undefined || typeof value === 'string' ? value : this.refuse(key, 'a text', value);
  }

  isList(key: string): boolean {
    return isList(this.pairs.get(key)?.value);
  }

  /** The numbers of a list; undefined if there is no such key. Throws UserError. */
  numbers(key: string): readonly number[] | undefined {
    const value = this.ask(key);
    if (value === undefined) return undefined;
    const type = isList(value) ? numberType(value.code) : undefined;
    if (!isList(value) || type === undefined) return this.refuse(key, 'a list of numbers', value);
    const { start, count } = value;
    return Array.from({ length: count }, (_, i) => type.read(this.bytes, start + i * type.bytes));
  }

  /** Where the numbers of a list of f32 begin in the file; undefined if there is no such list. */
  placeOfSingles(key: string): { readonly start: number; readonly count: number } | undefined {
    const value = this.ask(key);
    return isList(value) && value.code === SINGLE ? value : undefined;
  }

  flags(key: string): readonly boolean[] | undefined {
    const value = this.ask(key);
    if (value === undefined) return undefined;
    if (!isList(value) || value.code !== FLAG) return this.refuse(key, 'a list of true and false', value);
    return Array.from({ length: value.count }, (_, i) => this.bytes[value.start + i] !== 0);
  }

  /**
   * The texts of a list of at most `texts`, each of at most `most` bytes; undefined if there is no such key. Throws
   * UserError.
   */
  texts(key: string, most: number, texts = Infinity): readonly string[] | undefined {
    const value = this.ask(key);
    if (value === undefined) return undefined;
    if (!isList(value) || value.code !== TEXT) return this.refuse(key, 'a list of texts', value);
    if (value.count > texts) return this.refuse(key, `at most ${texts} texts`, value);
    let at = value.start;
    return Array.from({ length: value.count }, (_, i) => {
      const length = Number(this.bytes.readBigUInt64LE(at));
      if (length > most)
        throw new UserError(`${this.where}: ${key}: element ${i} has ${length} bytes; the limit is ${most}`, REFETCH);
      const start = at + 8;
      at = start + length;
      return textOf(this.bytes.subarray(start, at), () => `${this.where}: ${key}: element ${i}`);
    });
  }

  /** SHA-256, hexadecimal, of the pairs whose keys begin with `prefix`. */
  digest(prefix: string): string {
    const hash = createHash('sha256');
    for (const [key, { from, to }] of this.pairs)
      if (key.startsWith(prefix)) hash.update(this.bytes.subarray(from, to));
    return hash.digest('hex');
  }

  private ask(key: string): MetadataValue | undefined {
    this.asked.add(key);
    return this.pairs.get(key)?.value;
  }

  private refuse(key: string, wanted: string, value: MetadataValue): never {
    throw new UserError(`${this.where}: ${key}: expected ${wanted}, got ${kindOf(value)}`, REFETCH);
  }
}

/** Decodes strict UTF-8. Few texts have the mark that stands for damaged bytes, and only those are decoded twice. */
function textOf(bytes: Buffer, place: () => string): string {
  const text = bytes.toString('utf8');
  return text.includes('\ufffd') ? decodeUtf8(bytes, place(), REFETCH) : text;
}

/** Reads `count` pairs of a key and a value. Throws UserError. */
export function readMetadata(cursor: Cursor, count: number): Metadata {
  if (count > MAX_PAIRS) cursor.fail(`${count} keys; the limit is ${MAX_PAIRS}`);
  const pairs = new Map<string, MetadataPair>();
  for (let i = 0; i < count; i++) {
    const place = `key ${i}`;
    const from = cursor.offset;
    const key = textOf(cursor.text(place, MAX_KEY_BYTES), () => `${cursor.where}: ${place}`);
    const shown = quote(key, 80);
    if (key === '') cursor.fail(`${place} is empty`);
    if (pairs.has(key)) cursor.fail(`the key ${shown} occurs twice`);
    const value = readValue(cursor, cursor.u32(`the type of ${shown}`), shown);
    pairs.set(key, { value, from, to: cursor.offset });
  }
  return new Metadata(cursor.where, pairs, cursor.passed());
}

function readValue(cursor: Cursor, code: number, key: string): MetadataValue {
  if (code === TEXT) {
    const bytes = cursor.text(key, MAX_TEXT_BYTES);
    return textOf(bytes, () => `${cursor.where}: ${key}`);
  }
  if (code === FLAG) return readFlag(cursor, key);
  if (code === LIST) return passList(cursor, key);
  const type = numberType(code) ?? cursor.fail(`${key} has a value of unknown type ${code}`);
  return type.read(cursor.take(type.bytes, key), 0);
}

function readFlag(cursor: Cursor, key: string): boolean {
  const [byte = 0] = cursor.take(1, key);
  if (byte > 1) cursor.fail(`${key}: expected 0 or 1 for false or true, got ${byte}`);
  return byte === 1;
}

/** Passes over a list. Its elements are numbers, flags or texts: lists of lists have no use here. */
function passList(cursor: Cursor, key: string): MetadataList {
  const code = cursor.u32(`the type of the elements of ${key}`);
  const count = cursor.size(`the number of elements of ${key}`, MAX_ELEMENTS);
  const start = cursor.offset;
  if (code === TEXT) {
    for (let i = 0; i < count; i++) cursor.text(`element ${i} of ${key}`, MAX_TEXT_BYTES);
    return { code, count, start };
  }
  const bytes = code === FLAG ? 1 : numberType(code)?.bytes;
  if (bytes === undefined)
    return cursor.fail(`${key} is a list of ${code === LIST ? 'lists' : `elements of unknown type ${code}`}`);
  cursor.take(count * bytes, key);
  return { code, count, start };
}
