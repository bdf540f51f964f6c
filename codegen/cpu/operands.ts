/** Memory layout for generated C: the parts common to all targets, panels, and C types. */
import type { WeightDecl } from '../../ir/kernel.js';
import { packedDepth, panelColumns } from '../../ir/packing.js';
import { type FormatIn, FORMATS, isFormatIn } from '../../ir/storage.js';
import type { BufferDType, Dim, ExtentName } from '../../ir/types.js';
import { KernelOperands, type Operand } from '../operands.js';
import { literalsOf, RowStatements } from '../scalarPrograms.js';

export type { Operand } from '../operands.js';
export { columnStep, leastCommonMultiple, matricesOf, physicalColumns } from '../operands.js';

export const C_TYPES: Readonly<Record<BufferDType, string>> = {
  f32: 'float',
  bf16: 'uint16_t',
  f16: 'uint16_t',
  e4m3: 'uint8_t',
  i8: 'int8_t',
  i32: 'int32_t',
  bool: 'uint8_t',
  u8: 'uint8_t',
};

/** Elements that headers load and store, by the names of lib/elements.h. */
export const ELEMENT_TYPES = {
  f32: 'TW_F32',
  bf16: 'TW_BF16',
  f16: 'TW_F16',
  e4m3: 'TW_E4M3',
  i8: 'TW_I8',
} as const;

/** The same of any operand. Throws for what is no number. */
export function elementType({ name, dtype }: Operand): string {
  const types: Partial<Record<BufferDType, string>> = ELEMENT_TYPES;
  const type = types[dtype];
  if (type === undefined) throw new Error(`'${name}' has elements of ${dtype}, which no kernel loads as numbers.`);
  return type;
}

/** The names of a module as operands of one kernel. An operand's index is its position in tw_launch.buffers. */
export class COperands extends KernelOperands {
  /** C expression of a buffer's base pointer. */
  base(operand: Operand): string {
    return `((${C_TYPES[operand.dtype]} *)launch->buffers[${operand.index}])`;
  }

  /** Index of an extent in tw_launch.extents: its position among the extents of its function. */
  extentIndex(name: ExtentName): number {
    const index = this.extents.indexOf(name);
    if (index < 0) throw new Error(`${name} is not an extent of the function; it has ${this.extents.join(', ')}.`);
    return index;
  }
}

/** Storage format of a weight that is packed in panels. */
export function panelFormat({ name, layout, format }: WeightDecl): (typeof FORMATS)[FormatIn<'panels'>] {
  if (!isFormatIn('panels', format)) throw new Error(`Weight ${name}: no panels of ${format} (layout ${layout}).`);
  return FORMATS[format];
}

/** Number of elements in one panel of a packed weight. */
export const panelElements = (weight: WeightDecl): number => panelColumns(weight) * packedDepth(weight);

// Numbers as C text.

export const { float: floatLiteral, double: doubleLiteral } = literalsOf({
  nan: '__builtin_nanf("")',
  infinity: '__builtin_inff()',
});

/** Literals of a cap and of its inverse, for templates. */
export const capOf = (cap: number): { readonly value: string; readonly inverse: string } => ({
  value: floatLiteral(cap),
  inverse: floatLiteral(1 / cap),
});

// The statements of a row of generated C: row pointers, row scalars and their broadcasts.

/**
 * A printed value: `f` for float, `m` for a truth value. Row values are C scalars; column values are vectors or masks.
 */
export interface VectorValue {
  readonly code: string;
  readonly kind: 'f' | 'm';
  readonly isRow: boolean;
}

/** Statements that run once per row. `row` is the row's C variable. */
export class CRowScope extends RowStatements<COperands> {
  private readonly extents = new Set<ExtentName>();
  /**
   * Whether the lines of the next row are fetched while a row is stored. Blocks of columns are too short for the
   * processor to find out by itself.
   */
  readonly fetches: boolean;

  constructor(operands: COperands, { fetches = false } = {}) {
    super(operands, 'r');
    this.fetches = fetches;
  }

  /** A fixed number, or the local variable of extentLines that holds a named extent. */
  extent(dim: Dim): string {
    if (typeof dim === 'string') this.extents.add(dim);
    return String(dim);
  }

  /**
   * Local variables, with the names of the extents, for those extents that were used, or that `lines` use. They precede
   * the loop over rows.
   */
  extentLines(lines?: readonly string[]): string[] {
    return [...this.extents]
      .filter((name) => lines === undefined || lines.some((line) => new RegExp(`\\b${name}\\b`).test(line)))
      .map((name) => `const int64_t ${name} = launch->extents[${this.operands.extentIndex(name)}];`);
  }

  /** The row number of an access: the row itself, or the entry of a gather list. */
  rowIndex(via: string | undefined): string {
    if (via === undefined) return 'row';
    const operand = this.operands.get(via);
    return this.define(`index ${via}`, 'int64_t', `${this.operands.base(operand)}[row]`);
  }

  /** Pointer to a buffer's row. */
  rowPointer(operand: Operand, via: string | undefined): string {
    const type = C_TYPES[operand.dtype];
    return this.define(
      `row ${operand.name} ${via ?? ''}`,
      `${type} *`,
      `${this.operands.base(operand)} + ${this.rowIndex(via)} * ${operand.stride}`,
    );
  }

  broadcast(value: VectorValue): string {
    return value.kind === 'f'
      ? this.define(`set ${value.code}`, 'tw_v', `tw_set1(${value.code})`)
      : this.define(`set ${value.code}`, 'tw_m', `tw_setm(${value.code})`);
  }
}
