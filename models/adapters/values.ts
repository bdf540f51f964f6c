/** Values of tensors that an adapter changes, some rows at a time: sums in float64, rounded by whoever stores them. */
import { UserError } from '../../errors.js';
import { decodeEncoded, PART_NAMES, type PerPart } from '../../ir/encoding.js';
import { type FileTile, FORMATS } from '../../ir/storage.js';
import { at } from '../../system/at.js';
import { readRange, withFile } from '../../system/read.js';
import type { TensorLocation } from '../model/tensors.js';
import type { TensorChange } from './change.js';

/** float64[count, columns] of a tensor, from row `first` on. */
export type Rows = (first: number, count: number) => Float64Array;

const columnsOf = (shape: readonly number[]): number => (shape.length === 1 ? 1 : at(shape, 1));

function fileRows(source: Extract<TensorLocation, { kind: 'file' }>): Rows {
  const { file, offset, shape, format, blocks } = source;
  const rowBytes = FORMATS[format].bytes(1, columnsOf(shape));
  const place = (row: number): number =>
    blocks === undefined ? row : Math.floor(row / blocks.rows) * blocks.stride + (row % blocks.rows);
  return (first, count) =>
    withFile(file, (fd) => {
      const bytes = Buffer.alloc(count * rowBytes);
      for (let row = 0; row < count;) {
        const run = blocks === undefined ? count : Math.min(count - row, blocks.rows - ((first + row) % blocks.rows));
        readRange(fd, offset + place(first + row) * rowBytes, run * rowBytes).copy(bytes, row * rowBytes);
        row += run;
      }
      return FORMATS[format].decode(bytes);
    });
}

function tileValues(
  tile: FileTile,
  format: 'f32' | 'f16' | 'bf16',
  put: (row: number, column: number, value: number) => void,
): void {
  const { rows, columns, isTransposed, stride, step = 1, file, offset } = tile;
  const [lines, length] = isTransposed ? [columns, rows] : [rows, columns];
  const { bytes, decode } = FORMATS[format];
  withFile(file, (fd) => {
    for (let line = 0; line < lines; line++) {
      const values = decode(readRange(fd, offset + bytes(1, line * stride), bytes(1, (length - 1) * step + 1)));
      for (let i = 0; i < length; i++)
        put(tile.row + (isTransposed ? i : line), tile.column + (isTransposed ? line : i), values[i * step]!);
    }
  });
}

function encodedValues({
  encoding,
  rows,
  shape,
  parts,
  view,
  columns,
}: Extract<TensorLocation, { kind: 'encoded' }>): Float64Array {
  const [own, k] = [at(shape, 0), at(shape, 1)];
  const read: PerPart<Uint8Array> = Object.fromEntries(
    PART_NAMES.flatMap((name) => {
      const part = parts[name];
      return part === undefined
        ? []
        : [[name, withFile(part.file, (fd) => readRange(fd, part.offset, part.byteLength))] as const];
    }),
  );
  const stored = columns?.of ?? k;
  const all = decodeEncoded(encoding, rows, stored, read);
  if (view === undefined && columns === undefined) return all;
  const values = new Float64Array(own * k);
  for (let row = 0; row < own; row++) {
    const whole = view === undefined ? row : view.first + Math.floor(row / view.rows) * view.stride + (row % view.rows);
    const from = whole * stored + (columns?.first ?? 0);
    values.set(all.subarray(from, from + k), row * k);
  }
  return values;
}

/** Rows of a tensor of a checkpoint. One that does not lie in rows of one file is read as a whole. */
export function rowsOf(source: TensorLocation): Rows {
  const columns = columnsOf(source.shape);
  if (source.kind === 'file') return fileRows(source);
  if (source.kind === 'random')
    throw new UserError(`${source.name}: made-up weights have no values here`, 'name a checkpoint with weights');
  let all: Float64Array | undefined;
  const values = (): Float64Array => {
    if (source.kind === 'encoded') return encodedValues(source);
    const whole = new Float64Array(at(source.shape, 0) * columns);
    if (source.kind === 'constant') return whole.fill(source.value);
    for (const tile of source.tiles)
      tileValues(tile, source.format, (row, column, value) => (whole[row * columns + column] = value));
    return whole;
  };
  return (first, count) => (all ??= values()).slice(first * columns, (first + count) * columns);
}

const PIECE_ELEMENTS = 1 << 20;
/** Rows of a tensor that are worked on at once. */
export const stepOf = (columns: number): number => Math.max(1, Math.floor(PIECE_ELEMENTS / columns));

/** The rows of a changed tensor. `base`: those of the tensor that it begins as. */
export function changedRows(change: TensorChange, base: Rows | undefined): Rows {
  const { shape, begins, product, added, magnitude, tokens } = change;
  const [rows, columns] = [at(shape, 0), columnsOf(shape)];
  const factors = product?.read();
  const vector = added?.read();
  const norms = magnitude?.read();
  const ids = new Map((tokens?.ids ?? []).map((id, i) => [id, i]));
  const own = tokens?.read();
  const sums: Rows = (first, count) => {
    const values = base === undefined ? new Float64Array(count * columns) : base(first, count);
    for (const begin of begins) {
      const [from, to] = [Math.max(first, begin.first), Math.min(first + count, begin.first + begin.count)];
      if (from < to) values.set(begin.read(from - begin.first, to - from), (from - first) * columns);
    }
    if (factors !== undefined && product !== undefined)
      addProduct(values, factors, first, count, columns, product.rank, product.scale);
    if (vector !== undefined) for (let i = 0; i < count; i++) values[i]! += added!.scale * vector[first + i]!;
    return values;
  };
  const columnNorms = magnitude?.of === 'columns' ? normsOfColumns(sums, rows, columns) : undefined;
  return (first, count) => {
    const values = sums(first, count);
    for (let row = 0; row < count; row++) {
      const line = values.subarray(row * columns, (row + 1) * columns);
      if (norms !== undefined && columnNorms !== undefined)
        for (let i = 0; i < columns; i++) line[i]! *= norms[i]! / columnNorms[i]!;
      else if (norms !== undefined) {
        const factor = norms[first + row]! / Math.sqrt(line.reduce((sum, value) => sum + value * value, 0));
        for (let i = 0; i < columns; i++) line[i]! *= factor;
      }
      const token = ids.get(first + row);
      if (token !== undefined && own !== undefined) line.set(own.subarray(token * columns, (token + 1) * columns));
    }
    return values;
  };
}

/** values += scale·B·A, of the rows from `first` on. */
function addProduct(
  values: Float64Array,
  { a, b }: { readonly a: Float32Array; readonly b: Float32Array },
  first: number,
  count: number,
  columns: number,
  rank: number,
  scale: number,
): void {
  const line = new Float64Array(columns);
  for (let row = 0; row < count; row++) {
    line.fill(0);
    for (let r = 0; r < rank; r++) {
      const factor = b[(first + row) * rank + r]!;
      const from = r * columns;
      for (let i = 0; i < columns; i++) line[i]! += factor * a[from + i]!;
    }
    const to = row * columns;
    for (let i = 0; i < columns; i++) values[to + i]! += scale * line[i]!;
  }
}

function normsOfColumns(sums: Rows, rows: number, columns: number): Float64Array {
  const squares = new Float64Array(columns);
  const step = stepOf(columns);
  for (let first = 0; first < rows; first += step) {
    const count = Math.min(step, rows - first);
    const values = sums(first, count);
    for (let row = 0; row < count; row++)
      for (let i = 0; i < columns; i++) squares[i]! += values[row * columns + i]! ** 2;
  }
  return squares.map(Math.sqrt);
}
