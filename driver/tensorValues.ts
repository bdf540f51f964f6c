/** Values of a checkpoint's tensors as float64, for the interpreters. Runtimes read them by code of their own. */
import { UserError } from '../errors.js';
import { decodeEncoded, EncodingError, PART_NAMES, type PerPart } from '../ir/encoding.js';
import type { RawTensor } from '../ir/kernelInterpreter.js';
import { FORMATS } from '../ir/storage.js';
import type { TensorLocation } from '../models/model/tensors.js';
import { DAMAGED_ENCODING } from '../runtime/files.js';
import { encodedColumns, encodedRow, fileRow, linesOf, type TensorSource, tileSpan } from '../runtime/tensorSource.js';
import { quote } from '../system/json.js';
import { readRange, withFile } from '../system/read.js';

type SourceOfKind<K> = Extract<TensorSource, { readonly kind: K }>;

const elementsOf = (shape: readonly number[]): number => shape.reduce((product, extent) => product * extent, 1);

function fileValues(source: SourceOfKind<'file'>): Float64Array {
  const { shape, format, offset, file } = source;
  const [rows = 1] = shape;
  const columns = elementsOf(shape) / rows;
  const { bytes, decode } = FORMATS[format];
  const rowBytes = bytes(1, columns);
  const values = new Float64Array(rows * columns);
  return withFile(file, (fd) => {
    for (let row = 0; row < rows; row++)
      values.set(decode(readRange(fd, offset + fileRow(source, row) * rowBytes, rowBytes)), row * columns);
    return values;
  });
}

function assembledValues({ shape, format, tiles }: SourceOfKind<'assembled'>): Float64Array {
  const [rows = 1] = shape;
  const columns = elementsOf(shape) / rows;
  const { bytes, decode } = FORMATS[format];
  const values = new Float64Array(rows * columns);
  for (const tile of tiles) {
    const stored = withFile(tile.file, (fd) => decode(readRange(fd, tile.offset, bytes(1, tileSpan(tile)))));
    const { lines, length } = linesOf(tile);
    for (let line = 0; line < lines; line++)
      for (let i = 0; i < length; i++) {
        const [row, column] = tile.isTransposed ? [i, line] : [line, i];
        values[(tile.row + row) * columns + tile.column + column] = stored[line * tile.stride + i * (tile.step ?? 1)]!;
      }
  }
  return values;
}

/** What `decode` makes of an encoded tensor; what it finds wrong as UserError. */
function decoded({ parts }: SourceOfKind<'encoded'>, decode: () => Float64Array): Float64Array {
  try {
    return decode();
  } catch (error) {
    if (!(error instanceof EncodingError)) throw error;
    const part = parts[error.part];
    const place = part === undefined ? '' : `${part.file}: tensor ${quote(part.tensor ?? '', 120)}: `;
    throw new UserError(place + error.message, DAMAGED_ENCODING, { cause: error });
  }
}

function encodedValues(source: SourceOfKind<'encoded'>): Float64Array {
  const { encoding, rows, shape, columns, parts } = source;
  const [own = 0, k = 0] = shape;
  const stored = encodedColumns(source);
  const read: PerPart<Uint8Array> = Object.fromEntries(
    PART_NAMES.flatMap((name) => {
      const part = parts[name];
      return part === undefined
        ? []
        : [[name, withFile(part.file, (fd) => readRange(fd, part.offset, part.byteLength))] as const];
    }),
  );
  const all = decoded(source, () => decodeEncoded(encoding, rows, stored, read));
  const values = new Float64Array(own * k);
  for (let row = 0; row < own; row++) {
    const from = encodedRow(source, row) * stored + (columns?.first ?? 0);
    values.set(all.subarray(from, from + k), row * k);
  }
  return values;
}

function valuesOf(source: TensorLocation): Float64Array {
  switch (source.kind) {
    case 'file':
      return fileValues(source);
    case 'assembled':
      return assembledValues(source);
    case 'encoded':
      return encodedValues(source);
    case 'constant':
      return new Float64Array(elementsOf(source.shape)).fill(source.value);
    case 'random':
      throw new UserError('made-up weights have no values here', 'Name a checkpoint with weights');
    default:
      return source satisfies never;
  }
}

/** A tensor as an interpreter reads it, where a weight needs it as [rows, k]. Throws UserError. */
export function tensorValues(tensors: ReadonlyMap<string, TensorLocation>, name: string, k: number): RawTensor {
  const source = tensors.get(name);
  if (source === undefined) throw new UserError(`the checkpoint has no tensor ${name}`, 'Download it again');
  const data = valuesOf(source);
  return { rows: data.length / k, columns: k, data };
}
