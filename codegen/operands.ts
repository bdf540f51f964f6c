/** A module's names resolved for one kernel: dtypes, strides, and the order of columns in packed weights. */
import { extentIn, type Extents } from '../ir/extents.js';
import { extentNames, type InputDecl } from '../ir/function.js';
import { groupWidth } from '../ir/groupSums.js';
import type {
  BufferDecl,
  DrawBuffers,
  Kernel,
  KernelModule,
  LogProbKernel,
  Pairing,
  Segment,
  WeightDecl,
} from '../ir/kernel.js';
import { oncePer } from '../ir/oncePer.js';
import { PACKED_COLUMNS, packedDepth } from '../ir/packing.js';
import { columnStride, rowStride } from '../ir/plan.js';
import { FORMATS } from '../ir/storage.js';
import { type BufferDType, type Dim, DTYPE_BYTES, type ExtentName, roundUp } from '../ir/types.js';
import type { MarkOf } from './marks.js';

/** A buffer or weight as generated code reads it. */
export interface Operand {
  readonly name: string;
  /** Index into the generated function's parameters. */
  readonly index: number;
  /** Element type that code loads or stores. For a weight, that of its format. */
  readonly dtype: BufferDType;
  /** Elements from one row to the next, in the mean where they lie in blocks. Meaningless for weights in panels. */
  readonly stride: number;
  /** Elements from one column to the next: 1, but for states whose rows lie in blocks (ir/plan). */
  readonly columnStride: number;
  readonly columns: Dim;
  /** Rows are padded to PACKED_COLUMNS columns, and vectors to ROW_PAD elements: whole vectors may be read. */
  readonly isPadded: boolean;
  /** Whether the caller's data is there before the first kernel of a call runs, and no kernel changes it. */
  readonly isInput: boolean;
  readonly weight?: WeightDecl;
}

export class KernelOperands {
  private readonly names: DeclarationsByName;
  private readonly order: ReadonlyMap<string, number>;
  private readonly kernel: Kernel;
  private readonly capacity: Extents;
  private readonly inputs: readonly InputDecl[];
  /** Extents of the function. A generated kernel takes them all, in this order. */
  readonly extents: readonly ExtentName[];
  /** Marks of the statements of scalar programs; absent: none. */
  readonly markOf: MarkOf | undefined;

  constructor(kernel: Kernel, module: KernelModule, parameters: readonly string[], capacity: Extents, markOf?: MarkOf) {
    this.names = namesOf(module);
    this.order = new Map(parameters.map((name, i) => [name, i]));
    this.kernel = kernel;
    this.capacity = capacity;
    this.inputs = module.interface.inputs;
    this.extents = extentNames(module.interface);
    this.markOf = markOf;
  }

  /** The named extent of a buffer's rows, and how many there are at most. Throws if the number of rows is fixed. */
  rowsOf(name: string): { readonly extent: ExtentName; readonly most: number } {
    const rows = this.names.buffers.get(name)?.rows;
    if (typeof rows !== 'string')
      throw new Error(`Kernel ${this.kernel.name} (${this.kernel.path}): '${name}' has no named rows.`);
    return { extent: rows, most: extentIn(rows, this.capacity) };
  }

  /** Most tokens of a path whose positions are the input in this buffer. */
  maxPath(buffer: string): number {
    const role = this.inputs.find((input) => input.buffer === buffer)?.role;
    return role?.kind === 'depth' ? (role.below ?? Infinity) : Infinity;
  }

  /** Rows of a buffer or state: a fixed number or a named extent. Throws if there is no buffer of this name. */
  dimOf(name: string): Dim {
    const buffer = this.names.buffers.get(name);
    if (buffer === undefined) throw new Error(`Kernel ${this.kernel.name}: there is no buffer '${name}'.`);
    return buffer.rows;
  }

  /** The same in the largest call. */
  maxRows(name: string): number {
    return extentIn(this.dimOf(name), this.capacity);
  }

  /** Throws if neither a buffer nor a weight has this name. */
  get(name: string): Operand {
    const index = this.order.get(name);
    if (index === undefined) throw new Error(`Kernel ${this.kernel.name}: '${name}' is not one of its parameters.`);
    const weight = this.names.weights.get(name);
    if (weight !== undefined) {
      const dtype = FORMATS[weight.format].element;
      return {
        name,
        index,
        dtype,
        stride: packedDepth(weight),
        columnStride: 1,
        columns: weight.k,
        isPadded: false,
        isInput: false,
        weight,
      };
    }
    const buffer = this.names.buffers.get(name);
    if (buffer === undefined)
      throw new Error(
        `Kernel ${this.kernel.name} (${this.kernel.path}) uses '${name}', which the module does not declare.`,
      );
    const stride = rowStride(buffer, this.capacity, DTYPE_BYTES[buffer.dtype]);
    return {
      name,
      index,
      dtype: buffer.dtype,
      stride,
      columnStride: columnStride(buffer),
      columns: buffer.columns,
      isPadded: buffer.space !== 'weight',
      isInput: buffer.space === 'input',
    };
  }

  /** Throws if the name does not belong to a packed weight. */
  weight(name: string): Operand & { readonly weight: WeightDecl } {
    const operand = this.get(name);
    if (operand.weight === undefined) throw new Error(`Kernel ${this.kernel.name}: '${name}' is not a weight.`);
    return { ...operand, weight: operand.weight };
  }
}

/** Columns of a segment in its packed weight, padding included. */
export function physicalColumns(columns: number, pairing: Pairing): number {
  const lying = pairing.kind === 'interleave' ? 2 * pairing.width * Math.ceil(columns / pairing.width) : columns;
  return roundUp(lying, PACKED_COLUMNS);
}

/** Number of physical columns per logical column. */
export const matricesOf = (pairing: Pairing): 1 | 2 => (pairing.kind === 'interleave' ? 2 : 1);

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));
export const leastCommonMultiple = (a: number, b: number): number => (a / gcd(a, b)) * b;

/**
 * A work item's physical columns must be a multiple of this: whole heads if columns are rotated, whole groups that are
 * summed, whole pairs if matrices are interleaved, and always 32 logical columns, for whole blocks of row sums and the
 * padding of panels.
 */
export function columnStep({ pairing, outputs }: Pick<Segment, 'pairing' | 'outputs'>): number {
  switch (pairing.kind) {
    case 'none':
      return leastCommonMultiple(groupWidth(outputs) ?? 1, 32);
    case 'rotate':
      return leastCommonMultiple(pairing.headDim, 32);
    case 'interleave':
      return leastCommonMultiple(2 * pairing.width, 64);
    default:
      return pairing satisfies never;
  }
}

/** Parameters of what tokens are drawn with. */
export const drawOperands = (
  { inverseTemperature, low, high, ids }: DrawBuffers,
  operands: KernelOperands,
): Readonly<Record<'inverseTemperature' | 'low' | 'high', number>> & {
  readonly maps: boolean;
  readonly ids: number | undefined;
} => ({
  inverseTemperature: operands.get(inverseTemperature).index,
  low: operands.get(low).index,
  high: operands.get(high).index,
  maps: ids !== undefined,
  ids: ids === undefined ? undefined : operands.get(ids).index,
});

/** Where a head stores logits, and how many rows of them. */
export function storedLogits({ logits }: Pick<LogProbKernel, 'logits'>, operands: KernelOperands) {
  if (logits === undefined) return undefined;
  const { index: buffer, stride, columns } = operands.get(logits);
  return {
    buffer,
    stride,
    isEven: typeof columns === 'number' && columns % 2 === 0,
    extent: operands.rowsOf(logits).extent,
  };
}

// Lookup of a module's declarations by name.

export interface DeclarationsByName {
  readonly buffers: ReadonlyMap<string, BufferDecl>;
  readonly weights: ReadonlyMap<string, WeightDecl>;
}

/** The names of a module. Found once, because they are looked up for each kernel and each candidate schedule. */
export const namesOf: (module: KernelModule) => DeclarationsByName = oncePer((module: KernelModule) => ({
  buffers: new Map(module.buffers.map((buffer) => [buffer.name, buffer])),
  weights: new Map(module.weights.map((weight) => [weight.name, weight])),
}));
