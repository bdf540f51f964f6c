/** Finds the buffers that an epilogue reads at the position that it writes. */
import type { Segment } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf } from '../../../ir/scalar.js';
import type { CudaOperands, Operand } from '../text/operands.js';

/** Buffers that the segment's programs read at the element itself, each once. */
export function elementLoads({ outputs }: Segment, operands: CudaOperands): Operand[] {
  const found = new Map<string, Operand>();
  const visit = (s: Scalar): void => {
    if (s.op === 'load' && s.access.kind === 'element' && s.access.via === undefined) {
      const operand = operands.get(s.buffer);
      if (operand.columns !== 1) found.set(s.buffer, operand);
    }
    childrenOf(s).forEach(visit);
  };
  outputs.forEach(({ value }) => visit(value));
  return [...found.values()];
}
