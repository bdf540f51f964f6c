import { interfaceOf } from '../support/interface.js';
import { scoringBucket } from '../../ir/scoring.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { BufferDecl, KernelModule, LoopKernel, Output } from '../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../ir/kernelAccess.js';
import type { Bucket } from '../../ir/plan.js';
import { DTYPES } from '../../ir/types.js';
import { buildDecoder } from '../../models/decoder/graph.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { bufferBytes, planMemory, type MemoryPlan } from '../../passes/planMemory.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { BF16 } from './lowered.js';

const CAPACITY: Bucket = scoringBucket({ tokens: 100, rows: 10, longest: 100 });

const loop = (name: string, reads: readonly string[], writes: readonly string[]): LoopKernel => ({
  name,
  path: name,
  ops: [],
  anchor: 'loop',
  rows: 'T',
  columns: 4,
  outputs: writes.map((buffer): Output => ({
    kind: 'store',
    buffer,
    value: reads.reduce<Output['value']>(
      (a, read) => ({ op: 'add', a, b: { op: 'load', buffer: read, access: { kind: 'element' } } }),
      { op: 'const', value: 0 },
    ),
  })),
});

const decl = (name: string, space: BufferDecl['space'] = 'arena', columns: BufferDecl['columns'] = 4): BufferDecl => ({
  name,
  dtype: 'f32',
  rows: 'T',
  columns,
  space,
});

/**
 * Checks `plan` with a liveness analysis that does not use intervals: the buffers live at each kernel must not overlap.
 */
function expectSound(module: KernelModule, capacity: Bucket, plan: MemoryPlan): void {
  const placed = new Map(plan.placements.map((p) => [p.buffer, p]));
  const wanted = module.buffers.filter((b) => b.space !== 'weight');
  expect([...placed.keys()].sort()).toEqual(wanted.map((b) => b.name).sort());
  for (const buffer of wanted) {
    const { offset, sizeBytes } = placed.get(buffer.name)!;
    expect(sizeBytes).toBe(bufferBytes(buffer, capacity.extents));
    expect(offset % 4096).toBe(0);
    expect(offset + sizeBytes).toBeLessThanOrEqual(plan.arenaBytes);
  }
  let most = 0;
  module.kernels.forEach((_, at) => {
    const before = new Set(module.kernels.slice(0, at + 1).flatMap((k) => [...kernelWrites(k)]));
    const after = new Set(module.kernels.slice(at).flatMap((k) => [...kernelReads(k)]));
    const now = kernelWrites(module.kernels[at]!);
    const live = wanted
      .filter((b) => b.space !== 'arena' || now.has(b.name) || (before.has(b.name) && after.has(b.name)))
      .map((b) => placed.get(b.name)!);
    most = Math.max(
      most,
      live.reduce((sum, p) => sum + p.sizeBytes, 0),
    );
    live.forEach((a, i) =>
      live.slice(i + 1).forEach((b) => {
        const isApart = a.offset + a.sizeBytes <= b.offset || b.offset + b.sizeBytes <= a.offset;
        expect(
          isApart,
          `at kernel ${at}, ${a.buffer} [${a.offset}, +${a.sizeBytes}) and ${b.buffer} [${b.offset}, +${b.sizeBytes})`,
        ).toBe(true);
      }),
    );
  });
  const sum = wanted.reduce((total, b) => total + bufferBytes(b, capacity.extents), 0);
  expect(plan.withoutReuseBytes).toBe(sum);
  expect(plan.arenaBytes).toBeGreaterThanOrEqual(most);
  expect(plan.arenaBytes).toBeLessThanOrEqual(sum + 4096 * wanted.length);
}

describe('planMemory', () => {
  it('gives a chain of kernels two places in turn', () => {
    const module: KernelModule = {
      interface: interfaceOf([]),
      buffers: [decl('x', 'input'), decl('a'), decl('b'), decl('c'), decl('d'), decl('y', 'output')],
      weights: [],
      kernels: [
        loop('k0', ['x'], ['a']),
        loop('k1', ['a'], ['b']),
        loop('k2', ['b'], ['c']),
        loop('k3', ['c'], ['d']),
        loop('k4', ['d'], ['y']),
      ],
    };
    const plan = planMemory(module, CAPACITY.extents);
    // 128 rows of 32 columns of 4 bytes.
    expect(plan).toMatchInlineSnapshot(`
      {
        "arenaBytes": 65536,
        "placements": [
          {
            "buffer": "x",
            "offset": 0,
            "sizeBytes": 16384,
          },
          {
            "buffer": "a",
            "offset": 16384,
            "sizeBytes": 16384,
          },
          {
            "buffer": "y",
            "offset": 32768,
            "sizeBytes": 16384,
          },
          {
            "buffer": "b",
            "offset": 49152,
            "sizeBytes": 16384,
          },
          {
            "buffer": "c",
            "offset": 16384,
            "sizeBytes": 16384,
          },
          {
            "buffer": "d",
            "offset": 49152,
            "sizeBytes": 16384,
          },
        ],
        "withoutReuseBytes": 98304,
      }
    `);
    expectSound(module, CAPACITY, plan);
  });

  it('keeps inputs and outputs, and what is read late, through the whole program', () => {
    const module: KernelModule = {
      interface: interfaceOf([]),
      buffers: [
        decl('x', 'input'),
        decl('early', 'output'),
        decl('residual'),
        decl('a'),
        decl('b'),
        decl('y', 'output'),
      ],
      weights: [],
      kernels: [
        loop('k0', ['x'], ['early', 'residual']),
        loop('k1', ['residual'], ['a']),
        loop('k2', ['a'], ['b']),
        loop('k3', ['b', 'residual'], ['y']),
      ],
    };
    const plan = planMemory(module, CAPACITY.extents);
    expect(plan.arenaBytes).toBe(6 * 16384);
    expectSound(module, CAPACITY, plan);
  });

  it('leaves weights out, counts row padding, and places a bias by the tokens of the bucket', () => {
    const module: KernelModule = {
      interface: interfaceOf([]),
      buffers: [
        decl('w', 'weight'),
        decl('bias', 'arena', 'T'),
        { ...decl('v'), rows: 'R', columns: 1, dtype: 'i32' },
        { ...decl('wide', 'output'), columns: 1024 },
      ],
      weights: [],
      kernels: [loop('k0', [], ['bias', 'v']), loop('k1', ['bias', 'v', 'w'], ['wide'])],
    };
    const plan = planMemory(module, CAPACITY.extents);
    expect(new Map(plan.placements.map((p) => [p.buffer, p.sizeBytes]))).toEqual(
      new Map([
        ['bias', 128 * 128 * 4],
        ['v', 32 * 1 * 4],
        // A stride of 4096 bytes takes one more cache line.
        ['wide', 128 * (4096 + 64)],
      ]),
    );
    expectSound(module, CAPACITY, plan);
  });

  it('places inputs apart even in a program without kernels', () => {
    const plan = planMemory(
      {
        interface: interfaceOf([decl('x', 'input'), decl('y', 'input')]),
        buffers: [decl('x', 'input'), decl('y', 'input')],
        weights: [],
        kernels: [],
      },
      CAPACITY.extents,
    );
    expect(new Set(plan.placements.map((p) => p.offset)).size).toBe(2);
  });

  it('never lets two live buffers of a random program share a byte', () => {
    let reused = 0;
    const size = fc.record({
      rows: fc.constantFrom<BufferDecl['rows']>('T', 'R', 3),
      columns: fc.constantFrom<BufferDecl['columns']>(1, 4, 40, 300, 1024, 'T'),
      dtype: fc.constantFrom(...DTYPES),
    });
    const kernel = fc.record({
      writes: fc.array(size, { minLength: 1, maxLength: 3 }),
      reads: fc.array(fc.nat({ max: 30 }), { maxLength: 4 }),
      isOutput: fc.integer({ min: 0, max: 5 }).map((n) => n === 0),
    });
    fc.assert(
      fc.property(
        fc.array(kernel, { minLength: 1, maxLength: 12 }),
        fc
          .record({ tokens: fc.integer({ min: 1, max: 300 }), rows: fc.integer({ min: 1, max: 40 }) })
          .map((size) => scoringBucket({ ...size, longest: 1 })),
        (specs, capacity) => {
          const buffers: BufferDecl[] = [decl('in0', 'input'), decl('in1', 'input'), decl('w', 'weight')];
          const kernels = specs.map(({ writes, reads, isOutput }, at) => {
            const read = [...new Set(reads.map((back) => buffers[buffers.length - 1 - (back % buffers.length)]!.name))];
            const names = writes.map((spec, i) => {
              buffers.push({ name: `b${at}_${i}`, ...spec, space: isOutput ? 'output' : 'arena' });
              return `b${at}_${i}`;
            });
            return loop(`k${at}`, read, names);
          });
          const module = { interface: interfaceOf(buffers), buffers, weights: [], kernels };
          const plan = planMemory(module, capacity.extents);
          expectSound(module, capacity, plan);
          if (plan.arenaBytes < plan.withoutReuseBytes) reused++;
        },
      ),
      { numRuns: 400, seed: 51 },
    );
    expect(reused).toBeGreaterThan(150);
  });

  it('is the same for the same module, and needs the same memory for 2 layers of LLaMA as for 6', () => {
    const module = (layers: number): KernelModule => {
      const graph = buildDecoder(
        {
          hiddenSize: 48,
          intermediateSize: 40,
          layers,
          heads: 4,
          kvHeads: 2,
          headDim: 8,
          vocabSize: 600,
          rmsNormEps: 1e-5,
          tieWordEmbeddings: false,
          biased: [],
        },
        {
          mask: 'tree',
          rotary: { inverseFrequencies: Float64Array.from([1, 0.3, 0.1, 0.03]), factor: 1 },
          dtypeOf: () => 'bf16',
        },
      );
      return lower(optimize(graph, BF16), BF16);
    };
    const [two, six] = [module(2), module(6)];
    verifyKernels(six);
    const plans = [
      planMemory(two, CAPACITY.extents),
      planMemory(two, CAPACITY.extents),
      planMemory(six, CAPACITY.extents),
    ] as const;
    expect(plans[1]).toEqual(plans[0]);
    expect(plans[2].arenaBytes).toBe(plans[0].arenaBytes);
    expectSound(two, CAPACITY, plans[0]);
    expectSound(six, CAPACITY, plans[2]);
  });
});
