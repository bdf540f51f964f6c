/** The statements of a row of generated C: row pointers, row scalars and their broadcasts. */
import type { Dim, ExtentName } from '../../ir/types.js';
import { RowStatements } from '../rowStatements.js';
import { C_TYPES, type Operand, type Operands } from './layout.js';

/**
 * A printed value: `f` for float, `m` for a truth value. Row values are C scalars; column values are vectors or masks.
 */
export interface Value {
  readonly code: string;
  readonly kind: 'f' | 'm';
  readonly isRow: boolean;
}

/** Statements that run once per row. `row` is the row's C variable. */
export class RowScope extends RowStatements<Operands> {
  private readonly extents = new Set<ExtentName>();
  /**
   * Whether the lines of the next row are fetched while a row is stored. Blocks of columns are too short for the
   * processor to find out by itself.
   */
  readonly fetches: boolean;

  constructor(operands: Operands, { fetches = false } = {}) {
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

  broadcast(value: Value): string {
    return value.kind === 'f'
      ? this.define(`set ${value.code}`, 'tw_v', `tw_set1(${value.code})`)
      : this.define(`set ${value.code}`, 'tw_m', `tw_setm(${value.code})`);
  }
}
