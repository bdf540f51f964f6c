/** How generated CUDA names memory: C types, base pointers of buffers, kernel heads; and what a generator returns. */
import type { CudaKernelText, GridExtent, TensorMapDecl } from '../../../ir/cuda.js';
import { printScalar, type Scalar } from '../../../ir/scalar.js';
import type { BufferDType } from '../../../ir/types.js';
import { KernelOperands, type Operand } from '../../operands.js';
import { plainNames, ValueNames } from './names.js';
import { RowStatements } from '../../scalarPrograms.js';

export type { Operand } from '../../operands.js';
export { leastCommonMultiple, matricesOf, physicalColumns } from '../../operands.js';

/** Element types of lib/elements.cuh. */
export const ELEMENT_TYPES: Readonly<Record<BufferDType, string>> = {
  f32: 'f32',
  bf16: 'bf16',
  f16: 'f16',
  e4m3: 'e4m3',
  i8: 'i8',
  i32: 'i32',
  bool: 'flag',
  u8: 'u8',
};

/** The names of a module as operands of one kernel. Parameters are typed pointers with plain names. */
export class CudaOperands extends KernelOperands {
  /** C++ names of the parameters, in order. */
  readonly parameterNames: readonly string[];
  private readonly parameterList: readonly string[];

  constructor(...given: ConstructorParameters<typeof KernelOperands>) {
    super(...given);
    [, , this.parameterList] = given;
    this.parameterNames = plainNames(this.parameterList, this.extents);
  }

  /** Buffers and weights, in the order of the parameters. */
  get parameters(): readonly Operand[] {
    return this.parameterList.map((name) => this.get(name));
  }

  /** C++ name of a parameter. */
  nameOf({ index }: Operand): string {
    return this.parameterNames[index]!;
  }

  /** C expression of a buffer's base pointer. */
  base(operand: Operand): string {
    return this.nameOf(operand);
  }
}

/** A kernel's text without the prelude, how to launch it, and whether it waits for the kernel before it. */
export type EmittedCuda = Pick<CudaKernelText, 'source' | 'tensorMaps' | 'launch' | 'waitsForPredecessor'>;

/** A kernel of blocks side by side, in `lines` lines, with so much dynamic shared memory each. */
export const emittedPlain = (
  source: string,
  threads: number,
  gridX: GridExtent,
  { lines = 1, sharedBytes = 0 }: { readonly lines?: number; readonly sharedBytes?: number } = {},
): EmittedCuda => ({
  source,
  tensorMaps: [],
  waitsForPredecessor: true,
  launch: { threads, sharedBytes, cluster: 1, gridX, gridY: { kind: 'constant', count: lines } },
});

/** C++ names of the parameters of tensor maps: of a matrix, its name and `_map`, with a number from the second on. */
export const mapNames = (operands: CudaOperands, maps: readonly TensorMapDecl[]): string[] =>
  maps.map(({ parameter }, i) => {
    const before = maps.slice(0, i).filter((map) => map.parameter === parameter).length;
    return `${operands.parameterNames[parameter]!}_map${before === 0 ? '' : before + 1}`;
  });

export interface CudaKernelHead {
  readonly symbol: string;
  readonly extents: readonly string[];
  readonly operands: CudaOperands;
  readonly tensorMaps: readonly TensorMapDecl[];
  readonly threads: number;
  /** Number of blocks that must be able to share a multiprocessor's registers; 1 by default. */
  readonly blocks?: number;
  /**
   * Whether pointers are declared __restrict__: no two parameters that a kernel writes overlap, and it reads nothing
   * that it writes. True by default. The compiler may then move loads before stores.
   */
  readonly isRestrict?: boolean;
}

/** The head of a generated kernel up to its opening brace, with the signature that CudaKernelText describes. */
export function kernelHead({
  symbol,
  extents,
  operands,
  tensorMaps,
  threads,
  blocks = 1,
  isRestrict = true,
}: CudaKernelHead): string {
  const sizes = extents.map((name) => `int ${name}`);
  const restrict = isRestrict ? '__restrict__ ' : '';
  const named = operands.parameters.map(
    (operand) => `${ELEMENT_TYPES[operand.dtype]} *${restrict}${operands.nameOf(operand)}`,
  );
  const views = mapNames(operands, tensorMaps).map((name) => `const __grid_constant__ TensorMap ${name}`);
  const all = [...sizes, ...named, ...views].map((each) => `    ${each}`).join(',\n');
  return `extern "C" __global__ void __launch_bounds__(${threads}, ${blocks})\n${symbol}(\n${all}) {\n`;
}

/** Whether an element has a byte: a word holds four of them, of two pairs. */
export const isByte = ({ dtype }: Pick<Operand, 'dtype'>): boolean =>
  dtype === 'u8' || dtype === 'e4m3' || dtype === 'i8';

/** Elements from the first one to the first of row `row`, a C expression; of an int, `stride` has a suffix. */
export function rowOffset({ stride, columnStride, columns }: Operand, row: string, suffix = ''): string {
  if (columnStride !== 1)
    return `(${row} & ~${columnStride - 1}) * ${stride}${suffix} + (${row} & ${columnStride - 1})`;
  return `${row} * ${typeof columns === 'string' ? `(long long)${stride}` : `${stride}${suffix}`}`;
}

// The statements of a row of generated CUDA: row numbers and pointers, and values that were computed before.

/** Statements that run once per row. */
export class CudaRowScope extends RowStatements<CudaOperands> {
  readonly row: string;
  /** What adds up the parts of a row: a C expression (gemm/rowValues.cuh). Undefined: functions, at once. */
  readonly sums: string | undefined;
  private readonly given: ReadonlyMap<string, string>;
  private readonly defined = new Map<string, string>();
  private readonly taken: ValueNames;

  /**
   * `row`: C expression (int) of a readable row. `prefix`: see RowStatements. `given`: C expressions of row values
   * computed earlier, by printScalar of their program.
   */
  constructor(
    operands: CudaOperands,
    row: string,
    prefix = 'r',
    given: ReadonlyMap<string, string> = new Map(),
    sums?: string,
  ) {
    super(operands, prefix);
    this.row = row;
    this.sums = sums;
    this.given = given;
    this.taken = new ValueNames(operands.parameterNames);
  }

  /** A new variable, called after the graph's `name`. */
  nameOf(name: string | undefined, suffix?: string): string {
    return this.taken.take(name, suffix);
  }

  /** `name`: that of the graph. */
  override define(key: string, type: string, code: string, name?: string): string {
    const known = this.defined.get(key);
    if (known !== undefined) return known;
    const own = this.nameOf(name);
    this.defined.set(key, own);
    const declared = type.endsWith('*') ? `${type}const ${own}` : `const ${type} ${own}`;
    this.statements.push({ name: own, type, line: `${declared} = ${code};${this.mark}` });
    return own;
  }

  givenValue(s: Scalar): string | undefined {
    return this.given.get(printScalar(s));
  }

  /** The row number of an access: the row itself, or the entry of a gather list. */
  rowIndex(via: string | undefined): string {
    if (via === undefined) return /^\w+$/.test(this.row) ? `(long long)${this.row}` : `(long long)(${this.row})`;
    return this.define(
      `index ${via}`,
      'long long',
      `${this.operands.base(this.operands.get(via))}[${this.row}]`,
      `${via}_entry`,
    );
  }

  /** Pointer to a buffer's row, whose columns lie one behind another. */
  rowPointer(operand: Operand, via: string | undefined): string {
    if (operand.columnStride !== 1) throw new Error(`'${operand.name}' lies in blocks: only single elements are read.`);
    return this.firstOfRow(operand, via);
  }

  /** Pointer to the first element of a buffer's row, `columnStride` elements before the second. */
  firstOfRow(operand: Operand, via: string | undefined): string {
    return this.define(
      `row ${operand.name} ${via ?? ''}`,
      `${ELEMENT_TYPES[operand.dtype]} *`,
      `${this.operands.base(operand)} + ${rowOffset(operand, this.rowIndex(via))}`,
      `${operand.name}_row`,
    );
  }
}
