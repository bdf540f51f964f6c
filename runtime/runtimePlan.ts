/** The parts of a plan that a runtime reads, and small queries used by binding, searching and profiling. */
import type { BufferDecl, Kernel } from '../ir/kernel.js';
import { kernelWrites } from '../ir/kernelAccess.js';
import { columnStride, rowStride, type FunctionPlan, type Plan } from '../ir/plan.js';
import { DTYPE_BYTES, isFloat, type Dim } from '../ir/types.js';

/** The runtime does not read schedules. */
export type RuntimeFunction = Omit<FunctionPlan, 'schedules'>;

export interface RuntimePlan extends Omit<Plan, 'functions'> {
  readonly functions: readonly RuntimeFunction[];
  /** States of which each stage of a pipeline has rows of its own, as none reads what another wrote. */
  readonly perStage?: readonly string[];
}

/** The function called `name`. Throws RangeError if the plan has none. */
export function functionOf(plan: RuntimePlan, name: string): RuntimeFunction {
  const found = plan.functions.find((each) => each.interface.name === name);
  if (found === undefined)
    throw new RangeError(
      `There is no function ${name}; there is ${plan.functions.map((each) => each.interface.name).join(', ')}.`,
    );
  return found;
}

export const nameOf = (fn: RuntimeFunction): string => fn.interface.name;

/** The kernel of a launch. Throws if the plan has none. */
export function kernelOf(fn: RuntimeFunction, launch: number): Kernel {
  const name = fn.launches[launch]?.kernel;
  const found = fn.kernels.find((kernel) => kernel.name === name);
  if (found === undefined)
    throw new Error(`Launch ${launch} of ${nameOf(fn)} runs ${name}, which the plan does not have.`);
  return found;
}

/** A floating-point buffer that a kernel writes, to be searched for values that are not finite. */
export interface FloatWrite {
  readonly buffer: string;
  readonly dtype: 'f32' | 'f16' | 'bf16';
  readonly rows: Dim;
  readonly columns: Dim;
  /** Elements from row to row. */
  readonly stride: number;
  /** Whether −∞ is a valid value: in masks, and in the parts of a log-sum-exp (a target outside its block). */
  readonly allowsNegativeInfinity: boolean;
}

/** Bytes from one row of a buffer to the next. */
export function rowBytes(fn: RuntimeFunction, buffer: BufferDecl): number {
  const bytes = DTYPE_BYTES[buffer.dtype];
  return rowStride(buffer, fn.capacity.extents, bytes) * bytes;
}

/** What each launch of a function writes, in order. */
export function floatWrites(fn: RuntimeFunction): readonly (readonly FloatWrite[])[] {
  const buffers = new Map(fn.buffers.map((buffer) => [buffer.name, buffer]));
  const masks = masksOf(fn);
  const ofKernel = new Map<string, readonly FloatWrite[]>();
  const writesOf = (kernel: Kernel): readonly FloatWrite[] =>
    [...kernelWrites(kernel)].flatMap((name) => {
      const buffer = buffers.get(name);
      if (buffer === undefined) throw new Error(`The plan has no buffer ${name}.`);
      const { dtype, rows, columns } = buffer;
      if (!isFloat(dtype)) return [];
      const found = { buffer: name, dtype, allowsNegativeInfinity: masks.has(name) };
      // By column it is a matrix of as many rows as it has columns.
      return buffer.isByColumn === true
        ? [{ ...found, rows: columns, columns: rows, stride: columnStride(buffer, fn.capacity.extents) }]
        : [{ ...found, rows, columns, stride: rowBytes(fn, buffer) / DTYPE_BYTES[dtype] }];
    });
  return fn.launches.map((_, i) => {
    const kernel = kernelOf(fn, i);
    const known = ofKernel.get(kernel.name) ?? writesOf(kernel);
    ofKernel.set(kernel.name, known);
    return known;
  });
}

function masksOf(fn: RuntimeFunction): ReadonlySet<string> {
  const masks = new Set<string>();
  for (const kernel of fn.kernels) {
    if (kernel.anchor === 'logprob') masks.add(kernel.parts);
    if (kernel.anchor === 'sample') for (const name of kernelWrites(kernel)) masks.add(name);
    if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias') masks.add(kernel.mask.buffer);
  }
  return masks;
}
