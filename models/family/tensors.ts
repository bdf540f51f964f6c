/** The tensors of a checkpoint: which ones it must have, and where each is stored. */
import type { Encoding, FilePart, PerPart } from '../../ir/encoding.js';
import type { GroupSize } from '../../ir/groups.js';
import type { FileTile, FormatName } from '../../ir/storage.js';

interface Described {
  readonly name: string;
  readonly format: FormatName;
  /** Linear weights are [out, in]. */
  readonly shape: readonly number[];
}

/** Bytes of a file. The offset is aligned to the element size only if the file's writer did so. */
export interface FileTensor extends Described {
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
export interface AssembledTensor extends Described {
  readonly kind: 'assembled';
  readonly tiles: readonly FileTile[];
}

/** Rows of a matrix whose elements are encoded. They are decoded as f32. */
export interface EncodedTensor extends Described {
  readonly kind: 'encoded';
  readonly format: 'f32';
  readonly encoding: Encoding;
  /** Rows of the encoded matrix. */
  readonly rows: number;
  /** Where the tensor is not all of it: blocks of `rows` rows from `first` on, whose beginnings are `stride` apart. */
  readonly view?: { readonly first: number; readonly rows: number; readonly stride: number };
  readonly parts: PerPart<FilePart>;
}

/** Made-up values: mean 0, standard deviation `scale`, a pure function of `seed` and the element's index. */
export interface RandomTensor extends Described {
  readonly kind: 'random';
  /** 64 bits, unsigned. */
  readonly seed: bigint;
  readonly scale: number;
  /** Of a matrix that the configuration says is stored in 4 bits: columns that share a scale. */
  readonly group?: GroupSize;
}

/** Every element is `value`. */
export interface ConstantTensor extends Described {
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

/** A matrix whose columns are rows of a tensor, from `first` on: `rows` elements of each, from element `from` on. */
export interface TurnedPart {
  readonly name: string;
  readonly first: number;
  readonly columns: number;
  readonly from: number;
  readonly rows: number;
}

/** A part of a tensor. One of more than two dimensions is a matrix of all rows of its last dimension. */
export type TensorPart = RowsPart | TurnedPart;

/** The shape of a part of a tensor of this shape. */
export const partShape = (part: TensorPart, shape: readonly number[]): readonly number[] =>
  'columns' in part
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
  /** The vector that the graph reads, of which this one is the elements from `first` on. Default: the tensor itself. */
  readonly partOf?: { readonly name: string; readonly first: number; readonly rows: number };
  /** A hint for checkpoints without this tensor, for the message. */
  readonly missingHint?: string;
}

/** Keyed by the names of safetensors. */
export const FORMATS_OF: Readonly<Record<string, FormatName>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };

/** The storage format of a safetensors dtype; undefined if it is not supported for weights. */
export const weightFormat = (dtype: string): FormatName | undefined =>
  Object.hasOwn(FORMATS_OF, dtype) ? FORMATS_OF[dtype] : undefined;
