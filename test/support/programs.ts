/** Parts of bindings of native programs, for tests. */
import type { PortBinding, ProgramExtent } from '../../runtime/native.js';

/** The extents T and R, with these sizes. */
export const extentsTR = (T: number, R: number): readonly ProgramExtent[] => [
  { name: 'T', most: T },
  { name: 'R', most: R },
];

/** A vector of an extent that a call copies in or out. */
export const vector = (slot: number, rows: string | number, dtype: PortBinding['dtype'] = 'i32'): PortBinding => ({
  slot,
  dtype,
  rows,
  columns: 1,
  stride: 1,
});
