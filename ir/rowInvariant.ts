/** Which programs have the same value in every column of a row. */
import { isBinary, isUnary, operands, type Scalar } from './scalar.js';

/** `also`: other expressions that count as the same in all columns that are asked about. */
export function isRowInvariant(program: Scalar, also: (s: Scalar) => boolean = () => false): boolean {
  if (also(program)) return true;
  const areOperands = (): boolean => operands(program).every((operand) => isRowInvariant(operand, also));
  if (isUnary(program) || isBinary(program)) return areOperands();
  switch (program.op) {
    case 'acc':
    case 'columnIndex':
    case 'rotateHalf':
    case 'groupSum':
    case 'segmentSum':
      return false;
    case 'load':
      return program.access.kind === 'row';
    case 'const':
    case 'rowIndex':
    case 'rowSum':
      return true;
    case 'select':
      return areOperands();
    default:
      return program satisfies never;
  }
}
