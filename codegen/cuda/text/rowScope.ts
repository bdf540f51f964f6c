/** The statements of a row of generated CUDA: row numbers and pointers, and values that were computed before. */
import { printScalar, type Scalar } from '../../../ir/scalar.js';
import { RowStatements } from '../../rowStatements.js';
import { CUDA_TYPES, type CudaOperands, type Operand } from './operands.js';

/** Statements that run once per row. */
export class RowScope extends RowStatements<CudaOperands> {
  readonly row: string;
  private readonly given: ReadonlyMap<string, string>;

  /**
   * `row`: C expression (int) of a readable row. `prefix`: see RowStatements. `given`: C expressions of row values
   * computed earlier, by printScalar of their program.
   */
  constructor(operands: CudaOperands, row: string, prefix = 'r', given: ReadonlyMap<string, string> = new Map()) {
    super(operands, prefix);
    this.row = row;
    this.given = given;
  }

  givenValue(s: Scalar): string | undefined {
    return this.given.get(printScalar(s));
  }

  /** The row number of an access: the row itself, or the entry of a gather list. */
  rowIndex(via: string | undefined): string {
    if (via === undefined) return `(long long)(${this.row})`;
    return this.define(`index ${via}`, 'long long', `${this.operands.base(this.operands.get(via))}[${this.row}]`);
  }

  /** Pointer to a buffer's row, whose columns lie one behind another. */
  rowPointer(operand: Operand, via: string | undefined): string {
    if (operand.columnStride !== 1) throw new Error(`'${operand.name}' lies by column: programs only store into it.`);
    const stride = typeof operand.columns === 'string' ? `(long long)${operand.stride}` : operand.stride;
    return this.define(
      `row ${operand.name} ${via ?? ''}`,
      `${CUDA_TYPES[operand.dtype]} *`,
      `${this.operands.base(operand)} + ${this.rowIndex(via)} * ${stride}`,
    );
  }
}
