/**
 * Keeps the residual stream in 24 bits. If a kernel stores an f32 buffer and also its rounding to bf16 (the operand of
 * the next product), the f32 buffer shrinks to the one byte that extends the bf16 number to 24 bits. Where the next
 * product reads codes of E4M3, nothing stores that rounding: the f32 buffer becomes both. Kernels in, kernels out.
 *
 * An epilogue that adds to the stream then reads 3 bytes and writes 3 bytes per element, instead of 4 and 6; before
 * codes, instead of 4 and 4, and the rows are read again to be rounded. The error of each addition is at most 2⁻¹⁶ of
 * the stream's value, 1/128 of the error of rounding a product's operands to bf16.
 */
import type { BufferDecl, Kernel, KernelModule, Output } from '../ir/kernel.js';
import { kernelReads, mapOutputs, outputsOf } from '../ir/kernelAccess.js';
import { mapScalar, operands, printScalar, readOf, type Scalar } from '../ir/scalar.js';
import { defined } from '../system/defined.js';

/** A buffer that shrinks. */
interface Split {
  readonly tail: BufferDecl;
  /** The bf16 buffer of the upper half. */
  readonly upper: string;
  /** Declares `upper` where no kernel stores it yet. */
  readonly added?: BufferDecl;
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

/** A buffer for the upper half of what only becomes codes; undefined where no reader makes them. */
function addedUpper(
  buffer: BufferDecl,
  readers: readonly Kernel[],
  declared: ReadonlyMap<string, BufferDecl>,
): BufferDecl | undefined {
  const name = `${buffer.name}_upper`;
  const makesCodes = (kernel: Kernel): boolean =>
    kernel.anchor === 'loop' &&
    kernel.outputs.some(
      (output) => declared.get(output.buffer)?.dtype === 'e4m3' && loadsOf(output.value, buffer.name).length > 0,
    );
  return declared.has(name) || !readers.some(makesCodes) ? undefined : { ...buffer, name, dtype: 'bf16' };
}

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
        const readers = readersOf.get(buffer.name) ?? [];
        const own = upperOf(output, outputs, declared);
        const added = own === undefined ? addedUpper(buffer, readers, declared) : undefined;
        const upper = own ?? added?.name;
        if (
          upper === undefined ||
          readers.length === 0 ||
          !readers.every((kernel) => readsElements(kernel, buffer.name))
        )
          continue;
        const tail: BufferDecl = { ...buffer, name: `${buffer.name}_tail`, dtype: 'u8', upper };
        splits.set(buffer.name, { tail, upper, ...defined({ added }) });
      }
    }
  }
  return splits;
}

/** Splits every f32 buffer that can be split. */
export function splitResidualStream<M extends KernelModule>(module: M): M {
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
  const rounded = (a: Scalar): Scalar => ({ op: 'roundBf16', a: { op: 'roundF24', a } });
  const stored = (output: Output): readonly Output[] => {
    const value = joined(output.value);
    const split = splits.get(output.buffer);
    if (split !== undefined) {
      const tail: Output = { ...output, buffer: split.tail.name, value: { op: 'tailF24', a: value } };
      return split.added === undefined ? [tail] : [{ ...output, buffer: split.upper, value: rounded(value) }, tail];
    }
    if (!uppers.has(output.buffer) || value.op !== 'roundBf16') return [{ ...output, value }];
    return [{ ...output, value: rounded(value.a) }];
  };
  return {
    ...module,
    buffers: module.buffers.flatMap((buffer) => {
      const split = splits.get(buffer.name);
      return split === undefined ? [buffer] : split.added === undefined ? [split.tail] : [split.added, split.tail];
    }),
    kernels: module.kernels.map((kernel) => mapOutputs(kernel, (outputs) => outputs.flatMap(stored))),
  };
}
