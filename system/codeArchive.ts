/**
 * What V8 compiled of this program, kept between runs in one file for each build, version of Node and set of V8's
 * flags: `code/` in the cache folder. Node runs what lies there without a look at it, so an archive that anybody else
 * could have written is not read, and bytes that are not those that were written are not taken.
 *
 *     TWCODE1\n, u32 bytes of the index, u32 its CRC-32, the index as JSON, the code of each chunk
 */
import { closeSync, constants, fstatSync, openSync, readSync, statSync, utimesSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { cachedDataVersionTag } from 'node:v8';
import { crc32 } from 'node:zlib';
import { intruder } from './intruder.js';

const MAGIC = 'TWCODE1\n';
const HEAD_BYTES = MAGIC.length + 8;
const MOST_BYTES = 64 << 20;
const MOST_INDEX_BYTES = 1 << 20;

/** Where the code of a chunk lies behind the index, and its CRC-32. */
type Place = readonly [offset: number, bytes: number, crc: number];

interface Index {
  /** Commands and processes whose code is here: what another one needs of the same chunks may be missing. */
  readonly uses: readonly string[];
  readonly chunks: Readonly<Record<string, Place>>;
}

/** The archive of a build for this version of Node, its processor and its flags. */
export function archivePath(cacheDir: string, build: string): string {
  const engine = crc32(`${process.version} ${process.arch} ${cachedDataVersionTag()}`);
  return join(resolve(cacheDir), 'code', `${build}${engine.toString(16).padStart(8, '0')}.code`);
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isPlace = (value: unknown, room: number): value is Place => {
  if (!Array.isArray(value) || value.length !== 3 || !value.every(isCount)) return false;
  const [offset = 0, bytes = 0] = value;
  return offset + bytes <= room;
};

/** The index, if it is one whose places lie within `room` bytes. */
function parseIndex(json: string, room: number): Index | undefined {
  const value: unknown = JSON.parse(json);
  if (typeof value !== 'object' || value === null || !('uses' in value) || !('chunks' in value)) return undefined;
  const { uses, chunks } = value;
  const isSound =
    Array.isArray(uses) &&
    uses.every((each) => typeof each === 'string') &&
    typeof chunks === 'object' &&
    chunks !== null &&
    Object.values(chunks).every((place) => isPlace(place, room));
  return isSound ? (value as Index) : undefined;
}

function readAt(fd: number, bytes: number, at: number): Buffer | undefined {
  const read = Buffer.allocUnsafe(bytes);
  return readSync(fd, read, 0, bytes, at) === bytes ? read : undefined;
}

/** An archive that is open for reading. */
export class CodeArchive {
  readonly uses: ReadonlySet<string>;
  readonly #chunks: ReadonlyMap<string, Place>;
  readonly #fd: number;
  readonly #begin: number;

  private constructor(fd: number, index: Index, begin: number) {
    this.#fd = fd;
    this.#begin = begin;
    this.uses = new Set(index.uses);
    this.#chunks = new Map(Object.entries(index.chunks));
  }

  /** The archive at `path`, in a folder of the cache; undefined where there is none that is sound and trusted. */
  static open(path: string): CodeArchive | undefined {
    let fd: number | undefined;
    try {
      fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
      const archive = CodeArchive.#read(fd, path);
      if (archive === undefined) closeSync(fd);
      return archive;
    } catch {
      if (fd !== undefined) closeSync(fd);
      return undefined;
    }
  }

  static #read(fd: number, path: string): CodeArchive | undefined {
    const status = fstatSync(fd);
    const folders = [join(path, '..'), join(path, '..', '..')].map((folder) => statSync(folder));
    const isTrusted = [status, ...folders].every((each) => intruder(each) === undefined);
    if (!isTrusted || !status.isFile() || status.size < HEAD_BYTES || status.size > MOST_BYTES) return undefined;
    const head = readAt(fd, HEAD_BYTES, 0);
    if (head === undefined || head.toString('latin1', 0, MAGIC.length) !== MAGIC) return undefined;
    const [bytes, crc] = [head.readUInt32LE(MAGIC.length), head.readUInt32LE(MAGIC.length + 4)];
    const begin = HEAD_BYTES + bytes;
    if (bytes > MOST_INDEX_BYTES || begin > status.size) return undefined;
    const json = readAt(fd, bytes, HEAD_BYTES);
    if (json === undefined || crc32(json) !== crc) return undefined;
    const index = parseIndex(json.toString(), status.size - begin);
    return index === undefined ? undefined : new CodeArchive(fd, index, begin);
  }

  get names(): Iterable<string> {
    return this.#chunks.keys();
  }

  /** What was kept of a chunk; undefined where nothing was, or it was damaged. */
  codeOf(name: string): Buffer | undefined {
    const place = this.#chunks.get(name);
    if (place === undefined) return undefined;
    const [offset, bytes, crc] = place;
    const code = readAt(this.#fd, bytes, this.#begin + offset);
    return code !== undefined && crc32(code) === crc ? code : undefined;
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** The bytes of an archive; undefined where there are more than one may have. */
export function packArchive(
  uses: Iterable<string>,
  chunks: ReadonlyMap<string, Uint8Array>,
): readonly Uint8Array[] | undefined {
  let offset = 0;
  const places: Record<string, Place> = {};
  for (const [name, code] of chunks) {
    places[name] = [offset, code.length, crc32(code)];
    offset += code.length;
  }
  const json = Buffer.from(JSON.stringify({ uses: [...uses], chunks: places } satisfies Index));
  if (json.length > MOST_INDEX_BYTES || HEAD_BYTES + json.length + offset > MOST_BYTES) return undefined;
  const head = Buffer.alloc(HEAD_BYTES);
  head.write(MAGIC, 'latin1');
  head.writeUInt32LE(json.length, MAGIC.length);
  head.writeUInt32LE(crc32(json), MAGIC.length + 4);
  return [head, json, ...chunks.values()];
}

/** Archives that were unused longest are removed first. A cache that cannot be written keeps its order. */
export function markArchive(path: string): void {
  const now = new Date();
  try {
    utimesSync(path, now, now);
  } catch {
    // It is somebody else's, or on a disk that is read-only.
  }
}
