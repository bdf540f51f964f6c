/** Keys and values as codes with scales: what the pass makes of scores and steps, and that kernels mean the same. */
import { describe, expect, it } from 'vitest';
import type { CacheFormat } from '../../ir/function.js';
import { type Graph, isOp } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { buildStep } from '../../models/decoder/graph.js';
import type { Numerics } from '../../passes/numerics.js';
import { quantizeKvCache } from '../../passes/quantizeKvCache.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama, SHAPE } from './llamaGraph.js';
import { F32, TENSOR_CORES } from './lowered.js';
import { distance, environment, TREES } from './modelEnvironment.js';

const SIZES = { hiddenSize: 64, headDim: 16 } as const;
const codes = (cache: CacheFormat): Numerics => ({ ...F32, cache });

const step = (dtype: 'f32' | 'bf16'): Graph =>
  buildStep(
    { ...SHAPE, ...SIZES },
    {
      cache: { rows: 64, dtype },
      rotary: { inverseFrequencies: Float64Array.from({ length: 8 }, (_, i) => 1 / (i + 1)), factor: 1 },
      dtypeOf: () => 'bf16',
    },
  );

describe('quantizeKvCache', () => {
  it('changes nothing without a format', () => {
    const graph = llama(SIZES);
    expect(optimize(graph, F32)).toEqual(optimize(graph, { ...F32 }));
    expect(optimize(graph, F32).nodes.some((node) => isOp(node, 'attention') && node.attributes.scaled)).toBe(false);
  });

  it.each([
    ['e4m3', SHAPE.kvHeads, 16, 0.3, 0.02],
    ['e4m3', 1, 16, 0.4, 0.02],
    ['e4m3', SHAPE.kvHeads, 24, 0.4, 0.02],
    ['i8', SHAPE.kvHeads, 16, 0.08, 0.02],
    ['i8', 1, 16, 0.08, 0.02],
    ['i8', SHAPE.kvHeads, 24, 0.08, 0.02],
    ['i8', 1, 10, 0.08, 0.02],
  ] as const)(
    'means in kernels what it means in the graph as %s, near what the model means: %i heads of keys, of %i numbers',
    (format, kvHeads, headDim, most, rounding) => {
      const numerics = codes(format);
      const graph = llama({ ...SIZES, kvHeads, headDim });
      const env = environment(graph, TREES);
      const narrowed = optimize(graph, numerics);
      const [wanted] = interpretGraph(graph, env);
      const [inGraph] = interpretGraph(narrowed, environment(narrowed, TREES));
      const module = lower(narrowed, numerics);
      const given = new Map([...env.params].map(([name, values]) => [name.toLowerCase(), values]));
      const inputs = module.buffers.filter(({ space }) => space === 'input').map(({ name }) => name);
      const buffers = new Map(inputs.map((name) => [name, given.get(name.replaceAll('_', ''))!]));
      const output = module.buffers.find(({ space, dtype }) => space === 'output' && dtype === 'f32')!;
      const computed = (round: boolean): Float64Array =>
        interpretModule(module, { sizes: env.sizes, buffers, tensors: env.tensors, round }).get(output.name)!;
      expect(distance(inGraph!.data, wanted!.data)).toBeGreaterThan(1e-5);
      expect(distance(inGraph!.data, wanted!.data)).toBeLessThan(most);
      expect(distance(computed(true), inGraph!.data)).toBeLessThan(rounding);
      // Without rounding, codes times scales are what they were made from.
      expect(distance(computed(false), wanted!.data)).toBeLessThan(1e-9);
    },
  );

  it.each([
    ['a CPU', codes('e4m3'), 'f32'],
    ['a CPU', codes('i8'), 'f32'],
    ['a GPU', { ...TENSOR_CORES, cache: 'e4m3' }, 'bf16'],
    ['a GPU', { ...TENSOR_CORES, cache: 'i8' }, 'bf16'],
  ] as const)('keeps codes and scales in states of %s, for the rows that slots name', (_name, numerics, dtype) => {
    const module = lower(optimize(step(dtype), numerics), numerics);
    const rows = dtype === 'bf16' ? { isBlocked: true } : {};
    expect(module.states.slice(0, 4)).toEqual([
      { name: 'k_0', dtype: numerics.cache, rows: 64, columns: 32 },
      { name: 'k_0_scale', dtype: 'f32', rows: 64, columns: 2, ...rows },
      { name: 'v_0', dtype: numerics.cache, rows: 64, columns: 32 },
      { name: 'v_0_scale', dtype: 'f32', rows: 64, columns: 2, ...rows },
    ]);
    expect(module.interface.gives).toHaveLength(8);
    const mix = module.kernels.find(({ anchor }) => anchor === 'attention');
    expect(mix).toMatchObject({ k: 'k_0', v: 'v_0', scales: { k: 'k_0_scale', v: 'v_0_scale' } });
    const loops = module.kernels.filter(({ anchor, path }) => anchor === 'loop' && path.startsWith('layers.0'));
    // Sums; codes; codes and scales that a CPU puts into slots. A GPU stores codes and scales in one kernel.
    expect(loops.length).toBe(dtype === 'bf16' ? 2 : 3);
  });

  it('refuses a model whose attention is not recognized', () => {
    expect(() => quantizeKvCache(step('f32'), 'e4m3')).toThrow(
      /no attention was recognized that reads keys and values/,
    );
    expect(() => quantizeKvCache(llama(SIZES), 'e4m3')).toThrow(/@score: no attention was recognized/);
  });
});
