/** Tensor maps of kernels over fibres (test/support/cudaWarp/hopper.h). */
import { DTYPE_BYTES } from '../../../ir/types.js';
import type { TensorMapDecl } from '../../../ir/cuda.js';

/**
 * C expressions of a kernel's tensor maps, as arguments. Rows past the extent exist up to `rowPad` and hold garbage.
 */
export const mapArguments = (
  maps: readonly TensorMapDecl[],
  rowPad: number,
  extentOf: (name: string) => string,
): string[] =>
  maps.map(({ parameter, dtype, rows, columns, stride, boxRows, boxColumns, swizzle }) => {
    const extent =
      typeof rows === 'number' ? String(rows) : `(${extentOf(rows)} + ${rowPad - 1}) / ${rowPad} * ${rowPad}`;
    return (
      `tw_map_of({ (const unsigned char *)p[${parameter}], ${extent}, ${columns}, ${stride}, ` +
      `${boxRows}, ${boxColumns}, ${DTYPE_BYTES[dtype]}, ${swizzle} })`
    );
  });
