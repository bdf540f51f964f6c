/**
 * A product with one column beside others, as the gate of a shared expert lies beside the router: on fibres all
 * skeletons give the same bits, and those of the float64 interpreter within rounding.
 */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { BufferDecl, GemmKernel, KernelModule, Segment, WeightDecl } from '../../../ir/kernel.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import type { Scalar } from '../../../ir/scalar.js';
import { verifyKernels } from '../../../ir/verifyKernel.js';
import { roundAccumulators } from '../../../passes/roundAccumulators.js';
import { distance } from '../../passes/support.js';
import { interfaceOf } from '../../support/interface.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { acc, add, constant, store } from '../modules.js';
import { emulateModule } from './emulate.js';

const H100 = TYPICAL_FACTS.sm_90a;
const HIDDEN = 80;
const ROWS = 20;

const sigmoid = (x: Scalar): Scalar => ({
  op: 'div',
  a: constant(1),
  b: add(constant(1), { op: 'exp', a: { op: 'neg', a: x } }),
});

/** A router of 24 experts in f32, a matrix of 40 columns in 16 bits, and a gate of one. */
function routerWithGate(
  gate: Scalar = sigmoid(acc()),
  scale?: BufferDecl,
): { kernel: GemmKernel; module: KernelModule } {
  const segment = (weight: string, columns: number, buffer: string, value: Scalar): Segment => ({
    ...{ weight, columns, pairing: { kind: 'none' } },
    outputs: [store(buffer, value)],
  });
  const segments = [
    segment('router', 24, 'logits', acc()),
    segment('up', 40, 'raised', acc()),
    segment('share', 1, 'gate', gate),
  ];
  const kernel: GemmKernel = {
    ...{ anchor: 'gemm', name: 'router', path: 'layers.0.router', rows: 'T', ops: [], k: HIDDEN, a: 'x' },
    segments,
  };
  const buffer = (name: string, dtype: 'f32' | 'bf16', columns: number, space: 'input' | 'output'): BufferDecl => ({
    ...{ name, dtype, rows: 'T', columns, space },
  });
  const module: KernelModule = roundAccumulators({
    interface: interfaceOf([]),
    buffers: [
      buffer('x', 'bf16', HIDDEN, 'input'),
      ...(scale === undefined ? [] : [scale]),
      buffer('logits', 'f32', 24, 'output'),
      buffer('raised', 'bf16', 40, 'output'),
      buffer('gate', 'f32', 1, 'output'),
    ],
    weights: segments.map(({ weight, columns, pairing }): WeightDecl => ({
      ...{ name: weight, layout: 'kmajor', format: 'bf16', k: HIDDEN, pairing },
      sources: [{ tensor: `${weight}Rows`, rows: columns }],
    })),
    kernels: [kernel],
  });
  return { kernel: module.kernels[0] as GemmKernel, module };
}

const numbers = (count: number, seed: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => (((i * 7919 + seed * 104_729) % 257) - 128) / 64);

const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const SIMT: CudaGemmSchedule = { ...GEMM, skeleton: 'simt', tm: 16, tn: 32, tk: 32, stages: 1 };
const SKINNY: CudaGemmSchedule = { ...GEMM, skeleton: 'skinny', tm: 16, tn: 32, tk: 64, stages: 4 };
const WGMMA: CudaGemmSchedule = { ...GEMM, skeleton: 'wgmma', tm: 128, tn: 32, tk: 64, stages: 3 };
const OTHERS: readonly (readonly [string, CudaGemmSchedule])[] = [
  ['mma', { ...GEMM, skeleton: 'mma', tm: 32, tn: 32, tk: 32, stages: 3 }],
  ['few rows', SKINNY],
  ['few rows on Hopper', { ...SKINNY, skeleton: 'skinnyWgmma', tm: 8 }],
  ['wgmma', WGMMA],
  ['wgmma, deferred', { ...WGMMA, mode: 'deferred', tn: 64 }],
  ['wgmma, ping-pong', { ...WGMMA, mode: 'pingpong', tm: 64 }],
];

describe('a product of one column beside others', () => {
  const { module, kernel } = routerWithGate();
  verifyKernels(module);
  const inputs = new Map([['x', numbers(ROWS * HIDDEN, 3)]]);
  const tensors = new Map(
    kernel.segments.map(({ weight, columns }, i) => [
      `${weight}Rows`,
      { rows: columns, columns: HIDDEN, data: numbers(columns * HIDDEN, 11 + i).map((x) => x / 16) },
    ]),
  );
  const sizes = { T: ROWS, R: 1 };
  const run = (schedule: CudaGemmSchedule): ReadonlyMap<string, Float64Array> => {
    expect(isLegalCuda(kernel, module, schedule, H100)).toBe(true);
    return emulateModule(module, { sizes, inputs, tensors, schedules: [schedule] }).values;
  };
  const simt = run(SIMT);

  it('is what the interpreter computes', () => {
    const want = interpretModule(module, { sizes, buffers: inputs, tensors, round: true });
    for (const name of ['logits', 'raised', 'gate'])
      expect(distance(want.get(name)!, simt.get(name)!), name).toBeLessThan(0.01);
    expect(new Set(simt.get('gate')).size).toBeGreaterThan(ROWS / 2);
  });

  it.each(casesHere(OTHERS, 1))('has the same bits by %s', (_, schedule) => {
    for (const [name, values] of run(schedule)) expectSame(values, simt.get(name)!, name);
  });

  it('is left to CUDA cores where its epilogue reads an element of its row', () => {
    const scale: BufferDecl = { name: 'scale', dtype: 'f32', rows: 'T', columns: 1, space: 'input' };
    const reading = routerWithGate(
      { op: 'mul', a: acc(), b: { op: 'load', buffer: 'scale', access: { kind: 'element' } } },
      scale,
    );
    expect(isLegalCuda(reading.kernel, reading.module, SIMT, H100)).toBe(true);
    for (const [, schedule] of OTHERS)
      expect(isLegalCuda(reading.kernel, reading.module, schedule, H100)).toContain('one column');
  });
});
