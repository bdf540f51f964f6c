/** Which parts of programs are computed once a row. */
import { isRowInvariant } from '../../../ir/rowInvariant.js';
import { operands as childrenOf, printScalar, type Scalar } from '../../../ir/scalar.js';
import type { CudaOperands } from './operands.js';

/** Leaves that make a row value expensive, so that it is worth computing once per row for all columns. */
const isDear = (s: Scalar): boolean => s.op === 'rowSum' || s.op === 'load' || childrenOf(s).some(isDear);

/** Also a vector's element: a column of its own. */
const isRowOnly = (s: Scalar, operands: CudaOperands): boolean =>
  isRowInvariant(
    s,
    (each) => each.op === 'load' && each.access.kind === 'element' && operands.get(each.buffer).columns === 1,
  );

/**
 * The largest sub-programs of `programs` that depend on the row alone and read memory (1/rms of a row), each once. A
 * block computes them once per row and passes them to RowScope as `given`.
 */
export function rowScalars(programs: readonly Scalar[], operands: CudaOperands): Scalar[] {
  const found = new Map<string, Scalar>();
  const visit = (s: Scalar): void => {
    if (isRowOnly(s, operands)) {
      if (isDear(s)) found.set(printScalar(s), s);
    } else if (s.op !== 'sin' && s.op !== 'cos') childrenOf(s).forEach(visit);
  };
  programs.forEach(visit);
  return [...found.values()];
}
