/**
 * Models that Meta publishes in several files, each with a part of every matrix: of the rows of those whose results the
 * devices keep apart, of the columns of those whose results they add up.
 */
import { UserError } from '../../errors.js';
import type { FileTile } from '../../ir/storage.js';
import { quote } from '../../system/json.js';
import { readRange, withFile } from '../../system/read.js';
import type { ShapeOf } from '../family/tensors.js';
import type { WeightEntry, WeightFile } from '../family/weightFile.js';
import type { StoredTensor } from '../family/storedTensors.js';

/** Bytes of a tensor that all parts have: norms. */
const MAX_SHARED_BYTES = 1 << 20;
const HINT = 'download all parts again from one revision';

interface PartEntry extends WeightEntry {
  readonly file: string;
}

/**
 * The tensors of a model whose parts are `files`, in their order. `shapeOf`: what the model needs. Tensors that it does
 * not read are those of the first part. Throws UserError, one line, where parts contradict each other.
 */
export function mergeParts(files: readonly WeightFile[], shapeOf: ShapeOf): ReadonlyMap<string, StoredTensor> {
  const [first, ...others] = files.map(({ file, entries }) => ({
    file,
    entries: new Map(entries.map((entry): [string, PartEntry] => [entry.name, { ...entry, file }])),
  }));
  if (first === undefined) return new Map();
  for (const { file, entries } of others)
    for (const name of entries.keys())
      if (!first.entries.has(name))
        throw new UserError(`${file}: has tensor ${quote(name, 120)}, which ${first.file} lacks`, HINT);
  const merged = new Map<string, StoredTensor>();
  for (const [name, entry] of first.entries) {
    const all = others.map(({ file, entries }) => {
      const other = entries.get(name);
      if (other === undefined) throw new UserError(`${file}: lacks tensor ${quote(name, 120)} of ${first.file}`, HINT);
      return other;
    });
    merged.set(name, merge([entry, ...all], shapeOf(name)));
  }
  return merged;
}

const describe = ({ dtype, shape }: WeightEntry): string => `${dtype} [${shape.slice(0, 8).join(', ')}]`;

function merge(parts: readonly [PartEntry, ...PartEntry[]], wanted: readonly number[] | undefined): StoredTensor {
  const [first] = parts;
  const { name, dtype, shape } = first;
  const where = `${first.file}: tensor ${quote(name, 120)}`;
  const other = parts.find((part) => describe(part) !== describe(first));
  if (other !== undefined)
    throw new UserError(`${where} is ${describe(first)}, and ${describe(other)} in ${other.file}`, HINT);
  if (wanted === undefined || parts.length === 1) return first;
  if (shape.join() === wanted.join()) return shared(parts, where);
  const [rows = 1, columns = 1] = shape;
  const isMatrix = shape.length === 2 && wanted.length === 2;
  const isByRows = isMatrix && rows * parts.length === wanted[0] && columns === wanted[1];
  const isByColumns = isMatrix && rows === wanted[0] && columns * parts.length === wanted[1];
  if (!isByRows && !isByColumns)
    throw new UserError(
      `${where} has shape [${shape.slice(0, 8).join(', ')}] in each of ${parts.length} parts, ` +
        `which do not make up [${wanted.join(', ')}]`,
      'if it is published in more parts, download the missing ones; else download params.json and all parts again',
    );
  const tiles = parts.map(({ file, offset }, i): FileTile => ({
    file,
    offset,
    row: isByRows ? i * rows : 0,
    rows,
    column: isByRows ? 0 : i * columns,
    columns,
    isTransposed: false,
    stride: columns,
  }));
  return { name, dtype, shape: wanted, tiles };
}

/** A tensor that all parts have whole. Throws UserError if they differ. */
function shared(parts: readonly [PartEntry, ...PartEntry[]], where: string): StoredTensor {
  const [first, ...others] = parts;
  if (first.byteLength > MAX_SHARED_BYTES)
    throw new UserError(`${where} is whole in each of ${parts.length} parts, which have a part each`, HINT);
  const bytesOf = ({ file, offset, byteLength }: PartEntry): Buffer =>
    withFile(file, (fd) => readRange(fd, offset, byteLength));
  const own = bytesOf(first);
  const other = others.find((part) => !bytesOf(part).equals(own));
  if (other !== undefined) throw new UserError(`${where} has other values in ${other.file}`, HINT);
  return first;
}
