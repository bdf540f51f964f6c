/**
 * Lays rows of narrow states one behind another. Attention gathers the scales of keys one by one: with rows padded to
 * whole vectors each key costs a memory transaction for its scale, without padding neighbours share one. Kernels in,
 * kernels out.
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
    states: module.states.map((state) => (isNarrow(state) ? { ...state, isDense: true } : state)),
    buffers: module.buffers.map((buffer) =>
      buffer.space === 'state' && isNarrow(buffer) ? { ...buffer, isDense: true } : buffer,
    ),
  };
}
