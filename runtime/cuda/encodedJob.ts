/** Encoded matrices as their files have them, on their way to the device, which decodes them (packEncodedKernel.ts). */
import { BLOCKS } from '../../ir/blocks.js';
import { type CodeGrid, CODES, PART_NAMES, partBytes, type PartName } from '../../ir/encoding.js';
import { type FileTile, FORMATS } from '../../ir/storage.js';
import { roundUp } from '../../ir/types.js';
import {
  encodedColumns,
  type EncodedPart,
  encodedRow,
  encodedRuns,
  type EncodedSource,
  fileRow,
  lineSpan,
  linesOf,
  type TensorSource,
} from '../tensorSource.js';
import { BLOCK_NUMBERS, CODE_NUMBERS, READ_NUMBERS, SCALE_NUMBERS } from './packCodeKernels.js';
import { type DeviceJob, JOB_BYTES, type PackRange } from './packJob.js';

/** Bytes of tw_encoded, which lies behind a job, and the offset in both of the flag for invalid scales. */
export const ENCODED_BYTES = 200;
export const DAMAGED_AT = JOB_BYTES + ENCODED_BYTES - 4;
/** `kind` of such a job. */
const ENCODED_KIND = 3;
/** Of the parts in a staging buffer. */
const ALIGNMENT = 256;

/** A part of a matrix as lines that hold so many of its rows each; one line where it is transposed. */
interface PartLines {
  readonly name: PartName;
  readonly file: string;
  readonly offset: number;
  readonly lineBytes: number;
  readonly lineRows: number;
}

/** A range of a part of a file, and where it is staged, from the first part on. */
export interface StagedPart {
  readonly name: PartName;
  readonly file: string;
  readonly offset: number;
  readonly bytes: number;
  readonly at: number;
  /** Where the first line of the whole part would be. */
  readonly origin: number;
}

/**
 * Whether the device can read so from the bytes of the files, if columns are in the order of their groups. What cannot
 * be is decoded, or refused, by the host.
 */
export function isDecodable({ encoding, shape, columns }: EncodedSource, reads: EncodedPart | undefined): boolean {
  if (columns !== undefined) return false;
  const k = shape[1]!;
  if (encoding.kind === 'blocks') return reads === undefined;
  const { codes, scales, zero } = encoding;
  if (reads === undefined) return true;
  if (codes.type === 'u4')
    return (
      reads.kind === 'codes' ||
      (reads.kind === 'scales' && (k % reads.group) + (scales.blockColumns % reads.group) === 0)
    );
  const isPlain = codes.type === 'e4m3' && !codes.isTransposed && zero.kind === 'constant' && zero.value === 0;
  return isPlain && reads.kind !== 'scales' && scales.blockColumns >= k;
}

/** Whether each column is in the group of its place. `groups`: part `groups`, i32[k]. */
export function isInOrder({ encoding }: EncodedSource, groups: Int32Array): boolean {
  if (encoding.kind === 'blocks') return true;
  const { blockColumns } = encoding.scales;
  return groups.every((group, column) => group === Math.floor(column / blockColumns));
}

/** The parts of a matrix; undefined where some are transposed, so that no range of rows lies together. */
function encodedLines(source: EncodedSource): readonly PartLines[] | undefined {
  const { encoding, rows, parts } = source;
  const needed = partBytes(encoding, rows, encodedColumns(source));
  const line = (name: PartName, lineRows: number): PartLines => {
    const { file, offset } = parts[name]!;
    return { name, file, offset, lineRows, lineBytes: needed[name]! / Math.ceil(rows / lineRows) };
  };
  if (encoding.kind === 'blocks') return [line('blocks', 1)];
  const { codes, scales, zero } = encoding;
  if (codes.isTransposed || scales.isTransposed) return undefined;
  const down = ({ along, places }: CodeGrid): number => (along === 'column' ? places.length : 1);
  const plain = [line('codes', down(codes)), line('scales', scales.blockRows)];
  if (zero.kind === 'constant') return plain;
  if (zero.codes.isTransposed) return undefined;
  return [...plain, line('zeros', scales.blockRows * down(zero.codes))];
}

/** Parts one behind another; `rangeOf`: the bytes of a part. */
function place(
  parts: readonly (Omit<StagedPart, 'at' | 'origin'> & { readonly skipped: number })[],
): readonly StagedPart[] {
  let end = 0;
  return parts.map(({ skipped, ...part }) => {
    const at = roundUp(end, ALIGNMENT);
    end = at + part.bytes;
    return { ...part, at, origin: at - skipped };
  });
}

/** Bytes of staged parts together. */
export const stagedBytesOf = (parts: readonly StagedPart[]): number => {
  const last = parts.at(-1)!;
  return last.at + last.bytes;
};

/** How ranges of rows of a matrix are staged: any, or only all of them. */
export interface EncodedStaging {
  readonly isWhole: boolean;
  /** What rows `first` to `first` + `count` − 1 of the matrix need. */
  readonly of: (first: number, count: number) => readonly StagedPart[];
}

export function encodedStaging(source: EncodedSource): EncodedStaging {
  const lines = encodedLines(source);
  if (lines !== undefined)
    return {
      isWhole: false,
      of: (first, count) =>
        place(
          lines.map(({ name, file, offset, lineBytes, lineRows }) => {
            const from = Math.floor(first / lineRows);
            const skipped = from * lineBytes;
            const bytes = (Math.ceil((first + count) / lineRows) - from) * lineBytes;
            return { name, file, offset: offset + skipped, bytes, skipped };
          }),
        ),
    };
  const whole = place(
    PART_NAMES.flatMap((name) => {
      const part = source.parts[name];
      return part === undefined || name === 'groups'
        ? []
        : [{ name, file: part.file, offset: part.offset, bytes: part.byteLength, skipped: 0 }];
    }),
  );
  return { isWhole: true, of: () => whole };
}

/** Words of tw_grid, for a grid [rows, columns] whose first word would be at `origin`. */
function gridWords(grid: CodeGrid, rows: number, columns: number, origin: number, rowStep = 1): readonly number[] {
  const { bits } = CODES[grid.type];
  const [down, across] = grid.along === 'column' ? [grid.places.length, 1] : [1, grid.places.length];
  const [wordRows, wordColumns] = [Math.ceil(rows / down), Math.ceil(columns / across)];
  const shifts = new Uint8Array(32);
  grid.places.forEach((each, i) => (shifts[i] = each * bits));
  return [
    ...long(origin),
    CODE_NUMBERS[grid.type],
    bits,
    grid.wordBytes,
    grid.places.length,
    grid.along === 'row' ? 1 : 0,
    grid.isTransposed ? 1 : wordColumns,
    grid.isTransposed ? wordRows : 1,
    rowStep,
    ...new Int32Array(shifts.buffer),
  ];
}

const long = (value: number): readonly [number, number] => [value | 0, Math.floor(value / 2 ** 32)];
const NO_GRID: readonly number[] = Array.from({ length: 18 }, () => 0);

/** A job that reads staged parts of a matrix, from row `row` of it on. */
export function encodedJob(
  job: DeviceJob,
  source: EncodedSource,
  staged: readonly StagedPart[],
  row: number,
  reads: EncodedPart | undefined,
): DeviceJob {
  const { encoding, rows } = source;
  const k = source.shape[1]!;
  const bytes = new Uint8Array(JOB_BYTES + ENCODED_BYTES);
  bytes.set(job.bytes);
  const ints = new Int32Array(bytes.buffer);
  const origin = (name: PartName): number => staged.find((part) => part.name === name)!.origin;
  ints[8] = ENCODED_KIND;
  const { step } = encodedRuns(source, source.shape[0]!);
  const end = [row, READ_NUMBERS[reads?.kind ?? 'values'], reads?.kind === 'scales' ? reads.group : 1, 0];
  let own: readonly number[];
  if (encoding.kind === 'blocks') {
    const { elements, bytes: blockBytes } = BLOCKS[encoding.block];
    const grid = [...long(origin('blocks')), 0, 0, 0, 0, 0, (k / elements) * blockBytes, 0, step, ...NO_GRID.slice(10)];
    own = [...grid, ...NO_GRID, 0, 0, 0, 1, 1, 0, 0, 0, 0, BLOCK_NUMBERS[encoding.block], ...end];
  } else {
    const { codes, scales, zero } = encoding;
    const [down, across] = [Math.ceil(rows / scales.blockRows), Math.ceil(k / scales.blockColumns)];
    own = [
      ...gridWords(codes, rows, k, origin('codes'), step),
      ...(zero.kind === 'stored' ? gridWords(zero.codes, down, across, origin('zeros')) : NO_GRID),
      ...long(origin('scales')),
      SCALE_NUMBERS[scales.type],
      scales.blockRows,
      scales.blockColumns,
      scales.isTransposed ? 1 : across,
      scales.isTransposed ? down : 1,
      zero.kind === 'stored' ? 1 : 0,
      zero.kind === 'stored' ? zero.added : zero.value,
      0,
      ...end,
    ];
  }
  ints.set(own, JOB_BYTES / 4);
  return { ...job, bytes };
}

// The places of a source in files, as lines that a staging buffer takes any number of. Pure.

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
  const { file, offset, row, rows, column, columns, stride, step = 1, isTransposed } = tile;
  const { lines } = linesOf(tile);
  return {
    lines,
    stored: { file, offset, stepBytes: stride * elementBytes, lineBytes: lineSpan(tile) * elementBytes },
    range: (first, count) =>
      isTransposed
        ? {
            firstRow: row,
            rows,
            view: { column: column + first, columns: count, rowStride: step, columnStride: stride },
          }
        : { firstRow: row + first, rows: count, view: { column, columns, rowStride: stride, columnStride: step } },
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
      const { block, step } = encodedRuns(tensor, rows);
      const view = { column: 0, columns: k, rowStride: step * k, columnStride: 1 };
      return Array.from({ length: Math.ceil(rows / block) }, (_, i) => ({
        lines: Math.min(block, rows - i * block),
        stored: {
          file: tensor,
          offset: encodedRow(tensor, i * block) * rowBytes,
          stepBytes: step * rowBytes,
          lineBytes: rowBytes,
        },
        range: (first, count) => ({ firstRow: i * block + first, rows: count, ...(step === 1 ? {} : { view }) }),
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
