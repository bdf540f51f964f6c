/** Where elements lie for generated C: what is common to all targets, panels, and C types. */
import type { WeightDecl } from '../../ir/kernel.js';
import { VNNI_DEPTH } from '../../ir/packing.js';
import type { BufferDType } from '../../ir/types.js';
import { roundUp } from '../../ir/types.js';
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
}

/** Elements of one panel of 16 columns of a packed weight. */
export const panelElements = (weight: WeightDecl): number =>
  16 * (weight.layout === 'vnni' ? roundUp(weight.k, VNNI_DEPTH) : weight.k);
