/** The tensors of a checkpoint: which ones it must have, and where each is stored. */
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { readRange, withFile } from '../../system/read.js';
import { type Encoding, type FilePart, type PerPart, transposed } from '../../ir/encoding.js';
import type { GroupSize } from '../../ir/groups.js';
import type { FileTile, FormatName } from '../../ir/storage.js';

interface NamedTensor {
  readonly name: string;
  readonly format: FormatName;
  /** Linear weights are [out, in]. */
  readonly shape: readonly number[];
}

/** Bytes of a file. The offset is aligned to the element size only if the file's writer did so. */
export interface FileTensor extends NamedTensor {
  readonly kind: 'file';
  /** Absolute path. */
  readonly file: string;
  /** Bytes from the start of the file. */
  readonly offset: number;
  readonly byteLength: number;
  /**
   * Where the rows do not lie one after another: blocks of `rows` rows, whose beginnings are `stride` rows apart.
   * byteLength counts the rows of the blocks only.
   */
  readonly blocks?: { readonly rows: number; readonly stride: number };
}

/** A tensor in rectangles, which cover it and do not overlap. */
export interface AssembledTensor extends NamedTensor {
  readonly kind: 'assembled';
  readonly tiles: readonly FileTile[];
}

/** Rows of a matrix whose elements are encoded. They are decoded as f32. */
export interface EncodedTensor extends NamedTensor {
  readonly kind: 'encoded';
  readonly format: 'f32';
  readonly encoding: Encoding;
  /** Rows of the encoded matrix. */
  readonly rows: number;
  /** Where the tensor is not all of it: blocks of `rows` rows from `first` on, whose beginnings are `stride` apart. */
  readonly view?: { readonly first: number; readonly rows: number; readonly stride: number };
  /** Where it has not all columns: those from `first` on, of so many. */
  readonly columns?: { readonly first: number; readonly of: number };
  readonly parts: PerPart<FilePart>;
}

/** Made-up values: mean 0, standard deviation `scale`, a pure function of `seed` and the element's index. */
export interface RandomTensor extends NamedTensor {
  readonly kind: 'random';
  /** 64 bits, unsigned. */
  readonly seed: bigint;
  readonly scale: number;
  /** Of a matrix that the configuration says is stored in 4 bits: columns that share a scale. */
  readonly group?: GroupSize;
  /** The configuration says that matrices of experts are stored in MXFP4, and this may be one. */
  readonly isMicroscaled?: true;
}

/** Every element is `value`. */
export interface ConstantTensor extends NamedTensor {
  readonly kind: 'constant';
  readonly value: number;
}

export type TensorLocation = FileTensor | AssembledTensor | EncodedTensor | RandomTensor | ConstantTensor;

/** Rows of a tensor: `count` blocks of `rows` rows, from row `first` on, whose beginnings are `stride` rows apart. */
export interface RowsPart {
  readonly name: string;
  readonly first: number;
  readonly rows: number;
  readonly stride: number;
  readonly count: number;
}

/**
 * A matrix whose columns are rows of a tensor, from `first` on: `rows` elements of each, from element `from` on, `step`
 * apart (by default neighbours).
 */
export interface TurnedPart {
  readonly name: string;
  readonly first: number;
  readonly columns: number;
  readonly from: number;
  readonly rows: number;
  readonly step?: number;
}

/** Columns of a matrix: `width` of each row, from column `column` on, `step` apart (by default neighbours). */
export interface ColumnsPart {
  readonly name: string;
  readonly column: number;
  readonly width: number;
  readonly step?: number;
}

/** A vector: element `element` of each of `rows` rows of its last dimension, from row `first` on. */
export interface ElementsPart {
  readonly name: string;
  readonly element: number;
  readonly first: number;
  readonly rows: number;
}

/** A part of a tensor. One of more than two dimensions is a matrix of all rows of its last dimension. */
export type TensorPart = RowsPart | TurnedPart | ColumnsPart | ElementsPart;

export const isTurnedPart = (part: TensorPart): part is TurnedPart => 'columns' in part;

/** The shape of a part of a tensor of this shape. */
export const partShape = (part: TensorPart, shape: readonly number[]): readonly number[] =>
  'element' in part
    ? [part.rows]
    : 'width' in part
      ? [at(shape, 0), part.width]
      : 'columns' in part
        ? [part.rows, part.columns]
        : [part.rows * part.count, ...(shape.length === 1 ? [] : [shape.at(-1)!])];

/** The shape of a stored tensor; undefined if there is none of this name. */
export type ShapeOf = (tensor: string) => readonly number[] | undefined;

export interface ExpectedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly role: 'matrix' | 'norm' | 'bias';
  /** The value of a norm weight that changes nothing. Default: 1. */
  readonly neutral?: number;
  /** What the graph reads of it under names of its own, where several matrices lie in one tensor. Default: all. */
  readonly parts?: readonly TensorPart[];
  /**
   * The vector that the graph reads, of which all numbers of this one are the elements from `first` on. Default: the
   * tensor itself.
   */
  readonly partOf?: { readonly name: string; readonly first: number; readonly rows: number };
  /** A hint for checkpoints without this tensor, for the message. */
  readonly missingHint?: string;
}

/** Keyed by the names of safetensors. */
export const FORMATS_OF: Readonly<Record<string, FormatName>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };

/** The storage format of a safetensors dtype; undefined if it is not supported for weights. */
export const weightFormat = (dtype: string): FormatName | undefined =>
  Object.hasOwn(FORMATS_OF, dtype) ? FORMATS_OF[dtype] : undefined;

// The tensors that weight files hold, by name, and the places of those that a model reads.

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

/** Whether column c is in group c / width, as a list that comes with nearly every file says. */
export function areGroupsInOrder({ groups: place }: PerPart<FilePart>, columns: number, width: number): boolean {
  if (place === undefined || place.byteLength !== 4 * columns) return false;
  const bytes = withFile(place.file, (fd) => readRange(fd, place.offset, place.byteLength));
  for (let column = 0; column < columns; column++)
    if (bytes.readInt32LE(4 * column) !== Math.floor(column / width)) return false;
  return true;
}

/** A matrix without its list of groups, where that says nothing. */
function withoutOrder(
  encoding: Encoding,
  parts: PerPart<FilePart>,
  k: number,
): Pick<EncodedTensor, 'encoding' | 'parts'> {
  const isPlain =
    encoding.kind === 'codes' && encoding.hasGroups && areGroupsInOrder(parts, k, encoding.scales.blockColumns);
  if (!isPlain) return { encoding, parts };
  const { groups: _, ...others } = parts;
  return { encoding: { ...encoding, hasGroups: false }, parts: others };
}

function encodedPlaces(
  { name, shape, encoding, places, hasScalePerPart }: EncodedStored,
  parts: readonly TensorPart[] | undefined,
): readonly TensorLocation[] {
  const rows = shape.slice(0, -1).reduce((product, extent) => product * extent, 1);
  const whole = { kind: 'encoded', format: 'f32', encoding, rows, parts: places } as const;
  if (parts === undefined) return [{ ...whole, name, shape }];
  const plain = parts.some((part) => 'columns' in part) ? withoutOrder(encoding, places, at(shape, 1)) : undefined;
  const turned = plain && transposed(plain.encoding);
  return parts.map((part, i): TensorLocation => {
    if ('columns' in part) {
      const isPlain = part.from === 0 && part.rows === shape.at(-1) && (part.step ?? 1) === 1 && !hasScalePerPart;
      if (turned === undefined || plain === undefined || !isPlain)
        throw new UserError(
          `tensor ${name} is quantized so that columns of it cannot be read: the model multiplies by transposes`,
          'take a checkpoint that has this tensor in 16 bits, or in codes with scales of blocks',
        );
      return {
        ...whole,
        name: part.name,
        shape: partShape(part, shape),
        encoding: turned,
        parts: plain.parts,
        rows: part.rows,
        columns: { first: part.first, of: rows },
      };
    }
    if (!('stride' in part)) throw new Error(`${name} is encoded, and has parts that are no rows of it`);
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
  if ('element' in part) {
    const { rows } = part;
    const tile = { row: 0, rows, column: 0, columns: 1, isTransposed: false, stride: columns };
    const place = offset + part.first * rowBytes + (part.element * rowBytes) / columns;
    return { kind: 'assembled', name, format, shape, tiles: [{ ...tile, file, offset: place }] };
  }
  if ('width' in part) {
    const rows = at(whole.shape, 0);
    const tile = { row: 0, rows, column: 0, columns: part.width, isTransposed: false, stride: columns };
    const tiles = [
      { ...tile, ...defined({ step: part.step }), file, offset: offset + (part.column * rowBytes) / columns },
    ];
    return { kind: 'assembled', name, format, shape, tiles };
  }
  const start = offset + part.first * rowBytes;
  if ('columns' in part) {
    const tile = { row: 0, rows: part.rows, column: 0, columns: part.columns, isTransposed: true, stride: columns };
    const tiles = [
      { ...tile, ...defined({ step: part.step }), file, offset: start + (part.from * rowBytes) / columns },
    ];
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
    const count = shape.reduce((product, extent) => product * extent, 1);
    const place = { row: first, rows: count, column: 0, columns: 1, isTransposed: false, stride: 1 };
    const tile: FileTile = { file: entry.file, offset: entry.offset, ...place };
    joined.set(name, { ...known, tiles: [...known.tiles, tile] });
  }
  return [...joined.values()];
}

/** What every reader of weight files returns: tensors with their places. */
export interface WeightEntry {
  readonly name: string;
  /** In the words of safetensors: F32, BF16, … */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Bytes from the start of the file. Aligned to the element's size only if the writer did so. */
  readonly offset: number;
  readonly byteLength: number;
}

export interface WeightFile {
  readonly file: string;
  readonly sizeBytes: number;
  readonly entries: readonly WeightEntry[];
  /** SHA-256, hexadecimal, of what describes the tensors. */
  readonly headerHash: string;
}
