/** The row prologue of a contraction: what its programs compute from the row alone, once a row. */
import type { Segment } from '../../../ir/kernel.js';
import { operands as childrenOf, printScalar, type Scalar } from '../../../ir/scalar.js';
import type { CudaOperands } from './operands.js';
import { rowScalars } from './rowScalars.js';
import { RowScope } from './rowScope.js';
import { Body } from './scalarPrinter.js';
import { block, guarded, indent } from './statements.js';

/** The row values of all programs of a block, kept in shared memory as `values.length` floats per row. */
export interface RowPrologue {
  /** The programs, in the order of their floats. */
  readonly scalars: readonly Scalar[];
  /**
   * Statements that a whole converged warp runs for one row. `row` is a C expression (int) of a readable row. The
   * statements end with lane 0 writing to[0 … scalars.length); `to` is a C expression (float *). Empty if there are no
   * scalars.
   */
  readonly text: (row: string, to: string, depth: number) => string;
  /**
   * The same for threads with a row each, which write for themselves. Undefined where a row's parts are added up or
   * compared: that takes a warp.
   */
  readonly ofThread: RowPrologue['text'] | undefined;
  /** The `given` of a Fragment or RowScope. `from` is a C expression (const float *) of the row's floats. */
  readonly given: (from: string) => ReadonlyMap<string, string>;
}

/** The values that `programs` compute from the row alone and from memory: 1/rms from row sums, row scales. */
export function rowPrologue(programs: readonly Scalar[], operands: CudaOperands): RowPrologue {
  const scalars = rowScalars(programs, operands);
  const textWhere =
    (condition: string | undefined): RowPrologue['text'] =>
    (row, to, depth) => {
      if (scalars.length === 0) return '';
      const scope = new RowScope(operands, row, 'y');
      const body = new Body(scope, 'z');
      const stores = scalars.map(
        (s, i) => `(${to})[${i}] = ${body.floats(s, { id: 'row', column: '0', lanes: 1 })[0]!};`,
      );
      return indent(block('', [...scope.lines, ...body.lines, ...guarded(condition, stores)]), depth);
    };
  return {
    scalars,
    text: textWhere('threadIdx.x % 32 == 0'),
    ofThread: scalars.some((s) => readsManyParts(s, operands)) ? undefined : textWhere(undefined),
    given: (from) => new Map(scalars.map((s, i) => [printScalar(s), `(${from})[${i}]`])),
  };
}

/** Whether a row value is made of more than one number of a buffer's row. */
const readsManyParts = (s: Scalar, operands: CudaOperands): boolean =>
  (s.op === 'rowSum' && operands.get(s.buffer).columns !== 1) ||
  childrenOf(s).some((child) => readsManyParts(child, operands));

/** The programs of all segments of a kernel: the argument of rowPrologue. */
export const programsOf = (segments: readonly Pick<Segment, 'outputs'>[]): Scalar[] =>
  segments.flatMap(({ outputs }) => outputs.map(({ value }) => value));
