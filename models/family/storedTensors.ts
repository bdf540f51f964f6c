/** The tensors that weight files hold, by name, and the places of those that a model reads. */
import {
  partShape,
  weightFormat,
  type AssembledTensor,
  type ExpectedTensor,
  type TensorLocation,
  type TensorPart,
} from './tensors.js';
import type { WeightEntry } from './weightFile.js';
import { UserError } from '../../errors.js';
import type { Encoding, FilePart, PerPart } from '../../ir/encoding.js';
import type { FileTile, FormatName } from '../../ir/storage.js';

/** A tensor in one file. */
export interface WholeTensor extends WeightEntry {
  readonly file: string;
}

/** A tensor of which several files have a part each. */
export interface SplitTensor extends Pick<WeightEntry, 'name' | 'dtype' | 'shape'> {
  readonly tiles: readonly FileTile[];
}

/** A matrix that is encoded, decoded as F32. */
export interface EncodedStored extends Pick<WeightEntry, 'name' | 'dtype' | 'shape'> {
  readonly encoding: Encoding;
  readonly places: PerPart<FilePart>;
  /** Scales for each part of the matrix, where `places.scales` is the list of all. */
  readonly hasScalePerPart: boolean;
}

export type StoredTensor = WholeTensor | SplitTensor | EncodedStored;

/** Where a stored tensor lies, or its parts. Its element type is one of weights. */
export function placesOf(stored: StoredTensor, parts: readonly TensorPart[] | undefined): readonly TensorLocation[] {
  const { name, dtype, shape } = stored;
  const format = weightFormat(dtype);
  if (format === undefined) throw new Error(`${name} passed checkTensors with elements of ${dtype}`);
  if ('encoding' in stored) return encodedPlaces(stored, parts);
  if ('tiles' in stored) {
    if (parts !== undefined) throw new Error(`${name} is in parts, which lie in several files`);
    return [{ kind: 'assembled', name, format, shape, tiles: stored.tiles }];
  }
  const { file, offset, byteLength } = stored;
  if (parts === undefined) return [{ kind: 'file', name, format, shape, file, offset, byteLength }];
  return parts.map((part) => placeOfPart(stored, part, format));
}

function encodedPlaces(
  { name, shape, encoding, places, hasScalePerPart }: EncodedStored,
  parts: readonly TensorPart[] | undefined,
): readonly TensorLocation[] {
  const [rows = 0] = shape;
  const whole = { kind: 'encoded', format: 'f32', encoding, rows, parts: places } as const;
  if (parts === undefined) return [{ ...whole, name, shape }];
  return parts.map((part, i): TensorLocation => {
    if ('columns' in part) throw new Error(`${name} is encoded, and has parts whose rows are columns`);
    const { first, rows: own, stride } = part;
    return {
      ...whole,
      name: part.name,
      shape: partShape(part, shape),
      view: { first, rows: own, stride },
      ...(hasScalePerPart ? { parts: { ...places, scales: scaleOfPart(places.scales!, i, parts.length) } } : {}),
    };
  });
}

function scaleOfPart(scales: FilePart, i: number, count: number): FilePart {
  const own = scales.byteLength / count;
  return { ...scales, offset: scales.offset + i * own, byteLength: own };
}

function placeOfPart(whole: WholeTensor, part: TensorPart, format: FormatName): TensorLocation {
  const { file, offset, byteLength } = whole;
  const columns = whole.shape.length === 1 ? 1 : whole.shape.at(-1)!;
  const rowBytes = byteLength / (whole.shape.reduce((product, extent) => product * extent, 1) / columns);
  const { name } = part;
  const shape = partShape(part, whole.shape);
  const start = offset + part.first * rowBytes;
  if ('columns' in part) {
    const tile = { row: 0, rows: part.rows, column: 0, columns: part.columns, isTransposed: true, stride: columns };
    const tiles = [{ ...tile, file, offset: start + (part.from * rowBytes) / columns }];
    return { kind: 'assembled', name, format, shape, tiles };
  }
  const { rows, stride, count } = part;
  return {
    kind: 'file',
    name,
    format,
    shape,
    file,
    offset: start,
    byteLength: rows * count * rowBytes,
    ...(count === 1 ? {} : { blocks: { rows, stride } }),
  };
}

/** Vectors whose elements lie in several tensors. Throws UserError where these have different element types. */
export function joinedVectors(
  expected: readonly ExpectedTensor[],
  found: ReadonlyMap<string, StoredTensor>,
): readonly AssembledTensor[] {
  const joined = new Map<string, AssembledTensor>();
  for (const { name: stored, partOf, shape } of expected) {
    const entry = found.get(stored);
    const format = weightFormat(entry?.dtype ?? '');
    if (partOf === undefined || entry === undefined || format === undefined || !('file' in entry)) continue;
    const { name, first, rows } = partOf;
    const known = joined.get(name) ?? { kind: 'assembled', name, format, shape: [rows], tiles: [] };
    if (known.format !== format)
      throw new UserError(
        `${entry.file}: tensor ${stored} has elements of ${format}, others of its layer of ${known.format}`,
        'download the checkpoint again from one revision',
      );
    const place = { row: first, rows: shape[0]!, column: 0, columns: 1, isTransposed: false, stride: 1 };
    const tile: FileTile = { file: entry.file, offset: entry.offset, ...place };
    joined.set(name, { ...known, tiles: [...known.tiles, tile] });
  }
  return [...joined.values()];
}
