/** Memory layout for generated C: the parts common to all targets, panels, and C types. */
import type { WeightDecl } from '../../ir/kernel.js';
import { packedDepth, panelColumns } from '../../ir/packing.js';
import { FORMATS, isFormatIn, type FormatIn } from '../../ir/storage.js';
import type { BufferDType, ExtentName } from '../../ir/types.js';
import type { Operand } from '../operands.js';
import { KernelOperands } from '../operands.js';

export type { Operand } from '../operands.js';
export { columnStep, leastCommonMultiple, matricesOf, physicalColumns } from '../operands.js';

export const C_TYPES: Readonly<Record<BufferDType, string>> = {
  f32: 'float',
  bf16: 'uint16_t',
  f16: 'uint16_t',
  e4m3: 'uint8_t',
  i8: 'int8_t',
  i32: 'int32_t',
  bool: 'uint8_t',
  u8: 'uint8_t',
};

/** The names of a module as operands of one kernel. An operand's index is its position in tw_launch.buffers. */
export class Operands extends KernelOperands {
  /** C expression of a buffer's base pointer. */
  base(operand: Operand): string {
    return `((${C_TYPES[operand.dtype]} *)launch->buffers[${operand.index}])`;
  }

  /** Index of an extent in tw_launch.extents: its position among the extents of its function. */
  extentIndex(name: ExtentName): number {
    const index = this.extents.indexOf(name);
    if (index < 0) throw new Error(`${name} is not an extent of the function; it has ${this.extents.join(', ')}.`);
    return index;
  }
}

/** Storage format of a weight that is packed in panels. */
export function panelFormat({ name, layout, format }: WeightDecl): (typeof FORMATS)[FormatIn<'panels'>] {
  if (!isFormatIn('panels', format)) throw new Error(`Weight ${name}: no panels of ${format} (layout ${layout}).`);
  return FORMATS[format];
}

/** Number of elements in one panel of a packed weight. */
export const panelElements = (weight: WeightDecl): number => panelColumns(weight) * packedDepth(weight);
