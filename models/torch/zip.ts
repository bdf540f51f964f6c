/**
 * The directory of a zip archive whose entries are stored without compression, as torch.save writes it
 * (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, with the 64-bit records of 4.3.14 and 4.3.15). The file
 * is hostile until every rule has been checked.
 */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readRange } from '../../system/read.js';

export interface ZipEntry {
  /** Bytes from the start of the file to the entry's content. */
  readonly offset: number;
  readonly byteLength: number;
}

/** Bounds far above real files: one entry a tensor and a few more, with names of a few dozen bytes. */
const MAX_ENTRIES = 1 << 17;
const MAX_DIRECTORY_BYTES = 32 << 20;
const MAX_COMMENT = 0xffff;
const END = { signature: 0x06054b50, bytes: 22 } as const;
const END64 = { signature: 0x06064b50, bytes: 56 } as const;
const LOCATOR = { signature: 0x07064b50, bytes: 20 } as const;
const CENTRAL = { signature: 0x02014b50, bytes: 46 } as const;
const LOCAL = { signature: 0x04034b50, bytes: 30 } as const;
const ZIP64_EXTRA = 1;
const [IN_64_BITS, STORED, ENCRYPTED] = [0xffff_ffff, 0, 1];

const REFETCH = 'the file is damaged or was not written completely: download it again';

interface Directory {
  readonly count: number;
  readonly offset: number;
  readonly byteLength: number;
}

/** Reads fields of a zip file and refuses what is not one, with the file's name. */
class ZipFile {
  private readonly fd: number;
  private readonly sizeBytes: number;
  private readonly file: string;

  constructor(fd: number, sizeBytes: number, file: string) {
    this.fd = fd;
    this.sizeBytes = sizeBytes;
    this.file = file;
  }

  refuse(problem: string, hint = REFETCH): never {
    throw new UserError(`${this.file}: ${problem}`, hint);
  }

  /** Exactly these bytes of the file. */
  bytes(offset: number, length: number, what: string): Buffer {
    if (offset < 0 || length < 0 || offset + length > this.sizeBytes)
      this.refuse(`truncated: ${what} would end at byte ${offset + length}, the file has ${this.sizeBytes}`);
    const bytes = readRange(this.fd, offset, length);
    return bytes.length === length ? bytes : this.refuse('changed while it was read', 'run again once it is written');
  }

  /** A 64-bit field that counts bytes or entries. */
  count(bytes: Buffer, at: number, what: string): number {
    const value = at + 8 <= bytes.length ? bytes.readBigUInt64LE(at) : this.refuse(`${what} is cut off`);
    return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : this.refuse(`${what} is ${value}`);
  }

  /** Where the directory is, from the record at the file's end. */
  directory(): Directory {
    const length = Math.min(this.sizeBytes, END.bytes + MAX_COMMENT);
    const start = this.sizeBytes - length;
    const tail = this.bytes(start, length, 'the end');
    let at = tail.length - END.bytes;
    while (
      at >= 0 &&
      !(tail.readUInt32LE(at) === END.signature && at + END.bytes + tail.readUInt16LE(at + 20) === length)
    )
      at--;
    if (at < 0)
      this.refuse('no zip archive: it does not end with a directory (files of torch.save before 1.6 are none)');
    const found = {
      count: tail.readUInt16LE(at + 10),
      byteLength: tail.readUInt32LE(at + 12),
      offset: tail.readUInt32LE(at + 16),
    };
    const locator = start + at - LOCATOR.bytes;
    if (locator < 0) return found;
    const link = this.bytes(locator, LOCATOR.bytes, 'the locator of the directory');
    if (link.readUInt32LE(0) !== LOCATOR.signature) return found;
    const record = this.bytes(
      this.count(link, 8, 'the place of the directory'),
      END64.bytes,
      'the end of the directory',
    );
    if (record.readUInt32LE(0) !== END64.signature)
      this.refuse('the 64-bit end of the directory is not where it should be');
    return {
      count: this.count(record, 32, 'the number of entries'),
      byteLength: this.count(record, 40, 'the size of the directory'),
      offset: this.count(record, 48, 'the place of the directory'),
    };
  }

  /** Sizes and place of an entry; those that need 64 bits lie in its extra field, in this order. */
  sizes(record: Buffer, extra: Buffer, name: string): { packed: number; plain: number; header: number } {
    const short = [record.readUInt32LE(24), record.readUInt32LE(20), record.readUInt32LE(42)];
    let wide: Buffer = Buffer.alloc(0);
    for (let at = 0; at + 4 <= extra.length; at += 4 + extra.readUInt16LE(at + 2))
      if (extra.readUInt16LE(at) === ZIP64_EXTRA) wide = extra.subarray(at + 4, at + 4 + extra.readUInt16LE(at + 2));
    let at = 0;
    const [plain = 0, packed = 0, header = 0] = short.map((value) => {
      if (value !== IN_64_BITS) return value;
      at += 8;
      return this.count(wide, at - 8, `a size of entry ${quote(name, 120)}`);
    });
    return { packed, plain, header };
  }
}

/**
 * The entries of the zip archive `file`, open as `fd`, by name. Throws UserError, one line: for compressed or encrypted
 * entries, for a name that occurs twice, and for anything that would lie outside the file.
 */
export function readZipDirectory(fd: number, sizeBytes: number, file: string): ReadonlyMap<string, ZipEntry> {
  const zip = new ZipFile(fd, sizeBytes, file);
  const { count, offset, byteLength } = zip.directory();
  if (count > MAX_ENTRIES || byteLength > MAX_DIRECTORY_BYTES)
    zip.refuse(
      `its directory claims ${count} entries in ${byteLength} bytes, more than the limits of ${MAX_ENTRIES} and ` +
        `${MAX_DIRECTORY_BYTES}`,
    );
  const directory = zip.bytes(offset, byteLength, 'the directory');
  const entries = new Map<string, ZipEntry>();
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + CENTRAL.bytes > directory.length || directory.readUInt32LE(at) !== CENTRAL.signature)
      zip.refuse(`its directory ends after ${i} of ${count} entries`);
    const record = directory.subarray(at, at + CENTRAL.bytes);
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((field) => record.readUInt16LE(field));
    const next = at + CENTRAL.bytes + nameBytes! + extraBytes! + commentBytes!;
    if (next > directory.length) zip.refuse(`its directory ends after ${i} of ${count} entries`);
    const nameEnd = at + CENTRAL.bytes + nameBytes!;
    const name = directory.toString('latin1', at + CENTRAL.bytes, nameEnd);
    const shown = `entry ${quote(name, 120)}`;
    const { packed, plain, header } = zip.sizes(record, directory.subarray(nameEnd, nameEnd + extraBytes!), name);
    if (record.readUInt16LE(10) !== STORED || packed !== plain)
      zip.refuse(`${shown} is compressed`, 'save it with torch.save, which compresses nothing');
    if ((record.readUInt16LE(8) & ENCRYPTED) !== 0) zip.refuse(`${shown} is encrypted`);
    if (entries.has(name)) zip.refuse(`${shown} occurs twice`);
    const local = zip.bytes(header, LOCAL.bytes, shown);
    if (local.readUInt32LE(0) !== LOCAL.signature) zip.refuse(`${shown} is not where the directory says`);
    const content = header + LOCAL.bytes + local.readUInt16LE(26) + local.readUInt16LE(28);
    if (content + plain > sizeBytes)
      zip.refuse(`truncated: ${shown} would end at byte ${content + plain}, the file has ${sizeBytes}`);
    entries.set(name, { offset: content, byteLength: plain });
    at = next;
  }
  return entries;
}
