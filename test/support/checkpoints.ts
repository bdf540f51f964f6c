/** Copies of checkpoints whose experts lie in one tensor for each layer and kind, as transformers 5 has them. */
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeEncoded, type PerPart } from '../../ir/encoding.js';
import { FORMATS } from '../../ir/storage.js';
import type { TensorLocation, WeightEntry } from '../../models/model/tensors.js';
import { readSafetensorsHeader } from '../../models/weights/safetensors.js';
import { encodedRow, fileRow } from '../../runtime/tensorSource.js';

/** Rows and columns exchanged, of elements of `size` bytes. */
function turned(bytes: Buffer, rows: number, columns: number, size: number): Buffer {
  const out = Buffer.alloc(bytes.length);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++)
      bytes.copy(
        out,
        (column * rows + row) * size,
        (row * columns + column) * size,
        (row * columns + column + 1) * size,
      );
  return out;
}

const EXPERT = /^(.*\.experts)\.(\d+)\.(\w+)\.weight$/;
const KINDS: Readonly<Record<string, 'gate' | 'up' | 'down'>> = {
  gate_proj: 'gate',
  up_proj: 'up',
  down_proj: 'down',
  w1: 'gate',
  w3: 'up',
  w2: 'down',
};

export interface FusedOptions {
  /** True if the last dimensions are exchanged. */
  readonly isTurned: boolean;
  /** The name of a tensor in the copy. Default: as it is. */
  readonly rename?: (name: string) => string;
}

/** Writes the checkpoint `source` into the empty folder `dir`. */
export function fuseExperts(source: string, dir: string, { isTurned, rename = (name) => name }: FusedOptions): void {
  const file = join(source, 'model.safetensors');
  const stored = readFileSync(file);
  const bytesOf = ({ offset, byteLength }: WeightEntry): Buffer => stored.subarray(offset, offset + byteLength);
  const written = new Map<string, { dtype: string; shape: readonly number[]; bytes: Buffer }>();
  const experts = new Map<string, Map<number, Map<string, WeightEntry>>>();
  for (const entry of readSafetensorsHeader(file).entries) {
    const [, module, at, name = ''] = EXPERT.exec(entry.name) ?? [];
    const kind = KINDS[name];
    if (module === undefined || kind === undefined) {
      written.set(rename(entry.name), { dtype: entry.dtype, shape: entry.shape, bytes: bytesOf(entry) });
      continue;
    }
    const all = experts.get(module) ?? new Map<number, Map<string, WeightEntry>>();
    experts.set(module, all);
    const own = all.get(Number(at)) ?? new Map<string, WeightEntry>();
    all.set(Number(at), own.set(kind, entry));
  }
  for (const [module, all] of experts) {
    const each = [...all.keys()].sort((a, b) => a - b).map((at) => all.get(at)!);
    const { shape, dtype, byteLength } = each[0]!.get('gate')!;
    const [width, hidden] = shape as [number, number];
    const size = byteLength / (width * hidden);
    const put = (name: string, rows: number, columns: number, kinds: readonly string[]): void => {
      const matrices = each.map((own) => {
        const matrix = Buffer.concat(kinds.map((kind) => bytesOf(own.get(kind)!)));
        return isTurned ? turned(matrix, rows, columns, size) : matrix;
      });
      written.set(rename(`${module}.${name}`), {
        dtype,
        shape: [each.length, ...(isTurned ? [columns, rows] : [rows, columns])],
        bytes: Buffer.concat(matrices),
      });
    };
    put('gate_up_proj', 2 * width, hidden, ['gate', 'up']);
    put('down_proj', hidden, width, ['down']);
  }
  let end = 0;
  const header = Object.fromEntries(
    [...written].map(([name, { dtype, shape, bytes }]) => {
      const begin = end;
      end += bytes.length;
      return [name, { dtype, shape, data_offsets: [begin, end] }];
    }),
  );
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const bodies = [...written.values()].map(({ bytes }) => bytes);
  writeFileSync(join(dir, 'model.safetensors'), Buffer.concat([length, json, ...bodies]));
  for (const name of ['config.json', 'tokenizer.json']) copyFileSync(join(source, name), join(dir, name));
}

// Values of tensors where checkpoints say they are.

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
    const parts = Object.entries(place.parts).map(([name, { file, offset, byteLength }]) => [
      name,
      readFileSync(file).subarray(offset, offset + byteLength),
    ]);
    const columns = elements / rows;
    const whole = decodeEncoded(place.encoding, place.rows, columns, Object.fromEntries(parts) as PerPart<Uint8Array>);
    for (let row = 0; row < rows; row++) {
      const from = encodedRow(place, row) * columns;
      values.set(whole.subarray(from, from + columns), row * columns);
    }
    return values;
  }
  if (place.kind !== 'assembled') throw new Error(`${place.name} is in no file`);
  const columns = elements / rows;
  for (const tile of place.tiles) {
    const { file, offset, row, rows: count, column, columns: width, isTransposed, stride, step = 1 } = tile;
    const source = readFileSync(file);
    for (let i = 0; i < count; i++)
      for (let j = 0; j < width; j++) {
        const at = offset + bytes(1, isTransposed ? j * stride + i * step : i * stride + j * step);
        values.set(decode(source.subarray(at, at + bytes(1, 1))), (row + i) * columns + column + j);
      }
  }
  return values;
}
