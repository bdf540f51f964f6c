/**
 * Keeps the residual stream in 24 bits. If a kernel stores an f32 buffer and also its rounding to bf16 (the operand of
 * the next product), the f32 buffer shrinks to the one byte that extends the bf16 number to 24 bits. Kernels in,
 * kernels out.
 *
 * An epilogue that adds to the stream then reads 3 bytes and writes 3 bytes per element, instead of 4 and 6. The error
 * of each addition is at most 2⁻¹⁶ of the stream's value, 1/128 of the error of rounding a product's operands to bf16.
 */
import type { BufferDecl, Kernel, KernelModule, Output } from '../ir/kernel.js';
import { kernelReads, outputsOf } from '../ir/kernelAccess.js';
import { mapScalar, operands, printScalar, readOf, type Scalar } from '../ir/scalar.js';

/** A buffer that shrinks. */
interface Split {
  readonly tail: BufferDecl;
  /** The bf16 buffer that already holds the upper half. */
  readonly upper: string;
}

const loadsOf = (s: Scalar, buffer: string): readonly Scalar[] => [
  ...(s.op === 'load' && s.buffer === buffer ? [s] : []),
  ...operands(s).flatMap((each) => loadsOf(each, buffer)),
];

/** Whether the kernel reads `buffer` only element by element, in the programs of its outputs. */
function readsElements(kernel: Kernel, buffer: string): boolean {
  const others: Kernel =
    kernel.anchor === 'gemm'
      ? { ...kernel, segments: kernel.segments.map((segment) => ({ ...segment, outputs: [] })) }
      : kernel;
  if (kernel.anchor !== 'loop' && kernelReads(others).has(buffer)) return false;
  const isSummed = (s: Scalar): boolean =>
    (s.op !== 'load' && readOf(s)?.buffer === buffer) || operands(s).some(isSummed);
  const values = outputsOf(kernel).map(({ value }) => value);
  return (
    !values.some(isSummed) &&
    values.flatMap((value) => loadsOf(value, buffer)).every((s) => s.op === 'load' && s.access.kind === 'element')
  );
}

/** The buffer with the bf16 rounding of what `output` stores, if another output stores it. */
const upperOf = (
  output: Output,
  outputs: readonly Output[],
  declared: ReadonlyMap<string, BufferDecl>,
): string | undefined => {
  const rounded = printScalar({ op: 'roundBf16', a: output.value });
  return outputs.find(
    ({ kind, buffer, value }) =>
      kind === 'store' && declared.get(buffer)?.dtype === 'bf16' && printScalar(value) === rounded,
  )?.buffer;
};

function splitsOf({ buffers, kernels }: KernelModule): ReadonlyMap<string, Split> {
  const declared = new Map(buffers.map((buffer) => [buffer.name, buffer]));
  const splits = new Map<string, Split>();
  const readersOf = new Map<string, Kernel[]>();
  for (const kernel of kernels)
    for (const name of kernelReads(kernel)) readersOf.set(name, [...(readersOf.get(name) ?? []), kernel]);
  for (const writer of kernels) {
    for (const outputs of writer.anchor === 'gemm'
      ? writer.segments.map((segment) => segment.outputs)
      : [outputsOf(writer)]) {
      for (const output of outputs) {
        const buffer = declared.get(output.buffer);
        if (output.kind !== 'store' || buffer?.dtype !== 'f32' || buffer.space !== 'arena') continue;
        const upper = upperOf(output, outputs, declared);
        const readers = readersOf.get(buffer.name) ?? [];
        if (
          upper === undefined ||
          readers.length === 0 ||
          !readers.every((kernel) => readsElements(kernel, buffer.name))
        )
          continue;
        splits.set(buffer.name, { tail: { ...buffer, name: `${buffer.name}_tail`, dtype: 'u8', upper }, upper });
      }
    }
  }
  return splits;
}

/** Splits every f32 buffer that can be split. */
export function splitStream<M extends KernelModule>(module: M): M {
  const splits = splitsOf(module);
  if (splits.size === 0) return module;
  const uppers = new Set([...splits.values()].map(({ upper }) => upper));
  const joined = (value: Scalar): Scalar =>
    mapScalar(value, (s) => {
      const split = s.op === 'load' ? splits.get(s.buffer) : undefined;
      return s.op !== 'load' || split === undefined
        ? s
        : { op: 'joinF24', a: { ...s, buffer: split.upper }, b: { ...s, buffer: split.tail.name } };
    });
  const stored = (output: Output): Output => {
    const value = joined(output.value);
    const split = splits.get(output.buffer);
    if (split !== undefined) return { ...output, buffer: split.tail.name, value: { op: 'tailF24', a: value } };
    if (!uppers.has(output.buffer) || value.op !== 'roundBf16') return { ...output, value };
    return { ...output, value: { op: 'roundBf16', a: { op: 'roundF24', a: value.a } } };
  };
  return {
    ...module,
    buffers: module.buffers.map((buffer) => splits.get(buffer.name)?.tail ?? buffer),
    kernels: module.kernels.map((kernel): Kernel => {
      switch (kernel.anchor) {
        case 'gemm':
          return {
            ...kernel,
            segments: kernel.segments.map((segment) => ({ ...segment, outputs: segment.outputs.map(stored) })),
          };
        case 'loop':
          return { ...kernel, outputs: kernel.outputs.map(stored) };
        default:
          return kernel;
      }
    }),
  };
}
