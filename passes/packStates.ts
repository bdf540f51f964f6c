/**
 * Lays rows of narrow states in blocks. Attention gathers the scales of one head for the keys of a path, which are
 * mostly neighbours: they then lie beside each other, where rows would put a scale of every head between them, and
 * padding. A block has the rows of a few pages, so that memory can be put behind the first ones. Kernels in, kernels
 * out.
 */
import type { BufferDecl } from '../ir/kernel.js';
import { ROW_COLUMNS } from '../ir/plan.js';
import type { LoweredModule } from './lowerKernels.js';

/** Numbers that kernels load one by one. Those of 16 bits and codes are copied in aligned pieces of 16 bytes. */
const isNarrow = ({ dtype, columns }: Pick<BufferDecl, 'dtype' | 'columns'>): boolean =>
  dtype === 'f32' && typeof columns === 'number' && columns > 1 && columns < ROW_COLUMNS;

export function packStates(module: LoweredModule): LoweredModule {
  if (!module.states.some(isNarrow)) return module;
  return {
    ...module,
    states: module.states.map((state) => (isNarrow(state) ? { ...state, isBlocked: true } : state)),
    buffers: module.buffers.map((buffer) =>
      buffer.space === 'state' && isNarrow(buffer) ? { ...buffer, isBlocked: true } : buffer,
    ),
  };
}
