/** Jobs of the kernels in packKernels.ts: the bytes of their structs, and how many blocks they are worth. */
import { UserError } from '../../errors.js';
import type { LaunchShape } from '../../ir/cuda.js';
import { BLOCK_COLUMNS, groupedBytes } from '../../ir/groups.js';
import type { Pairing, WeightDecl } from '../../ir/kernel.js';
import { MICRO_COLUMNS, MICRO_ROWS, microscaledBytes } from '../../ir/microscaled.js';
import { packedDepth } from '../../ir/packing.js';
import { FORMATS } from '../../ir/storage.js';
import type { FloatType } from '../../ir/types.js';
import type { Extent } from '../native.js';
import type { TensorSource } from '../tensorSource.js';
import { CODES_THREADS, MAX_KEPT, PACK_CODES } from './packCodeKernels.js';
import { PACK_GROUPS, PACK_MICROSCALED, PACK_THREADS, PARTS } from './packKernels.js';

const PAIRINGS: Readonly<Record<Pairing['kind'], number>> = { none: 0, rotate: 1, interleave: 2 };
const KINDS: Readonly<Record<TensorSource['kind'], number>> = {
  file: 0,
  assembled: 0,
  encoded: 0,
  random: 1,
  constant: 2,
};

/** Bytes from one job to the next in device memory: a multiple of 16 in which both structs fit. */
export const JOB_BYTES = 112;

/** Columns of a range, and how elements lie: whole rows, one after another, unless stated. */
export interface PackColumns {
  readonly column: number;
  readonly columns: number;
  /** Elements. */
  readonly rowStride: number;
  readonly columnStride: number;
}

/** A range of rows of one source, on its way into a weight. */
export interface PackRange {
  readonly tensor: TensorSource;
  /** Rows of the range: `rows` from `firstRow` of the source, whose own first is row `sourceRow` of the stack. */
  readonly firstRow: number;
  readonly rows: number;
  readonly sourceRow: number;
  readonly isScaled: boolean;
  /** Added to every value; 0 for all but factors of columns. */
  readonly added?: number;
  readonly view?: PackColumns;
}

/** A job's bytes, and how the kernel is launched for it. */
export interface DeviceJob {
  readonly bytes: Uint8Array;
  readonly launch: LaunchShape;
  /** Its kernel. Default: the one that lays out rows. */
  readonly symbol?: string;
}

const MASK = (1n << 64n) - 1n;

/** The hash of a seed from which the counter starts: `mix` of runtime/native/pack.cc. */
export function startOf(seed: bigint): bigint {
  let z = seed & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** Elements from one row of a weight to the next. Throws for the layouts of CPUs. */
function deviceStride(weight: WeightDecl): number {
  if (weight.layout === 'panels' || weight.layout === 'vnni')
    throw new Error(`Weight ${weight.name} is laid out for a CPU.`);
  return packedDepth(weight);
}

/** Rows that a pairing is about: of a head, or of each of two sources. */
function spanOf(weight: WeightDecl): number {
  const { pairing } = weight;
  switch (pairing.kind) {
    case 'none':
      return 0;
    case 'rotate':
      return pairing.headDim;
    case 'interleave':
      return weight.sources[0]?.rows ?? 0;
    default:
      return pairing satisfies never;
  }
}

/** f32 factor of a random tensor, value of a constant one. As runtime/native/packBinding.cc computes it. */
const factorOf = (tensor: TensorSource): number =>
  tensor.kind === 'random'
    ? (tensor.scale * 1.7320508075688772) / 65536
    : tensor.kind === 'constant'
      ? tensor.value
      : 0;

/** Rows of the grid of blocks: each block strides over the rows by this number. */
const MAX_GRID_Y = 32768;
/** Of a row. What a thread computes for a row costs as much as some elements. */
const ELEMENTS_OF_A_THREAD = 8;

export const launchOf = (columns: number, rows: number, each = 1): LaunchShape => ({
  threads: PACK_THREADS,
  sharedBytes: 0,
  cluster: 1,
  gridX: { kind: 'constant', count: Math.max(1, Math.ceil(columns / PACK_THREADS / each)) },
  gridY: { kind: 'constant', count: Math.min(rows, MAX_GRID_Y) },
});

/** Columns of the matrix that a weight is made of; 1 for scales that are read as they are stored. */
export const matrixColumns = ({ k, scalesOf, from }: Pick<WeightDecl, 'k' | 'scalesOf' | 'from'>): number =>
  from === 'codes' ? k : (scalesOf?.k ?? k);

export const wholeRows = (weight: WeightDecl): PackColumns => {
  const columns = matrixColumns(weight);
  return { column: 0, columns, rowStride: columns, columnStride: 1 };
};

/** Behind the last column that a job writes: with the last of a row it also writes what pads it. */
export const endOf = (weight: WeightDecl, { column, columns }: PackColumns): number =>
  column + columns === weight.k && weight.scalesOf === undefined ? deviceStride(weight) : column + columns;

/** The struct of a job, which every kernel reads in its own way, as words. Models of experts have tens of thousands. */
export interface JobWords {
  readonly bytes: Uint8Array;
  readonly ints: Int32Array;
  readonly floats: Float32Array;
}

export function jobOf(weight: WeightDecl, { tensor, view, ...range }: PackRange): JobWords {
  const bytes = new Uint8Array(JOB_BYTES);
  const [ints, floats] = [new Int32Array(bytes.buffer), new Float32Array(bytes.buffer)];
  const k = matrixColumns(weight);
  const { pairing } = weight;
  if (tensor.kind === 'random') new BigUint64Array(bytes.buffer)[0] = startOf(tensor.seed);
  const first = range.firstRow * k;
  ints[2] = (first % 2 ** 32) | 0;
  ints[3] = Math.floor(first / 2 ** 32);
  ints[4] = range.rows;
  ints[5] = range.sourceRow + range.firstRow;
  ints[6] = k;
  ints[7] = deviceStride(weight);
  ints[8] = KINDS[tensor.kind];
  ints[9] = FORMATS[tensor.format].code;
  ints[10] = FORMATS[weight.format].code;
  ints[11] = PAIRINGS[pairing.kind];
  ints[12] = pairing.kind === 'none' ? 1 : pairing.width;
  ints[13] = spanOf(weight);
  floats[14] = factorOf(tensor);
  ints[15] = range.isScaled ? 1 : 0;
  const { order } = weight.sources[0]!;
  ints[16] = order?.headDim ?? 0;
  ints[17] = order?.rotated ?? 0;
  ints[18] = order?.interleaved === true ? 1 : 0;
  floats[19] = range.added ?? 0;
  const columns = view ?? wholeRows(weight);
  ints[20] = columns.column;
  ints[21] = endOf(weight, columns);
  ints[22] = columns.rowStride;
  ints[23] = columns.columnStride;
  return { bytes, ints, floats };
}

/** Job of tw_pack_rows. */
export function packJob(weight: WeightDecl, range: PackRange): DeviceJob {
  const { bytes } = jobOf(weight, range);
  const columns = range.view ?? wholeRows(weight);
  return { bytes, launch: launchOf(endOf(weight, columns) - columns.column, range.rows, ELEMENTS_OF_A_THREAD) };
}

/**
 * Job of tw_pack_codes: codes to which a matrix is rounded, the scales of its rows, or both in one reading. Where only
 * only scales are asked for, `weight` is the scales. Throws UserError for other than whole rows.
 */
export function codesJob(weight: WeightDecl, range: PackRange, parts: readonly (keyof typeof PARTS)[]): DeviceJob {
  const k = matrixColumns(weight);
  if (range.view !== undefined && range.view.columns !== k)
    throw new UserError(
      `Weight ${weight.name} is rounded to 8 bits by rows, and the checkpoint stores parts of them.`,
      'use --precision bf16, or a checkpoint whose matrices are stored whole',
    );
  const { bytes, ints } = jobOf(weight, range);
  const kept = Math.min(k, MAX_KEPT);
  ints.set([parts.reduce((bits, part) => bits | PARTS[part], 0), range.sourceRow, kept], 24);
  const launch = { ...launchOf(1, range.rows), threads: CODES_THREADS, sharedBytes: 4 * kept };
  return { bytes, launch, symbol: PACK_CODES };
}

/** A floating buffer to be searched, and the index into the u64 array of answers (all ones: nothing found). */
export interface FindRange {
  readonly index: number;
  readonly dtype: FloatType;
  readonly rows: Extent;
  readonly columns: Extent;
  readonly stride: number;
  readonly allowsNegativeInfinity: boolean;
}

/** Job of tw_pack_find; `most` gives the largest value of an extent. The kernel takes rows and columns beside it. */
export function findJob(range: FindRange, most: (extent: Extent) => number): DeviceJob {
  const view = new DataView(new ArrayBuffer(JOB_BYTES));
  view.setBigInt64(0, BigInt(range.stride), true);
  [FORMATS[range.dtype].code, range.allowsNegativeInfinity ? 1 : 0, range.index].forEach((value, i) =>
    view.setInt32(8 + 4 * i, value, true),
  );
  return { bytes: new Uint8Array(view.buffer), launch: launchOf(most(range.columns), most(range.rows)) };
}

// Jobs of weights in groups (ir/groups.ts): codes and scales, each laid out by launches of its own.

/** What a job lays out. */
export type GroupPart = 'codes' | 'scales';

/** Elements of a row that a job reads: codes, or words of scales and zero points, of four bytes each. */
export const groupColumns = ({ k, group = BLOCK_COLUMNS }: WeightDecl, part: GroupPart): number =>
  part === 'codes' ? k : k / group;

/**
 * Job of tw_pack_groups: that of tw_pack_rows, but its stride is the group, its end the rows of a weight of
 * `weightBytes`. Throws for other than whole rows.
 */
export function groupJob(weight: WeightDecl, range: PackRange, part: GroupPart, weightBytes: number): DeviceJob {
  const { group } = weight;
  if (group === undefined || range.view !== undefined || !['encoded', 'random'].includes(range.tensor.kind))
    throw new Error(`Weight ${weight.name} is in no groups: its source is ${range.tensor.kind}.`);
  const { bytes, ints } = jobOf(weight, range);
  ints[7] = group;
  ints[15] = part === 'scales' ? 1 : 0;
  ints[21] = weightBytes / groupedBytes(1, weight.k, group);
  const columns = part === 'scales' ? weight.k / group : weight.k / 8;
  return { bytes, launch: launchOf(columns, range.rows), symbol: PACK_GROUPS };
}

/** Job of tw_pack_microscaled (ir/microscaled.ts): that of tw_pack_rows, but its end is the rows of `weightBytes`. */
export function microscaledJob(weight: WeightDecl, range: PackRange, weightBytes: number): DeviceJob {
  if (range.view !== undefined && range.view.columns !== weight.k)
    throw new Error(
      `Weight ${weight.name}: rows are rounded to MXFP4 whole, not ${range.view.columns} columns of them.`,
    );
  const { bytes, ints } = jobOf(weight, range);
  ints[21] = (weightBytes * MICRO_ROWS) / microscaledBytes(MICRO_ROWS, weight.k);
  return { bytes, launch: launchOf(weight.k / MICRO_COLUMNS, range.rows), symbol: PACK_MICROSCALED };
}
