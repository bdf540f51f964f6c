/** Scalar programs over heads (sums over a head, operands of one head, rotation in loops) from both code generators. */
import { interfaceOf } from '../support/interface.js';
import { describe, expect, it } from 'vitest';
import { ROW_SUM_BLOCK, type BufferDecl, type KernelModule, type LoopKernel } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { Scalar } from '../../ir/scalar.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { distance } from '../passes/support.js';
import { emulateModule } from './cuda/emulate.js';
import { randomArray, randomSource, RUNNABLE, runGenerated } from './harness.js';
import { add, constant, element, mul, rowSum, store } from './modules.js';
import { casesHere } from '../support/thorough.js';

const T = 37;
const HEADS = 3;

interface Case {
  readonly headDim: number;
  /** Sums over heads add up row-sum parts, or else the elements themselves. */
  readonly isOfParts: boolean;
}

const loop = (name: string, rest: Pick<LoopKernel, 'columns' | 'outputs' | 'headDim'>): LoopKernel => ({
  name,
  path: `test.${name}`,
  anchor: 'loop',
  rows: 'T',
  ops: [],
  ...rest,
});
const buffer = (name: string, columns: number, space: BufferDecl['space'] = 'arena'): BufferDecl => ({
  name,
  dtype: 'f32',
  rows: 'T',
  columns,
  space,
});

/** RMSNorm of every head with one weight for all heads, then rotary embedding: what Qwen3 does with q and k. */
function moduleOf({ headDim, isOfParts }: Case): KernelModule {
  const columns = HEADS * headDim;
  const squares = mul(element('x'), element('x'));
  const sum: Scalar = isOfParts
    ? { op: 'segmentSum', buffer: 'ssq', width: headDim, parts: headDim / ROW_SUM_BLOCK }
    : { op: 'segmentSum', buffer: 'squares', width: headDim, parts: headDim };
  const scale: Scalar = { op: 'rsqrt', a: add(constant(1e-5), mul(sum, constant(1 / headDim))) };
  const weight: Scalar = { op: 'load', buffer: 'weight', access: { kind: 'columnPeriodic', period: headDim } };
  const normed = mul(mul(element('x'), scale), weight);
  const table = (name: string): Scalar => ({
    op: 'load',
    buffer: name,
    access: { kind: 'periodic', period: headDim / 2 },
  });
  const rotated = add(mul(normed, table('cosine')), mul({ op: 'rotateHalf', a: normed }, table('sine')));
  return {
    interface: interfaceOf([]),
    buffers: [
      buffer('x', columns, 'input'),
      buffer('cosine', headDim / 2, 'input'),
      buffer('sine', headDim / 2, 'input'),
      { name: 'weight', dtype: 'f32', rows: headDim, columns: 1, space: 'input' },
      isOfParts ? buffer('ssq', Math.ceil(columns / ROW_SUM_BLOCK)) : buffer('squares', columns),
      buffer('normed', columns, 'output'),
      buffer('rotated', columns, 'output'),
      // `places` shows which column a rotation has read; `twice` is a rotation of a rotation.
      buffer('places', columns, 'output'),
      buffer('twice', columns, 'output'),
    ],
    weights: [],
    kernels: [
      loop('sums', { columns, outputs: [isOfParts ? rowSum('ssq', squares) : store('squares', squares)] }),
      loop('heads', {
        columns,
        headDim,
        outputs: [
          store('normed', normed),
          store('rotated', rotated),
          store('places', { op: 'rotateHalf', a: { op: 'columnIndex' } }),
          store('twice', { op: 'rotateHalf', a: { op: 'rotateHalf', a: element('x') } }),
        ],
      }),
    ],
  };
}

const inputsOf = ({ headDim }: Case): ReadonlyMap<string, Float64Array> => {
  const random = randomSource(headDim);
  return new Map([
    ['x', randomArray(random, T * HEADS * headDim)],
    ['cosine', randomArray(random, (T * headDim) / 2)],
    ['sine', randomArray(random, (T * headDim) / 2)],
    ['weight', randomArray(random, headDim)],
  ]);
};

const OUTPUTS = ['normed', 'rotated', 'places', 'twice'] as const;
/**
 * The four cases: half a head is whole vectors; half of that is a multiple of 4; it is even, in segments that vectors
 * cross; it is odd.
 */
const CASES: readonly Case[] = [
  { headDim: 64, isOfParts: true },
  { headDim: 48, isOfParts: true },
  { headDim: 20, isOfParts: false },
  { headDim: 6, isOfParts: false },
];
const VECTORS = RUNNABLE.filter((isa) => isa !== 'amx');
const ISAS = [VECTORS[0]!, ...(VECTORS.length > 1 ? [VECTORS.at(-1)!] : [])];

describe.each(casesHere(CASES, 3))('heads of $headDim columns, sums of parts: $isOfParts', (example) => {
  const module = moduleOf(example);
  verifyKernels(module);
  const sizes = { T, R: 0 };
  const inputs = inputsOf(example);
  const want = interpretModule(module, { sizes, buffers: inputs, round: true });
  const close = (got: ReadonlyMap<string, Float64Array>): void => {
    for (const name of OUTPUTS) expect(distance(want.get(name)!, got.get(name)!), name).toBeLessThan(1e-6);
  };
  const bitsOf = (got: ReadonlyMap<string, Float64Array>): unknown[] => OUTPUTS.map((name) => [...got.get(name)!]);

  it.each(ISAS)('agree with float64 in C, %s', (isa) => {
    const run = (rows: number, workers: number): ReadonlyMap<string, Float64Array> => {
      const schedules = module.kernels.map(() => ({ kind: 'loop', isa, rows }) as const);
      const got = runGenerated(module, { sizes, inputs, schedules, workers, isQuick: true });
      expect(got.overruns).toEqual([]);
      expect(got.dirtyPads.filter((name) => name !== 'weight')).toEqual([]);
      return got.values;
    };
    const one = run(8, 1);
    close(one);
    expect(bitsOf(run(3, 2)), 'other work items').toEqual(bitsOf(one));
  });

  it('agree with float64 in CUDA', () => {
    const run = (threads: number): ReadonlyMap<string, Float64Array> =>
      emulateModule(module, {
        sizes,
        inputs,
        schedules: module.kernels.map(() => ({ kind: 'loop', threads }) as const),
        tokensCapacity: 64,
      }).values;
    const one = run(64);
    close(one);
    expect(bitsOf(run(256)), 'other threads').toEqual(bitsOf(one));
  });
});
