/**
 * Weight files of torch.save since 1.6 (pytorch_model.bin, .pth): a zip archive with a pickle that describes the
 * tensors, and their bytes in entries of their own (https://pytorch.org/docs/stable/notes/serialization.html).
 */
import { createHash } from 'node:crypto';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readRange, withFile } from '../../system/read.js';
import type { WeightEntry, WeightFile } from '../family/weightFile.js';
import { unpickle, type PickleValue, type StoredTensor } from './pickle.js';
import { readZipDirectory, type ZipEntry } from './zip.js';

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
function isContiguous({ shape, strides }: StoredTensor): boolean {
  let wanted = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] !== 1 && strides[i] !== wanted) return false;
    wanted *= shape[i]!;
  }
  return shape.length === strides.length;
}

/** Where the tensor's bytes lie. Throws UserError if a part of them would not be its own storage. */
function place(tensor: StoredTensor, data: ReadonlyMap<string, ZipEntry>, where: string): Omit<WeightEntry, 'name'> {
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
