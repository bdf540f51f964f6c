/** What interpreters of several kernels compute: operands, dot products, and what scalar programs read. */
import type { GemmKernel, LogProbKernel } from './kernel.js';
import type { ScalarContext } from './evaluateScalar.js';
import type { KernelMemory, View } from './kernelMemory.js';
import { roundToCodes } from './rounding.js';

/** The left operand of a contraction [rows, k], rounded to codes where the kernel says so. */
export function leftOperand(memory: KernelMemory, kernel: GemmKernel | LogProbKernel, rows: number): View {
  const a = memory.read(kernel.a);
  if (a.rows !== rows || a.columns !== kernel.k) {
    throw new Error(`'${kernel.a}' is [${a.rows}, ${a.columns}], the contraction needs [${rows}, ${kernel.k}].`);
  }
  if (kernel.rounding === undefined) return a;
  const rounded = new Float64Array(a.data.length);
  for (let row = 0; row < a.rows; row++) {
    const at = row * a.columns;
    rounded.set(roundToCodes(a.data.subarray(at, at + a.columns), kernel.rounding.columns), at);
  }
  return { ...a, data: rounded };
}

/** The leaves of a program: loads and row sums read memory; `acc` and `headDim` come from the anchor. */
export function programContext(memory: KernelMemory, leaves: Pick<ScalarContext, 'acc' | 'headDim'>): ScalarContext {
  return {
    row: 0,
    column: 0,
    ...leaves,
    load: (buffer, access, row, column) => memory.load(memory.read(buffer), access, row, column),
    rowSum: (buffer, via, row, by) => partSum(memory, buffer, via, row, 0, memory.read(buffer).columns, by),
    partSum: (...of) => partSum(memory, ...of),
  };
}

function partSum(
  memory: KernelMemory,
  buffer: string,
  via: string | undefined,
  row: number,
  first: number,
  count: number,
  by: 'max' | undefined,
): number {
  const view = memory.read(buffer);
  if (first + count > view.columns)
    throw new Error(`sums ${buffer}[…, ${first}…${first + count}), which has only ${view.columns} columns.`);
  const at = (via === undefined ? row : memory.index(via, row, view.rows)) * view.columns + first;
  if (by === 'max') return view.data.subarray(at, at + count).reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  for (let i = at; i < at + count; i++) sum += view.data[i]!;
  return sum;
}

/**
 * Dot products of one row of `a` with consecutive rows of `b`, one for each element of `out`. Four are computed at a
 * time, each in order of k.
 */
export function dots(
  a: Float64Array,
  aStart: number,
  b: Float64Array,
  bStart: number,
  length: number,
  out: Float64Array,
): void {
  const whole = out.length - (out.length % 4);
  for (let j = 0; j < whole; j += 4) {
    const [b0, b1, b2, b3] = [
      bStart + j * length,
      bStart + (j + 1) * length,
      bStart + (j + 2) * length,
      bStart + (j + 3) * length,
    ];
    let [s0, s1, s2, s3] = [0, 0, 0, 0];
    for (let i = 0; i < length; i++) {
      const x = a[aStart + i]!;
      s0 += x * b[b0 + i]!;
      s1 += x * b[b1 + i]!;
      s2 += x * b[b2 + i]!;
      s3 += x * b[b3 + i]!;
    }
    out[j] = s0;
    out[j + 1] = s1;
    out[j + 2] = s2;
    out[j + 3] = s3;
  }
  for (let j = whole; j < out.length; j++) out[j] = dot(a, aStart, b, bStart + j * length, length);
}

export function dot(a: Float64Array, aStart: number, b: Float64Array, bStart: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[aStart + i]! * b[bStart + i]!;
  return sum;
}
