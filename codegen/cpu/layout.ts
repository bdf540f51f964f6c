/** Memory layout for generated C: what is common to all targets, panels, and C types. */
import type { WeightDecl } from '../../ir/kernel.js';
import { PANEL, packedDepth } from '../../ir/packing.js';
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
  i32: 'int32_t',
  bool: 'uint8_t',
  u8: 'uint8_t',
};

/** Names of a module resolved to operands of one kernel; an operand's index is its place in tw_launch.buffers. */
export class Operands extends KernelOperands {
  /** C expression of a buffer's base. */
  base(operand: Operand): string {
    return `((${C_TYPES[operand.dtype]} *)launch->buffers[${operand.index}])`;
  }

  /** The place of an extent in tw_launch.extents: that among the extents of its function. */
  extentIndex(name: ExtentName): number {
    const index = this.extents.indexOf(name);
    if (index < 0) throw new Error(`${name} is not an extent of the function; it has ${this.extents.join(', ')}.`);
    return index;
  }
}

/** Storage format of a weight that lies in panels of 16 columns. */
export function panelFormat({ name, layout, format }: WeightDecl): (typeof FORMATS)[FormatIn<'panels'>] {
  if (!isFormatIn('panels', format)) throw new Error(`Weight ${name}: no panels of ${format} (layout ${layout}).`);
  return FORMATS[format];
}

/** Elements of one panel of 16 columns of a packed weight. */
export const panelElements = (weight: WeightDecl): number => PANEL * packedDepth(weight);
