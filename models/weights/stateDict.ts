/** Checkpoints of torch.save: a zip archive of tensors, and the dictionary that names them. */
import { at as elementAt } from '../../system/at.js';
import { createHash } from 'node:crypto';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readRange, withFile } from '../../system/read.js';
import type { WeightEntry, WeightFile } from '../model/tensors.js';
import { type PickleValue, type PickledTensor, unpickle } from './pickle.js';

// The directory of a zip archive whose entries are stored without compression, as torch.save writes it
// (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, with the 64-bit records of 4.3.14 and 4.3.15). The file
// is hostile until every rule has been checked.

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

const DOWNLOAD_AGAIN = 'the file is damaged or was not written completely: download it again';

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

  refuse(problem: string, hint = DOWNLOAD_AGAIN): never {
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

// Weight files of torch.save since 1.6 (pytorch_model.bin, .pth): a zip archive with a pickle that describes the
// tensors, and their bytes in entries of their own (https://pytorch.org/docs/stable/notes/serialization.html).

/** Bounds on one file, far above real ones. */
const MAX_PICKLE_BYTES = 64 << 20;
const MAX_TENSORS = 1 << 15;

interface Element {
  readonly dtype: string;
  readonly bytes: number;
}
/** Storages of torch, with their names in safetensors. */
const ELEMENTS: Readonly<Record<string, Element>> = {
  HalfStorage: { dtype: 'F16', bytes: 2 },
  BFloat16Storage: { dtype: 'BF16', bytes: 2 },
  FloatStorage: { dtype: 'F32', bytes: 4 },
  DoubleStorage: { dtype: 'F64', bytes: 8 },
  LongStorage: { dtype: 'I64', bytes: 8 },
  IntStorage: { dtype: 'I32', bytes: 4 },
  ShortStorage: { dtype: 'I16', bytes: 2 },
  CharStorage: { dtype: 'I8', bytes: 1 },
  ByteStorage: { dtype: 'U8', bytes: 1 },
  BoolStorage: { dtype: 'BOOL', bytes: 1 },
};

const REFETCH = 'the file is damaged or hostile: get it from its publisher again, or use the safetensors copy';

/** True if rows follow each other without gaps; the stride of a dimension of one element says nothing. */
function isContiguous({ shape, strides }: PickledTensor): boolean {
  let wanted = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] !== 1 && strides[i] !== wanted) return false;
    wanted *= elementAt(shape, i);
  }
  return shape.length === strides.length;
}

/** Where the tensor's bytes lie. Throws UserError if a part of them would not be its own storage. */
function place(tensor: PickledTensor, data: ReadonlyMap<string, ZipEntry>, where: string): Omit<WeightEntry, 'name'> {
  const { storage, offset, shape } = tensor;
  const element = Object.hasOwn(ELEMENTS, storage.type) ? ELEMENTS[storage.type] : undefined;
  if (element === undefined) throw new UserError(`${where}: ${storage.type} is not supported`, REFETCH);
  const { dtype, bytes } = element;
  const entry = data.get(storage.key);
  if (entry === undefined)
    throw new UserError(`${where}: its storage ${quote(storage.key)} is not in the archive`, REFETCH);
  if (storage.count * bytes !== entry.byteLength)
    throw new UserError(
      `${where}: its storage has ${entry.byteLength} bytes, and ${storage.count} elements of ${dtype} take ` +
        `${storage.count * bytes}`,
      REFETCH,
    );
  const count = shape.reduce((product, extent) => product * extent, 1);
  if (!Number.isSafeInteger(count) || offset + count > storage.count)
    throw new UserError(`${where}: ${quote(shape)} from element ${offset} on is more than its storage holds`, REFETCH);
  if (count > 0 && !isContiguous(tensor))
    throw new UserError(
      `${where}: its rows do not lie one after another (strides ${quote(tensor.strides)} for ${quote(shape)})`,
      'save it again: {name: tensor.contiguous() for each tensor of the state_dict}',
    );
  return { dtype, shape, offset: entry.offset + offset * bytes, byteLength: count * bytes };
}

/** The pickle and the storages of the one folder in the archive. */
function contents(entries: ReadonlyMap<string, ZipEntry>, file: string): { root: string; pickle: ZipEntry } {
  const pickles = [...entries].filter(([name]) => /^[^/]{1,200}\/data\.pkl$/.test(name));
  const [first] = pickles;
  if (first === undefined || pickles.length > 1)
    throw new UserError(
      `${file}: expected one data.pkl in a folder of the archive, found ${pickles.length}`,
      'give a file that torch.save wrote; an exported (TorchScript) model is not supported',
    );
  const [name, pickle] = first;
  const root = name.slice(0, -'data.pkl'.length);
  if (entries.has(`${root}constants.pkl`))
    throw new UserError(`${file}: this is an exported (TorchScript) model`, 'use the checkpoint of its weights');
  if (pickle.byteLength > MAX_PICKLE_BYTES)
    throw new UserError(
      `${file}: its pickle has ${pickle.byteLength} bytes, more than the limit of ${MAX_PICKLE_BYTES}`,
      REFETCH,
    );
  return { root, pickle };
}

function checkByteOrder(fd: number, entry: ZipEntry | undefined, file: string): void {
  if (entry === undefined) return;
  const order = readRange(fd, entry.offset, Math.min(entry.byteLength, 16)).toString('latin1');
  if (order !== 'little')
    throw new UserError(`${file}: its numbers are stored in ${quote(order)} byte order`, 'use the safetensors copy');
}

/**
 * Reads which tensors a file of torch.save holds; their bytes are not touched, and nothing that the pickle names is
 * run. Tensors that share a storage, as tied weights do, share their bytes here. Throws UserError, one line.
 */
export function readTorchFile(file: string): WeightFile {
  return withFile(file, (fd, sizeBytes) => {
    const archive = readZipDirectory(fd, sizeBytes, file);
    const { root, pickle } = contents(archive, file);
    checkByteOrder(fd, archive.get(`${root}byteorder`), file);
    const bytes = readRange(fd, pickle.offset, pickle.byteLength);
    const value: PickleValue = unpickle(bytes, `${file}: ${root}data.pkl`);
    if (typeof value !== 'object' || value === null || value.kind !== 'dict')
      throw new UserError(`${file}: expected a dictionary of tensors`, 'save the state_dict: {name: tensor}');
    const data = new Map(
      [...archive].flatMap(([name, entry]) =>
        name.startsWith(`${root}data/`) ? [[name.slice(`${root}data/`.length), entry] as const] : [],
      ),
    );
    const entries: WeightEntry[] = [];
    for (const [name, tensor] of value.entries) {
      if (typeof name !== 'string' || typeof tensor !== 'object' || tensor?.kind !== 'tensor') continue;
      if (entries.length === MAX_TENSORS)
        throw new UserError(`${file}: holds more than ${MAX_TENSORS} tensors`, REFETCH);
      entries.push({ name, ...place(tensor, data, `${file}: tensor ${quote(name, 120)}`) });
    }
    if (entries.length === 0)
      throw new UserError(`${file}: no tensor at the top of its dictionary`, 'save the state_dict: {name: tensor}');
    const headerHash = createHash('sha256').update(bytes).digest('hex');
    return { file, sizeBytes, entries, headerHash };
  });
}
