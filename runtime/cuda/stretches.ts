/** The places of a source in files, as lines that a staging buffer takes any number of. Pure. */
import { FORMATS, type FileTile } from '../../ir/storage.js';
import { encodedRow, fileRow, linesOf, type EncodedSource, type TensorSource } from '../tensorSource.js';
import type { PackRange } from './packJob.js';

/** Lines that lie in equal steps in a file, or that are made up. */
export interface Stretch {
  readonly lines: number;
  /** Absent if values are made up. */
  readonly stored?: {
    /** A file, or an encoded matrix that is staged as f32, as if that were a file. */
    readonly file: string | EncodedSource;
    /** Of the first line. */
    readonly offset: number;
    /** From the beginning of a line to that of the next, and to its own end. */
    readonly stepBytes: number;
    readonly lineBytes: number;
  };
  /** What `count` lines from `first` on are of the source. */
  readonly range: (first: number, count: number) => Pick<PackRange, 'firstRow' | 'rows' | 'view'>;
}

function stretchOfTile(tile: FileTile, elementBytes: number): Stretch {
  const { file, offset, row, rows, column, columns, stride, isTransposed } = tile;
  const { lines, length } = linesOf(tile);
  return {
    lines,
    stored: { file, offset, stepBytes: stride * elementBytes, lineBytes: length * elementBytes },
    range: (first, count) =>
      isTransposed
        ? { firstRow: row, rows, view: { column: column + first, columns: count, rowStride: 1, columnStride: stride } }
        : { firstRow: row + first, rows: count, view: { column, columns, rowStride: stride, columnStride: 1 } },
  };
}

/** All of the first `rows` rows of `k` elements of a source. */
export function stretchesOf(tensor: TensorSource, rows: number, k: number): readonly Stretch[] {
  const { bytes } = FORMATS[tensor.format];
  switch (tensor.kind) {
    case 'file': {
      const rowBytes = bytes(1, k);
      const block = tensor.blocks?.rows ?? rows;
      return Array.from({ length: Math.ceil(rows / block) }, (_, i) => ({
        lines: Math.min(block, rows - i * block),
        stored: {
          file: tensor.file,
          offset: tensor.offset + fileRow(tensor, i * block) * rowBytes,
          stepBytes: rowBytes,
          lineBytes: rowBytes,
        },
        range: (first, count) => ({ firstRow: i * block + first, rows: count }),
      }));
    }
    case 'encoded': {
      const rowBytes = bytes(1, k);
      const block = tensor.view?.rows ?? rows;
      return Array.from({ length: Math.ceil(rows / block) }, (_, i) => ({
        lines: Math.min(block, rows - i * block),
        stored: {
          file: tensor,
          offset: encodedRow(tensor, i * block) * rowBytes,
          stepBytes: rowBytes,
          lineBytes: rowBytes,
        },
        range: (first, count) => ({ firstRow: i * block + first, rows: count }),
      }));
    }
    case 'assembled':
      return tensor.tiles.map((tile) => stretchOfTile(tile, bytes(1, 1)));
    case 'random':
    case 'constant':
      return [{ lines: rows, range: (first, count) => ({ firstRow: first, rows: count }) }];
    default:
      return tensor satisfies never;
  }
}
