/** Values of outputs at a site, and their stores to global memory. */
import type { Output } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import type { CudaOperands, Operand } from './operands.js';
import type { RowScope } from './rowScope.js';
import { columnAt, type Body, type Site } from './scalarPrinter.js';

/**
 * The value to compute for an output. A store rounds by itself, so a preceding rounding to the same type is dropped.
 */
function valueOf(output: Output, operands: CudaOperands): Scalar {
  const { value } = output;
  return output.kind === 'store' && value.op === 'roundBf16' && operands.get(output.buffer).dtype === 'bf16'
    ? value.a
    : value;
}

/** C expressions of an output's values at a site, one per lane: floats, or the source of the stored bytes. */
export const programValues = (output: Output, body: Body, site: Site): string[] =>
  body.row.operands.get(output.buffer).dtype === 'u8'
    ? body.bytes(output.value, site)
    : body.floats(valueOf(output, body.row.operands), site);

/** Stores one value at a site, or two at an even column. `via`: the index that selects the row; −1 selects none. */
export function storeLine(
  operand: Operand,
  scope: RowScope,
  site: Site,
  values: readonly string[],
  via?: string,
): string {
  const index = via === undefined ? '' : scope.rowIndex(via);
  const guard = via === undefined ? '' : `if (${index} >= 0) `;
  const pointer =
    via === undefined
      ? scope.rowPointer(operand, undefined)
      : `${scope.operands.base(operand)} + ${index} * ${operand.stride}`;
  if (operand.columns === 1) return `${guard}tw_store_${operand.dtype}(${pointer}, ${values[0]!});`;
  if (operand.columnStride !== 1) {
    const stores = values.map((value, lane) => {
      const at = `${pointer} + (${columnAt(site, lane)}) * ${operand.columnStride}ll`;
      return `tw_store_${operand.dtype}(${at}, ${value});`;
    });
    return `${guard}{ ${stores.join(' ')} }`;
  }
  const width = values.length === 2 ? '2' : '';
  return `${guard}tw_store${width}_${operand.dtype}(${pointer} + ${site.column}, ${values.join(', ')});`;
}
