/** Methods of quantization: how a checkpoint stores the matrix of a module that it does not store as floats. */
import type { Encoding, FilePart, PerPart, ScaleType } from '../../ir/encoding.js';
import { readRange, withFile } from '../../system/read.js';
import type { Json } from '../family/model.js';
import type { StoredTensor } from '../family/storedTensors.js';

/** The matrix [rows, k] of a module. */
export interface QuantizedMatrix {
  readonly encoding: Encoding;
  readonly parts: PerPart<FilePart>;
  /** How it is stored, for users. */
  readonly scheme: string;
  /** Scales of a fused module, one for each projection in it, where `parts.scales` is the list of all. */
  readonly hasScalePerPart?: boolean;
}

/** What a checkpoint's configuration says of its quantized modules. */
export interface Quantization {
  /** The matrix of a module; undefined if it is not quantized, or has a problem, which was reported. */
  readonly matrixOf: (module: QuantizedModule) => QuantizedMatrix | undefined;
  /** What rows of activations become, with a scale of their own; absent if they stay, or become anything else. */
  readonly activations?: 'int8' | 'fp8';
  /** Columns that share a scale (−1: all of a row), where codes have 4 bits. */
  readonly group?: number;
}

export interface QuantizationMethod {
  /** `quant_method` of its configuration. */
  readonly names: readonly string[];
  /** Reads the configuration. `where` starts every message. Throws UserError, one line, for what is not supported. */
  readonly read: (config: Json, where: string) => Quantization;
}

/** Element types of scales, by the names of safetensors. */
export const SCALE_TYPES: Readonly<Record<string, ScaleType>> = {
  F32: 'f32',
  F16: 'f16',
  BF16: 'bf16',
  F8_E8M0: 'e8m0',
};

/** A difference between a checkpoint and its description. */
export interface TensorProblem {
  readonly tensor: string;
  readonly text: string;
}

const sameShape = (a: readonly number[], b: readonly number[]): boolean => a.join() === b.join();
const product = (shape: readonly number[]): number => shape.reduce((all, extent) => all * extent, 1);

/** The tensors of one module, as its method finds them. */
export class QuantizedModule {
  /** Of its matrix. */
  readonly rows: number;
  readonly k: number;
  /** Projections in it. */
  readonly projections: number;
  /** Tensors that were read. */
  readonly read = new Set<string>();
  readonly problems: TensorProblem[] = [];
  private readonly name: string;
  private readonly found: ReadonlyMap<string, StoredTensor>;

  constructor(
    name: string,
    found: ReadonlyMap<string, StoredTensor>,
    [rows, k]: readonly [number, number],
    projections: number,
  ) {
    this.name = name;
    this.found = found;
    this.rows = rows;
    this.k = k;
    this.projections = projections;
  }

  /** Element type and shape of a tensor of the module; undefined if it has none of this name. */
  get(tensor: string): Pick<StoredTensor, 'dtype' | 'shape'> | undefined {
    return this.found.get(`${this.name}.${tensor}`);
  }

  /** Says what is wrong with a tensor. */
  refuse(tensor: string, text: string): undefined {
    this.problems.push({ tensor: `${this.name}.${tensor}`, text });
    this.read.add(`${this.name}.${tensor}`);
    return undefined;
  }

  /** Where a tensor of the module lies; undefined, with the problem reported, if it is missing or does not fit. */
  part(tensor: string, dtypes: readonly string[], ...shapes: readonly (readonly number[])[]): FilePart | undefined {
    const entry = this.found.get(`${this.name}.${tensor}`);
    if (entry === undefined) return this.refuse(tensor, 'missing');
    if (!('file' in entry)) return this.refuse(tensor, 'lies in several files');
    if (!dtypes.includes(entry.dtype))
      return this.refuse(tensor, `element type ${entry.dtype} is not supported; supported: ${dtypes.join(', ')}`);
    if (!shapes.some((shape) => sameShape(shape, entry.shape)))
      return this.refuse(
        tensor,
        `shape [${entry.shape.slice(0, 8).join(', ')}], but its configuration requires [${shapes[0]!.join(', ')}]`,
      );
    this.read.add(`${this.name}.${tensor}`);
    const { file, offset, byteLength, name } = entry;
    return { file, offset, byteLength, tensor: name };
  }

  /** Scales, and their type. */
  scales(
    tensor: string,
    ...shapes: readonly (readonly number[])[]
  ): { readonly part: FilePart; readonly type: ScaleType; readonly count: number } | undefined {
    const part = this.part(tensor, Object.keys(SCALE_TYPES), ...shapes);
    if (part === undefined) return undefined;
    const { dtype, shape } = this.get(tensor)!;
    return { part, type: SCALE_TYPES[dtype]!, count: product(shape) };
  }

  /** Whether groups of `size` columns divide the matrix; reported if they do not. */
  divides(tensor: string, size: number): boolean {
    if (this.k % size === 0) return true;
    this.refuse(tensor, `groups of ${size} columns do not divide the ${this.k} of its matrix`);
    return false;
  }

  /** Reads a tensor that says the shape of the matrix; true if it is this one. */
  hasShape(tensor: string): boolean {
    const part = this.part(tensor, ['I64'], [2]);
    if (part === undefined) return false;
    const bytes = withFile(part.file, (fd) => readRange(fd, part.offset, part.byteLength));
    const shape = bytes.length === 16 ? [bytes.readBigInt64LE(0), bytes.readBigInt64LE(8)] : [];
    if (shape[0] === BigInt(this.rows) && shape[1] === BigInt(this.k)) return true;
    this.refuse(tensor, `says [${shape.join(', ')}], but config.json requires [${this.rows}, ${this.k}]`);
    return false;
  }
}
