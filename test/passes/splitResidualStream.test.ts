/** The residual stream in 24 bits: its numbers, which buffers shrink, and how it affects a module's values. */
import { describe, expect, it } from 'vitest';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { outputsOf } from '../../ir/kernelAccess.js';
import { joinF24, printScalar, roundToBf16, roundToF24, tailOfF24 } from '../../ir/scalar.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { splitResidualStream } from '../../passes/splitResidualStream.js';
import { llama } from './llamaGraph.js';
import { HALF, TENSOR_CORES } from './lowered.js';

describe('numbers of 24 bits', () => {
  /** Numbers of all sizes, some close to the middle between two bf16 numbers. */
  const numbers = Array.from({ length: 4000 }, (_, i) => {
    const x = Math.fround(Math.sin(i * 7.1) * 2 ** ((i % 240) - 120));
    return i % 3 === 0 ? Math.fround(roundToBf16(x) * (1 + (i % 2 === 0 ? 2 ** -9 : -(2 ** -9)))) : x;
  });

  it('are within 2⁻¹⁶ of a number, or 2⁻¹⁴² near zero, and rounding is idempotent', () => {
    for (const x of numbers) {
      const y = roundToF24(x);
      expect(Math.abs(y - x)).toBeLessThanOrEqual(Math.max(Math.abs(x) * 2 ** -16, 2 ** -142));
      expect(roundToF24(y)).toBe(y);
    }
  });

  it('are their rounding to bf16 and a byte, whichever way that rounded', () => {
    const ways = new Set<number>();
    for (const x of [...numbers, 0, 1e-45, 3.3895313892515355e38]) {
      const y = roundToF24(x),
        upper = roundToBf16(y);
      ways.add(Math.sign(Math.abs(upper) - Math.abs(y)));
      expect(joinF24(upper, tailOfF24(x))).toBe(y);
    }
    expect(ways).toEqual(new Set([1, -1]));
  });

  it('turn infinity and NaN into NaN', () => {
    for (const x of [NaN, Infinity, -Infinity]) expect(joinF24(roundToBf16(roundToF24(x)), tailOfF24(x))).toBeNaN();
  });
});

describe('splitResidualStream', () => {
  const { stream: _, ...plain } = TENSOR_CORES;
  const module = lower(optimize(llama(), plain), plain);
  const split = splitResidualStream(module);
  const programs = ({ kernels }: KernelModule): string[] =>
    kernels.flatMap((kernel) =>
      outputsOf(kernel).map(({ buffer, value }) => `${kernel.path}: ${buffer} = ${printScalar(value)}`),
    );

  it('leaves no f32 buffer of the stream, and changes no other buffer', () => {
    verifyKernels(split);
    const stream = module.buffers.filter(
      ({ dtype, columns, space }) =>
        dtype === 'f32' &&
        columns === module.buffers.find(({ name }) => name === 'h_bf16')!.columns &&
        space === 'arena',
    );
    expect(stream.length).toBeGreaterThan(2);
    const tails = split.buffers.filter(({ dtype }) => dtype === 'u8');
    expect(tails.map(({ name }) => name)).toEqual(stream.map(({ name }) => `${name}_tail`));
    for (const { upper, rows, columns } of tails)
      expect(split.buffers).toContainEqual(expect.objectContaining({ name: upper, dtype: 'bf16', rows, columns }));
    expect(split.buffers.filter(({ dtype }) => dtype !== 'u8')).toEqual(
      module.buffers.filter((buffer) => !stream.includes(buffer)),
    );
  });

  it('stores a rounded number and a byte, reads both, and gathers both by the same rows', () => {
    const text = programs(split).join('\n');
    expect(text).toMatch(
      /attention\.o: h(\d+)_tail = tailF24\(add\(joinF24\(h(\d*)_bf16\[row, column\], h\2_tail\[row, column\]\), /,
    );
    expect(text).toMatch(/attention\.o: h(\d+)_bf16 = roundBf16\(roundF24\(add\(joinF24\(/);
    expect(text).toMatch(/joinF24\(h\d+_bf16\[row\[row\], column\], h\d+_tail\[row\[row\], column\]\)/);
    expect(text).toMatch(/embed: h_tail = tailF24\(/);
  });

  it('is part of lowering for targets that ask for it, and leaves alone what it cannot split', () => {
    const rounded = lower(optimize(llama(), TENSOR_CORES), TENSOR_CORES);
    expect(rounded.buffers).toEqual(split.buffers);
    expect(programs(rounded)).toEqual(programs(split));
    const half = lower(optimize(llama(), HALF), HALF);
    expect(splitResidualStream(half)).toBe(half);
  });

  it('splits what only becomes codes of E4M3 into two buffers, which those who add to it and make codes read', () => {
    const narrow: Numerics = { ...TENSOR_CORES, narrow: { format: 'e4m3', from: 'values', keep: [] } };
    const { stream: __, ...wide } = narrow;
    const before = lower(optimize(llama(), wide), wide);
    const after = lower(optimize(llama(), narrow), narrow);
    const isStream = ({ name, dtype, space }: BufferDecl): boolean =>
      dtype === 'f32' && space === 'arena' && /^h\d*$/.test(name);
    const stream = before.buffers.filter(isStream);
    expect(stream.length).toBeGreaterThan(2);
    expect(after.buffers.filter(isStream)).toEqual([]);
    for (const { name, rows, columns } of stream) {
      const upper = after.buffers.find((buffer) => buffer.name === `${name}_tail`)!.upper!;
      expect(after.buffers).toContainEqual({ name: upper, dtype: 'bf16', rows, columns, space: 'arena' });
    }
    const text = programs(after).join('\n');
    expect(text).toMatch(/ffn\.down: h(\d+)_upper = roundBf16\(roundF24\(add\(joinF24\(h\d+_upper\[row, column\]/);
    expect(text).toMatch(/h(\d+)_e4m3 = toF32\(mul\(joinF24\(h\1_upper\[row, column\], h\1_tail\[row, column\]\)/);
  });

  it('keeps what is read as a whole buffer, or what the caller wants', () => {
    const output: KernelModule = {
      ...module,
      buffers: module.buffers.map((buffer) =>
        buffer.dtype === 'f32' && buffer.space === 'arena' ? { ...buffer, space: 'output' } : buffer,
      ),
    };
    expect(splitResidualStream(output)).toBe(output);
    const summed: KernelModule = {
      ...module,
      kernels: [
        ...module.kernels,
        {
          anchor: 'loop',
          name: 'reads',
          path: 'reads',
          ops: [],
          rows: 'T',
          columns: 1,
          outputs: [{ kind: 'store', buffer: 'sum_of', value: { op: 'rowSum', buffer: 'h' } }],
        },
      ],
      buffers: [...module.buffers, { name: 'sum_of', dtype: 'f32', rows: 'T', columns: 1, space: 'arena' }],
    };
    expect(splitResidualStream(summed).buffers).toContainEqual(expect.objectContaining({ name: 'h', dtype: 'f32' }));
  });
});
