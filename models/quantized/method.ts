/** Methods of quantization: how a checkpoint stores the matrix of a module that it does not store as floats. */
import { at } from '../../system/at.js';
import { UserError } from '../../errors.js';
import type { Encoding, FilePart, PerPart, ScaleType } from '../../ir/encoding.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { readRange, withFile } from '../../system/read.js';
import type { Json } from '../model/model.js';
import type { StoredTensor } from '../model/tensors.js';

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
  /** Whether it reads matrices of all experts in one tensor. Default: false. */
  readonly hasStacks?: boolean;
  /** Whether matrices of experts are in MXFP4. Default: false. */
  readonly isMicroscaled?: boolean;
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
  /** Of its matrix; of all of them, where it has several: then `stacked` is their number. */
  readonly rows: number;
  readonly k: number;
  readonly stacked: number;
  /** Projections in it. */
  readonly projections: number;
  /** Tensors that were read. */
  readonly read = new Set<string>();
  readonly problems: TensorProblem[] = [];
  private readonly name: string;
  private readonly found: ReadonlyMap<string, StoredTensor>;

  constructor(name: string, found: ReadonlyMap<string, StoredTensor>, shape: readonly number[], projections: number) {
    this.name = name;
    this.found = found;
    this.stacked = shape.length === 2 ? 1 : at(shape, 0);
    this.rows = product(shape.slice(0, -1));
    this.k = at(shape, shape.length - 1);
    this.projections = projections;
  }

  /** A tensor of the module: below it, or, if its name begins with an underscore, beside. */
  private nameOf(tensor: string): string {
    return tensor.startsWith('_') ? `${this.name}${tensor}` : `${this.name}.${tensor}`;
  }

  /** Element type and shape of a tensor of the module; undefined if it has none of this name. */
  get(tensor: string): Pick<StoredTensor, 'dtype' | 'shape'> | undefined {
    return this.found.get(this.nameOf(tensor));
  }

  /** Says what is wrong with a tensor. */
  refuse(tensor: string, text: string): undefined {
    this.problems.push({ tensor: this.nameOf(tensor), text });
    this.read.add(this.nameOf(tensor));
    return undefined;
  }

  /** Where a tensor of the module lies; undefined, with the problem reported, if it is missing or does not fit. */
  part(tensor: string, dtypes: readonly string[], ...shapes: readonly (readonly number[])[]): FilePart | undefined {
    const entry = this.found.get(this.nameOf(tensor));
    if (entry === undefined) return this.refuse(tensor, 'missing');
    if (!('file' in entry)) return this.refuse(tensor, 'lies in several files');
    if (!dtypes.includes(entry.dtype))
      return this.refuse(tensor, `element type ${entry.dtype} is not supported; supported: ${dtypes.join(', ')}`);
    if (!shapes.some((shape) => sameShape(shape, entry.shape)))
      return this.refuse(
        tensor,
        `shape [${entry.shape.slice(0, 8).join(', ')}], but its configuration requires [${at(shapes, 0).join(', ')}]`,
      );
    this.read.add(this.nameOf(tensor));
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

// Keys of quantization configurations.

/** What to do about a checkpoint whose weights cannot be read. */
export const OTHER_WEIGHTS =
  'use the 16-bit checkpoint of the model, or one that was quantized in a supported way: see docs/quantized.md';

/** Most columns of a group, and most rows or columns of a block. */
const MAX_COLUMNS = 1 << 20;

/** A value as settings are compared: text in any case is the same. */
const plainOf = (value: unknown): string => JSON.stringify(value).toLowerCase();

/** An object of settings, with the place that starts its messages. */
export class MethodSettings {
  private readonly json: Json;
  private readonly where: string;

  constructor(json: Json, where: string) {
    this.json = json;
    this.where = where;
  }

  refuse(key: string, wanted: string): never {
    const value = this.json[key];
    const problem = value === undefined ? 'is missing' : `${quote(value)} is not supported`;
    throw new UserError(`${this.where}: ${key} ${problem}; supported: ${wanted}`, OTHER_WEIGHTS);
  }

  isGiven(key: string): boolean {
    return isGiven(this.json[key]);
  }

  /** The first of these keys, which mean the same, that is given. Throws UserError where others contradict it. */
  private first(keys: readonly string[]): string {
    const [key = at(keys, 0), ...others] = keys.filter((each) => this.isGiven(each));
    const other = others.find((each) => plainOf(this.json[each]) !== plainOf(this.json[key]));
    if (other !== undefined)
      throw new UserError(
        `${this.where}: ${key} ${quote(this.json[key])} and ${other} ${quote(this.json[other])} contradict each other`,
        OTHER_WEIGHTS,
      );
    return key;
  }

  /** One of these values; `fallback` if the key is absent. */
  oneOf<T extends string | number | boolean>(keys: readonly string[], values: readonly T[], fallback?: T): T {
    const key = this.first(keys);
    if (!this.isGiven(key) && fallback !== undefined) return fallback;
    const value = this.json[key];
    const found = values.find(
      (each) =>
        each === value ||
        (typeof each === 'string' && typeof value === 'string' && each.toLowerCase() === value.toLowerCase()),
    );
    return found ?? this.refuse(key, values.map((each) => (each === '' ? 'none' : String(each))).join(', '));
  }

  /** Columns of a group; −1 for all, which null may mean too. */
  groupSize(keys: readonly string[]): number {
    const key = this.first(keys);
    const value = this.json[key] ?? -1;
    const isSize = typeof value === 'number' && Number.isInteger(value) && (value === -1 || value > 0);
    return isSize && value <= MAX_COLUMNS ? value : this.refuse(key, '-1, or a number of columns');
  }

  /** Rows and columns of a block, as a list; or as text such as `128x128`, if `isText`. */
  twoSizes(key: string, isText = false): readonly [number, number] {
    const value = this.json[key];
    const sizes = isText && typeof value === 'string' && /^\d{1,7}x\d{1,7}$/.test(value) ? value.split('x') : value;
    const [rows, columns, ...more] = Array.isArray(sizes) ? sizes.map(Number) : [];
    const isSize = (size: number | undefined): size is number =>
      size !== undefined && Number.isInteger(size) && size > 0 && size <= MAX_COLUMNS;
    return isSize(rows) && isSize(columns) && more.length === 0
      ? [rows, columns]
      : this.refuse(key, `two sizes from 1 to ${MAX_COLUMNS}`);
  }

  /** Refuses a key with a value other than nothing. */
  forbid(key: string): void {
    const value = this.json[key];
    const isEmpty =
      !isGiven(value) || value === false || (typeof value === 'object' && Object.keys(value!).length === 0);
    if (!isEmpty) this.refuse(key, 'none');
  }

  /** The object at a key; undefined if there is none. */
  record(key: string): Json | undefined {
    const value = this.json[key];
    if (!isGiven(value)) return undefined;
    return isRecord(value) ? value : this.refuse(key, 'an object');
  }
}

/** `groups of 128`, or what is said of one scale for all columns. */
export const printGroups = (size: number): string => (size === -1 ? 'a scale for each row' : `groups of ${size}`);
