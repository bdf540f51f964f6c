/**
 * The kernel that chooses experts, from both code generators: the experts and weights of the float64 reference by every
 * rule, with NaN among the logits too, and compiled for a GPU where nvcc is there.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import type { RoutingRule } from '../../ir/experts.js';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { interfaceOf } from '../support/interface.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';
import { isThorough } from '../support/thorough.js';
import { emulateModule } from './cuda/emulate.js';
import { randomArray, randomSource, runGenerated } from './harness.js';
import { TESTED } from './tested.js';

const ROWS = 37;
/** Of several blocks, where the last arranges what others chose, with more than 256 pairs a warp; and of one warp. */
const MANY_ROWS = 190;
const FEW_ROWS = 6;
const [COUNT, CHOSEN] = [48, 5];
const WEIGHTS = Array.from({ length: CHOSEN }, (_, slot) => `weight_${slot}`);

const RULES: readonly (readonly [string, RoutingRule & { readonly bias?: 'bias' }])[] = [
  ['softmax', { normalized: false, factor: 2.5 }],
  ['softmaxes in turn', { normalized: false, inTurn: 0.6 }],
  ['normalized sigmoids', { scores: 'sigmoid', normalized: true }],
  ['sigmoids by another choice', { scores: 'sigmoid', bias: 'bias', normalized: true, factor: 1.8 }],
  ['softmax by another choice', { bias: 'bias', normalized: false }],
  ['softmax in groups by their largest', { groups: { count: 6, kept: 2, best: 1 }, normalized: false, factor: 16 }],
  [
    'sigmoids in groups by their two largest',
    { scores: 'sigmoid', bias: 'bias', groups: { count: 8, kept: 4, best: 2 }, normalized: true, factor: 2.5 },
  ],
];

function moduleOf(rule: RoutingRule & { readonly bias?: 'bias' }): KernelModule {
  const buffer = (
    name: string,
    dtype: BufferDecl['dtype'],
    columns: number,
    space: BufferDecl['space'],
    rows: BufferDecl['rows'] = 'T',
  ): BufferDecl => ({ name, dtype, rows, columns, space });
  return {
    interface: interfaceOf([]),
    buffers: [
      buffer('logits', 'f32', COUNT, 'input'),
      buffer('experts', 'i32', CHOSEN, 'output'),
      ...WEIGHTS.map((name) => buffer(name, 'f32', 1, 'output')),
      ...(rule.bias === undefined ? [] : [buffer('bias', 'bf16', 1, 'weight', COUNT)]),
    ],
    weights:
      rule.bias === undefined
        ? []
        : [
            {
              ...{ name: 'bias', layout: 'rows', format: 'bf16', k: 1, pairing: { kind: 'none' } },
              sources: [{ tensor: 'layer.bias', rows: COUNT }],
            },
          ],
    kernels: [
      {
        ...{ anchor: 'route', name: 'route', path: 'layers.0.route', rows: 'T', ops: [], count: COUNT, chosen: CHOSEN },
        ...{ logits: 'logits', experts: 'experts', weights: WEIGHTS },
        ...rule,
      },
    ],
  };
}

const random = randomSource(11);
/** Some rows have equal logits. */
const LOGITS = randomArray(random, ROWS * COUNT, 3).map((z, i) => (i < 4 * COUNT ? Math.round(z) : z));
const BIAS = randomArray(random, COUNT, 0.3).map((x) => Math.fround(Math.round(x * 64) / 64));

const inputsOf = (logits = LOGITS): ReadonlyMap<string, Float64Array> => new Map([['logits', logits.map(Math.fround)]]);
const TENSORS = new Map([['layer.bias', { rows: COUNT, columns: 1, data: BIAS }]]);
const SIZES = { T: ROWS, R: ROWS };

type Values = ReadonlyMap<string, Float64Array>;

/** What is compared differs between experts by more than rounding. */
function check(module: KernelModule, run: (inputs: Values) => Values): void {
  const inputs = inputsOf();
  const want = interpretModule(module, { sizes: SIZES, buffers: inputs, tensors: TENSORS });
  const got = run(inputs);
  expect([...got.get('experts')!]).toEqual([...want.get('experts')!]);
  for (const name of WEIGHTS)
    got.get(name)!.forEach((value, i) => expect(value, `${name}[${i}]`).toBeCloseTo(want.get(name)![i]!, 5));
  const broken = run(inputsOf(LOGITS.map((z, i) => (i % 3 === 0 ? NaN : z)))).get('experts')!;
  for (let row = 0; row < ROWS; row++) {
    const own = [...broken.subarray(row * CHOSEN, (row + 1) * CHOSEN)];
    expect(new Set(own).size).toBe(CHOSEN);
    for (const expert of own) expect(Number.isInteger(expert) && expert >= 0 && expert < COUNT).toBe(true);
  }
}

const PLACES = Array.from({ length: CHOSEN }, (_, slot) => `place_${slot}`);

/** The kernel that also arranges pairs. */
function arranging(rule: RoutingRule & { readonly bias?: 'bias' }): KernelModule {
  const module = moduleOf(rule);
  const list = (name: string, rows: BufferDecl['rows']): BufferDecl => ({
    ...{ name, dtype: 'i32', rows, columns: 1, space: 'output' },
  });
  const pairs = { order: 'order', places: PLACES, starts: 'starts', owners: 'owners' };
  const { extents } = module.interface;
  return {
    ...module,
    interface: { ...module.interface, extents: [...extents, { name: `Tx${CHOSEN}`, counts: 'pairs' }] },
    buffers: [
      ...module.buffers,
      ...['order', 'owners'].map((name) => list(name, `Tx${CHOSEN}`)),
      ...PLACES.map((name) => list(name, 'T')),
      list('starts', COUNT + 1),
    ],
    kernels: module.kernels.map((kernel) => (kernel.anchor === 'route' ? { ...kernel, pairs } : kernel)),
  };
}

describe('pairs in order of experts', () => {
  const module = arranging(RULES[0]![1]);
  const logits = randomArray(random, MANY_ROWS * COUNT, 3).map(Math.fround);
  it.each([FEW_ROWS, ROWS, MANY_ROWS])('of %i rows', (rows) => {
    expect(() => verifyKernels(module)).not.toThrow();
    const sizes = { T: rows, R: rows, [`Tx${CHOSEN}`]: rows * CHOSEN };
    const inputs = new Map([['logits', logits.subarray(0, rows * COUNT)]]);
    const want = interpretModule(module, { sizes, buffers: inputs, tensors: TENSORS });
    const schedules = [{ kind: 'loop', threads: 96 } as const];
    const got = emulateModule(module, { sizes, inputs, tensors: TENSORS, schedules }).values;
    for (const name of ['experts', 'order', 'owners', 'starts', ...PLACES])
      expect([...got.get(name)!], name).toEqual([...want.get(name)!]);
  });
});

describe('experts chosen by', () => {
  describe.each(RULES.slice(isThorough ? 0 : -1))('%s', (_, rule) => {
    const module = moduleOf(rule);

    it('verifies', () => expect(() => verifyKernels(module)).not.toThrow());

    it.each(TESTED.filter((isa) => isa !== 'amx').slice(-1))('in C, %s', (isa) => {
      const schedules = [{ kind: 'loop', isa, rows: 8 } as const];
      check(
        module,
        (inputs) => runGenerated(module, { sizes: SIZES, inputs, tensors: TENSORS, schedules, isQuick: true }).values,
      );
    });

    it.runIf(isThorough)('in CUDA', () => {
      const schedules = [{ kind: 'loop', threads: 128 } as const];
      check(module, (inputs) => emulateModule(module, { sizes: SIZES, inputs, tensors: TENSORS, schedules }).values);
    });
  });

  it.runIf(hasNvcc && isThorough)('compile for a GPU', () => {
    const kernels = RULES.map(([, rule]) => {
      const module = moduleOf(rule);
      return emitCudaKernel(module.kernels[0]!, module, { kind: 'loop', threads: 128 }, SIZES);
    });
    expect(() => compileByNvcc(kernels, 'sm_90a')).not.toThrow();
  });
});
