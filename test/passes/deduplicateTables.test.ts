import { describe, expect, it } from 'vitest';
import type { Kernel } from '../../ir/kernel.js';
import { mapScalar, operands, type Scalar } from '../../ir/scalar.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { deduplicateTables } from '../../passes/deduplicateTables.js';
import { fuseGroups } from '../../passes/fuseGroups.js';
import { type LoweredModule, lowerKernels } from '../../passes/lowerKernels.js';
import { optimize } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { F32 } from './lowered.js';

const HEAD = 32;
const lowered = (): LoweredModule => lowerKernels(fuseGroups(optimize(llama({ headDim: HEAD }), F32)), F32.weights);
const programs = (kernel: Kernel): readonly Scalar[] =>
  (kernel.anchor === 'gemm'
    ? kernel.segments.flatMap(({ outputs }) => outputs)
    : kernel.anchor === 'loop'
      ? kernel.outputs
      : []
  ).map(({ value }) => value);
const leaves = (s: Scalar): readonly Scalar[] => (operands(s).length === 0 ? [s] : operands(s).flatMap(leaves));
const periods = ({ kernels }: LoweredModule): readonly number[] => [
  ...new Set(
    kernels
      .flatMap(programs)
      .flatMap(leaves)
      .flatMap((s) => (s.op === 'load' && s.access.kind === 'periodic' ? [s.access.period] : [])),
  ),
];

describe('deduplicateTables', () => {
  it('keeps only half a head of rotary tables', () => {
    const before = lowered(),
      after = deduplicateTables(before);
    expect(periods(before)).toEqual([HEAD]);
    expect(periods(after)).toEqual([HEAD / 2]);
    const [constant] = after.constants;
    expect(constant?.values).toEqual(before.constants[0]?.values.slice(0, HEAD / 2));
    const tables = before.kernels.find(({ anchor }) => anchor === 'loop')!;
    expect(tables.anchor === 'loop' && tables.columns).toBe(HEAD);
    for (const { name, columns } of before.buffers) {
      const isTable = tables.anchor === 'loop' && tables.outputs.some(({ buffer }) => buffer === name);
      expect(after.buffers.find((buffer) => buffer.name === name)?.columns).toBe(isTable ? HEAD / 2 : columns);
    }
    verifyKernels(after);
    expect(deduplicateTables(after)).toBe(after);
  });

  it('leaves tables alone whose columns differ, or that are read otherwise', () => {
    const module = lowered();
    const different = {
      ...module,
      constants: module.constants.map((constant) => ({ ...constant, values: constant.values.map((_, i) => i) })),
    };
    expect(deduplicateTables(different)).toBe(different);
    const asElements = (s: Scalar): Scalar =>
      s.op === 'load' && s.access.kind === 'periodic' ? { ...s, access: { kind: 'element' } } : s;
    const readWhole = {
      ...module,
      kernels: module.kernels.map((kernel) =>
        kernel.anchor !== 'gemm'
          ? kernel
          : {
              ...kernel,
              segments: kernel.segments.map((segment) => ({
                ...segment,
                outputs: segment.outputs.map((output) => ({ ...output, value: mapScalar(output.value, asElements) })),
              })),
            },
      ),
    };
    expect(deduplicateTables(readWhole)).toBe(readWhole);
  });
});
