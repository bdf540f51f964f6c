/** Rows of states that are stored where they are computed: which loops vanish, which stay, and what it means. */
import { describe, expect, it } from 'vitest';
import { cudaNumerics } from '../../driver/targets/cudaDevice.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { outputsOf } from '../../ir/kernelAccess.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { buildStep } from '../../models/decoder/graph.js';
import { fuseStateWrites } from '../../passes/fuseStateWrites.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { SHAPE } from './llamaGraph.js';

const ROTARY = { inverseFrequencies: Float64Array.from({ length: 4 }, (_, i) => 1 / (i + 1)), factor: 1 };
const FUSED = cudaNumerics('bf16');
const LOOPS: Numerics = { ...FUSED, writes: 'loops' };

const step = (numerics: Numerics, dtype: 'bf16' | 'f32' = 'bf16'): LoweredModule =>
  lower(
    optimize(buildStep(SHAPE, { cache: { rows: 40, dtype }, rotary: ROTARY, dtypeOf: () => 'bf16' }), numerics),
    numerics,
  );
const storesThrough = ({ kernels }: KernelModule): string[] =>
  kernels.flatMap((kernel) =>
    outputsOf(kernel).flatMap((output) =>
      output.kind === 'store' && output.via !== undefined ? [`${kernel.path}: ${output.buffer}[${output.via}]`] : [],
    ),
  );

describe('fuseStateWrites', () => {
  const before = step(LOOPS);
  const after = fuseStateWrites(before);

  it('stores keys and values of new tokens in the epilogues that compute them', () => {
    verifyKernels(after);
    verifyIndices(after);
    expect(storesThrough(before)).toEqual(
      [0, 1].flatMap((i) => ['k', 'v'].map((name) => `layers.${i}.attention.write: ${name}_${i}[slot]`)),
    );
    expect(storesThrough(after)).toEqual(
      [0, 1].flatMap((i) => ['k', 'v'].map((name) => `layers.${i}.attention.qkv: ${name}_${i}[slot]`)),
    );
    expect(after.kernels.map(({ path }) => path)).toEqual(
      before.kernels.map(({ path }) => path).filter((path) => !path.endsWith('.write')),
    );
    expect(before.buffers.length - after.buffers.length).toBe(4);
  });

  it('says which version of each state the new writer was made for', () => {
    const versions = ({ kernels }: KernelModule, path: string): unknown =>
      kernels.find((kernel) => kernel.path === path)?.versions;
    expect(versions(after, 'layers.1.attention.qkv')).toEqual({ k_1: 0, v_1: 0 });
    expect(versions(after, 'layers.1.attention.mix')).toEqual({ k_1: 1, v_1: 1 });
  });

  it('runs for targets that ask for it', () => {
    expect(storesThrough(step(FUSED))).toEqual(storesThrough(after));
    expect(storesThrough(step({ activations: 'f32', weights: { layout: 'panels', format: 'f32' } }, 'f32'))).toEqual(
      storesThrough(before),
    );
  });

  /** `before` with its first layer's copy, or what it copies, changed. */
  const changed = (change: (kernel: Kernel) => readonly Kernel[]): LoweredModule => ({
    ...before,
    kernels: before.kernels.flatMap((kernel) => change(kernel)),
  });
  const first = (module: LoweredModule): readonly string[] =>
    storesThrough(fuseStateWrites(module)).filter((text) => text.startsWith('layers.0'));
  const stays = ['layers.0.attention.write: k_0[slot]', 'layers.0.attention.write: v_0[slot]'];

  it.each([
    [
      'whose rows another kernel reads',
      (): LoweredModule =>
        changed((kernel) =>
          kernel.path === 'layers.0.attention.o' && kernel.anchor === 'gemm'
            ? [{ ...kernel, a: 'v_rounded' }]
            : [kernel],
        ),
    ],
    [
      'whose rows the caller reads',
      (): LoweredModule => ({
        ...before,
        interface: {
          ...before.interface,
          outputs: [{ ...before.interface.outputs[0]!, buffer: 'v_rounded' }],
        },
      }),
    ],
    [
      'that computes something',
      (): LoweredModule =>
        changed((kernel) =>
          kernel.path === 'layers.0.attention.write' && kernel.anchor === 'loop'
            ? [{ ...kernel, outputs: kernel.outputs.map((o) => ({ ...o, value: { op: 'neg', a: o.value } as const })) }]
            : [kernel],
        ),
    ],
    [
      'of another dtype than the state',
      (): LoweredModule => ({
        ...before,
        buffers: before.buffers.map((b) => (b.name === 'v_rounded' ? { ...b, dtype: 'f32' as const } : b)),
      }),
    ],
    [
      'whose state is read in between',
      (): LoweredModule => {
        const mix = before.kernels.find(({ path }) => path === 'layers.0.attention.mix')!;
        return changed((kernel) => (kernel.path === 'layers.0.attention.write' ? [mix, kernel] : [kernel]));
      },
    ],
  ])('leaves a copy %s', (_, make) => {
    expect(first(make())).toEqual(stays);
  });
});
