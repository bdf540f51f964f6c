/** How many rows of a buffer hold a kernel's results. */
import { extentIn } from '../ir/extents.js';
import { outputsOf } from '../ir/kernelAccess.js';
import type { BufferDecl, Kernel } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';

/**
 * Rows of `buffer` that a launch on random inputs writes, from the first on. Slots count up from 0 (integersFor), so of
 * a state those are as many as the kernel has rows.
 */
export function resultRows(kernel: Kernel, buffer: Pick<BufferDecl, 'name' | 'rows'>, { extents }: Bucket): number {
  const rows = extentIn(buffer.rows, extents);
  const isScattered = outputsOf(kernel).some(
    (output) => output.kind === 'store' && output.via !== undefined && output.buffer === buffer.name,
  );
  return isScattered ? Math.min(rows, extentIn(kernel.rows, extents)) : rows;
}
