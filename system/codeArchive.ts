/**
 * What V8 compiled of this program, kept between runs in one file for each build, version of Node and set of V8's
 * flags: `code/` in the cache folder. Node runs what lies there without a look at it, so an archive that anybody else
 * could have written is not read, and bytes that are not those that were written are not taken.
 *
 *     TWCODE1\n, u32 bytes of the index, its SHA-256, the index as JSON, the code of each chunk
 */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync, statSync, utimesSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { intruder } from './read.js';

const MAGIC = 'TWCODE1\n';
const DIGEST_BYTES = 32;
const HEAD_BYTES = MAGIC.length + 4 + DIGEST_BYTES;
const MAX_BYTES = 64 << 20;
const MAX_INDEX_BYTES = 1 << 20;

/** Where the code of a chunk lies behind the index, and its SHA-256, hexadecimal. */
type CodePlace = readonly [offset: number, bytes: number, digest: string];

const sha256 = (content: string | Uint8Array): Buffer => createHash('sha256').update(content).digest();

interface Index {
  /** Commands and processes whose code is here: what another one needs of the same chunks may be missing. */
  readonly uses: readonly string[];
  readonly chunks: Readonly<Record<string, CodePlace>>;
}

/** The archive of a build for this version of Node, its processor and its flags, those of NODE_OPTIONS included. */
export function archivePath(cacheDir: string, build: string, nodeOptions = ''): string {
  const engine = sha256(JSON.stringify([process.version, process.arch, process.execArgv, nodeOptions]));
  return join(resolve(cacheDir), 'code', `${build}${engine.toString('hex', 0, 4)}.code`);
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isPlace = (value: unknown, room: number): value is CodePlace => {
  if (!Array.isArray(value) || value.length !== 3) return false;
  const [offset, bytes, digest] = value as readonly unknown[];
  return isCount(offset) && isCount(bytes) && offset + bytes <= room && typeof digest === 'string';
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
  readonly #chunks: ReadonlyMap<string, CodePlace>;
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
    if (!isTrusted || !status.isFile() || status.size < HEAD_BYTES || status.size > MAX_BYTES) return undefined;
    const head = readAt(fd, HEAD_BYTES, 0);
    if (head === undefined || head.toString('latin1', 0, MAGIC.length) !== MAGIC) return undefined;
    const bytes = head.readUInt32LE(MAGIC.length);
    const begin = HEAD_BYTES + bytes;
    if (bytes > MAX_INDEX_BYTES || begin > status.size) return undefined;
    const json = readAt(fd, bytes, HEAD_BYTES);
    if (json === undefined || !sha256(json).equals(head.subarray(MAGIC.length + 4))) return undefined;
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
    const [offset, bytes, digest] = place;
    const code = readAt(this.#fd, bytes, this.#begin + offset);
    return code !== undefined && sha256(code).toString('hex') === digest ? code : undefined;
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
  const places = new Map<string, CodePlace>();
  for (const [name, code] of chunks) {
    places.set(name, [offset, code.length, sha256(code).toString('hex')]);
    offset += code.length;
  }
  const json = Buffer.from(JSON.stringify({ uses: [...uses], chunks: Object.fromEntries(places) } satisfies Index));
  if (json.length > MAX_INDEX_BYTES || HEAD_BYTES + json.length + offset > MAX_BYTES) return undefined;
  const head = Buffer.alloc(HEAD_BYTES);
  head.write(MAGIC, 'latin1');
  head.writeUInt32LE(json.length, MAGIC.length);
  sha256(json).copy(head, MAGIC.length + 4);
  return [head, json, ...chunks.values()];
}

/** Archives that were unused longest are removed first. A cache that cannot be written keeps its order. */
export function markArchive(path: string): void {
  const now = new Date();
  try {
    utimesSync(path, now, now);
  } catch {
    // It belongs to another user, or the disk is read-only.
  }
}
