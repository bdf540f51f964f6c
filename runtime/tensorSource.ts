/** Where the values of a checkpoint tensor come from, and the checks that make its bytes safe to read. */
import { UserError } from '../errors.js';
import { encodingProblem, PART_NAMES, partBytes, type Encoding, type FilePart, type PerPart } from '../ir/encoding.js';
import { FORMATS, type FileTile, type FormatName } from '../ir/storage.js';

/** Row-major. `random` is nearly normal with deviation `scale`, the same for a (seed, flat index) on every machine. */
export type TensorSource =
  | {
      readonly kind: 'file';
      readonly format: FormatName;
      readonly shape: readonly number[];
      /** Full path, and the bytes of the tensor in it. */
      readonly file: string;
      readonly offset: number;
      readonly byteLength: number;
      /**
       * Where the rows do not lie one after another: blocks of `rows` rows, whose beginnings are `stride` rows apart.
       * byteLength counts the rows of the blocks only.
       */
      readonly blocks?: { readonly rows: number; readonly stride: number };
    }
  | {
      /** Rectangles that lie in several places. They cover the tensor and do not overlap. */
      readonly kind: 'assembled';
      readonly format: FormatName;
      readonly shape: readonly number[];
      readonly tiles: readonly FileTile[];
    }
  | EncodedSource
  | {
      readonly kind: 'random';
      readonly format: FormatName;
      readonly shape: readonly number[];
      readonly seed: bigint;
      readonly scale: number;
    }
  | {
      readonly kind: 'constant';
      readonly format: FormatName;
      readonly shape: readonly number[];
      readonly value: number;
    };

/**
 * What is read of an encoded matrix in place of its values: codes as f32; for each row and group of columns the f32 of
 * its scale with its zero point in the lowest eight bits (ir/groups.ts); or the scale of each row.
 */
export type EncodedPart =
  | { readonly kind: 'codes' | 'row scales' }
  | { readonly kind: 'scales'; readonly group: number };

/** Columns of an encoded matrix: those from `first` on, of so many that it has. */
export interface EncodedColumns {
  readonly first: number;
  readonly of: number;
}

/** Columns of the whole matrix. */
export const encodedColumns = ({ shape, columns }: Pick<EncodedSource, 'shape' | 'columns'>): number =>
  columns?.of ?? shape[1]!;

/** Rows of a matrix whose elements are encoded. They are decoded as f32. */
export interface EncodedSource {
  readonly kind: 'encoded';
  readonly format: 'f32';
  readonly shape: readonly number[];
  readonly encoding: Encoding;
  /** Rows of the encoded matrix. */
  readonly rows: number;
  /** Where the tensor is not all of it: blocks of `rows` rows from `first` on, whose beginnings are `stride` apart. */
  readonly view?: { readonly first: number; readonly rows: number; readonly stride: number };
  /** Where the tensor has not all columns of it. */
  readonly columns?: EncodedColumns;
  readonly parts: PerPart<FilePart>;
  /** Default: values. */
  readonly reads?: EncodedPart;
}

/** Stored lines of a tile, and elements of each. */
export const linesOf = ({
  isTransposed,
  rows,
  columns,
}: FileTile): { readonly lines: number; readonly length: number } =>
  isTransposed ? { lines: columns, length: rows } : { lines: rows, length: columns };

/** Elements from the first of a tile to its last, as they are stored. */
export function tileSpan(tile: FileTile): number {
  const { lines } = linesOf(tile);
  return (lines - 1) * tile.stride + lineSpan(tile);
}

/** Elements from the first of a stored line to its last. */
export function lineSpan(tile: FileTile): number {
  const { length } = linesOf(tile);
  return (length - 1) * (tile.step ?? 1) + 1;
}

type FileSource = Extract<TensorSource, { kind: 'file' }>;

/** The row, from `offset` on, where row `row` of the tensor lies in its file. */
export const fileRow = ({ blocks }: Pick<FileSource, 'blocks'>, row: number): number =>
  blocks === undefined ? row : Math.floor(row / blocks.rows) * blocks.stride + (row % blocks.rows);

/** Bytes of a row of the tensor, and from its first byte in the file to its last. */
export function fileSpan(source: FileSource): {
  readonly rowBytes: number;
  readonly rows: number;
  readonly bytes: number;
} {
  const [rows = 1] = source.shape;
  const rowBytes = source.byteLength / rows;
  const spanned = fileRow(source, rows - 1) + 1;
  return { rowBytes, rows: spanned, bytes: spanned * rowBytes };
}

/** The row of the encoded matrix that is row `row` of the tensor. */
export const encodedRow = ({ view }: Pick<EncodedSource, 'view'>, row: number): number =>
  view === undefined ? row : view.first + Math.floor(row / view.rows) * view.stride + (row % view.rows);

/** Rows of the tensor that lie in equal steps in its matrix: so many at a time, and the step. */
export const encodedRuns = (
  { view }: Pick<EncodedSource, 'view'>,
  rows: number,
): { readonly block: number; readonly step: number } =>
  view === undefined
    ? { block: rows, step: 1 }
    : view.rows === 1
      ? { block: rows, step: view.stride }
      : { block: view.rows, step: 1 };

/** Where files hold a tensor: bytes from the first to the last, of which `own` are the tensor's. */
export interface FileRange {
  readonly file: string;
  readonly offset: number;
  readonly bytes: number;
  readonly own: number;
}

/** The places of a tensor in files; none if it is made up. */
export function fileRanges(source: TensorSource): readonly FileRange[] {
  if (source.kind === 'file')
    return [{ file: source.file, offset: source.offset, bytes: fileSpan(source).bytes, own: source.byteLength }];
  if (source.kind === 'encoded')
    return PART_NAMES.flatMap((name) => source.parts[name] ?? []).map(({ file, offset, byteLength: bytes }) => ({
      file,
      offset,
      bytes,
      own: Math.ceil((((bytes * source.shape[0]!) / source.rows) * source.shape[1]!) / encodedColumns(source)),
    }));
  if (source.kind !== 'assembled') return [];
  const { bytes } = FORMATS[source.format];
  return source.tiles.map((tile) => ({
    file: tile.file,
    offset: tile.offset,
    bytes: bytes(1, tileSpan(tile)),
    own: bytes(tile.rows, tile.columns),
  }));
}

/** Whether tiles lie inside a tensor of `rows` rows of `k` and are as large as it is together. */
function isCovered(tiles: readonly FileTile[], rows: number, k: number): boolean {
  const isInside = (from: number, count: number, of: number): boolean =>
    Number.isSafeInteger(from) && Number.isSafeInteger(count) && from >= 0 && count > 0 && from + count <= of;
  const isSound = (tile: FileTile): boolean =>
    isInside(tile.row, tile.rows, rows) &&
    isInside(tile.column, tile.columns, k) &&
    Number.isSafeInteger(tile.offset) &&
    tile.offset >= 0 &&
    Number.isSafeInteger(tile.step ?? 1) &&
    (tile.step ?? 1) >= 1 &&
    tile.stride >= lineSpan(tile);
  return tiles.every(isSound) && tiles.reduce((sum, tile) => sum + tile.rows * tile.columns, 0) === rows * k;
}

/** Why parts of files cannot be an encoded matrix; undefined if they can. */
function encodedProblem(source: EncodedSource): string | undefined {
  const { encoding, rows, shape, view, columns = { first: 0 }, parts } = source;
  const [own = 0, ownColumns = 0] = shape;
  const k = encodedColumns(source);
  const problem = shape.length === 2 ? encodingProblem(encoding, rows, k) : 'it is no matrix';
  if (problem !== undefined) return problem;
  const isInside =
    view === undefined
      ? own === rows
      : view.first >= 0 && view.rows > 0 && view.stride >= view.rows && encodedRow({ view }, own - 1) < rows;
  if (!isInside) return `its rows are not inside a matrix of ${rows}`;
  if (!(Number.isSafeInteger(columns.first) && columns.first >= 0 && columns.first + ownColumns <= k))
    return `its columns are not inside a matrix of ${k}`;
  const needed = partBytes(encoding, rows, k);
  for (const name of PART_NAMES) {
    const part = parts[name];
    const isSound = part !== undefined && Number.isSafeInteger(part.offset) && part.offset >= 0;
    if (needed[name] !== undefined && !(isSound && part.byteLength === needed[name]))
      return `${name}: ${part?.byteLength ?? 'no'} bytes, its shape needs ${needed[name]}`;
    if (needed[name] === undefined && part !== undefined) return `its encoding has no ${name}`;
  }
  return undefined;
}

/**
 * The source of a tensor that a weight reads as [rows, k] (a vector where rows or k is 1).
 * Throws UserError where it is missing, has another shape, or its bytes are not what its shape needs.
 */
export function requireTensor(
  tensors: ReadonlyMap<string, TensorSource>,
  name: string,
  rows: number,
  k: number,
): TensorSource {
  const source = tensors.get(name);
  if (source === undefined)
    throw new UserError(
      `The checkpoint has no tensor ${name}.`,
      'Is it whole? Compare its files with the index that came with it.',
    );
  const { shape } = source;
  const fits =
    shape.length === 2
      ? shape[0] === rows && shape[1] === k
      : shape.length === 1 && (rows === 1 || k === 1) && shape[0] === rows * k;
  if (!fits) {
    throw new UserError(
      `Tensor ${name} has shape [${shape.join(', ')}]; config.json asks for [${rows}, ${k}].`,
      'config.json and the weights belong to different models.',
    );
  }
  if (source.kind === 'assembled' && !isCovered(source.tiles, rows, k))
    throw new UserError(`Tensor ${name}: its parts do not make up [${rows}, ${k}].`, 'Download the checkpoint again.');
  if (source.kind === 'encoded') {
    const problem = encodedProblem(source);
    if (problem !== undefined)
      throw new UserError(`Tensor ${name}: ${problem}.`, 'The checkpoint is damaged: download it again.');
  }
  if (source.kind === 'file') {
    const needed = FORMATS[source.format].bytes(rows, k);
    const { blocks } = source;
    const isSound =
      Number.isSafeInteger(source.offset) &&
      source.offset >= 0 &&
      source.byteLength === needed &&
      (blocks === undefined || (shape[0]! % blocks.rows === 0 && blocks.stride >= blocks.rows));
    if (!isSound) {
      throw new UserError(
        `Tensor ${name} in ${source.file}: ${source.byteLength} bytes at ${source.offset}, its shape needs ${needed}.`,
        'The file is damaged: download it again.',
      );
    }
  }
  return source;
}
