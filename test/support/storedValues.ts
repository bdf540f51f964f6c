/** Values of tensors where checkpoints say they are. */
import { readFileSync } from 'node:fs';
import { decodeEncoded } from '../../ir/encoding.js';
import { FORMATS } from '../../ir/storage.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import { encodedRow, fileRow } from '../../runtime/tensorSource.js';

/** The elements of a tensor in files, row by row. */
export function storedValues(place: TensorLocation): Float64Array {
  const { shape, format } = place;
  const [rows = 1] = shape;
  const elements = shape.reduce((product, extent) => product * extent, 1);
  const { bytes, decode } = FORMATS[format];
  const values = new Float64Array(elements);
  if (place.kind === 'file') {
    const file = readFileSync(place.file);
    const length = bytes(1, elements / rows);
    for (let row = 0; row < rows; row++) {
      const start = place.offset + fileRow(place, row) * length;
      values.set(decode(file.subarray(start, start + length)), (row * elements) / rows);
    }
    return values;
  }
  if (place.kind === 'encoded') {
    const { file, offset, byteLength } = place.parts.blocks!;
    const blocks = readFileSync(file).subarray(offset, offset + byteLength);
    const columns = elements / rows;
    const whole = decodeEncoded(place.encoding, place.rows, columns, { blocks });
    for (let row = 0; row < rows; row++) {
      const from = encodedRow(place, row) * columns;
      values.set(whole.subarray(from, from + columns), row * columns);
    }
    return values;
  }
  if (place.kind !== 'assembled') throw new Error(`${place.name} is in no file`);
  const columns = elements / rows;
  for (const { file, offset, row, rows: count, column, columns: width, isTransposed, stride } of place.tiles) {
    const source = readFileSync(file);
    for (let i = 0; i < count; i++)
      for (let j = 0; j < width; j++) {
        const at = offset + bytes(1, isTransposed ? j * stride + i : i * stride + j);
        values.set(decode(source.subarray(at, at + bytes(1, 1))), (row + i) * columns + column + j);
      }
  }
  return values;
}
