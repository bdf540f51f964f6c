/** Contractions in 8 bits: what the pass makes of a model, and that kernels mean what the graph says. */
import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { roundToE4m3 } from '../../ir/round.js';
import { rowScale } from '../../ir/rounding.js';
import { FORMATS } from '../../ir/storage.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { wideLayers } from '../../passes/quantizeContractions.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { unrecognized } from '../../passes/unrecognized.js';
import { randomSource } from '../codegen/harness.js';
import { llama } from './llamaGraph.js';
import { TENSOR_CORES } from './lowered.js';
import { distance, environment, TREES } from './modelEnvironment.js';

const NARROW: Numerics = { ...TENSOR_CORES, narrow: { format: 'e4m3', from: 'values', keep: [] } };

const model = (): Graph => llama({ hiddenSize: 64, intermediateSize: 128, headDim: 16 });

function logProbs(graph: Graph, module: LoweredModule, round: boolean): Float64Array {
  const env = environment(graph, TREES);
  const given = new Map([...env.params].map(([name, values]) => [name.toLowerCase(), values]));
  const inputs = module.buffers.filter(({ space }) => space === 'input').map(({ name }) => name);
  const buffers = new Map(inputs.map((name) => [name, given.get(name.replaceAll('_', ''))!]));
  // Kernels read vectors as tables of one column, unless they are folded into matrices.
  const tables = new Set(module.weights.filter(({ k }) => k === 1).map(({ sources }) => sources[0]!.tensor));
  const tensors = new Map(
    [...env.tensors].map(([name, tensor]) => [
      name,
      tensor.rows === 1 && tables.has(name) ? { ...tensor, rows: tensor.columns, columns: 1 } : tensor,
    ]),
  );
  const out = interpretModule(module, { sizes: env.sizes, buffers, tensors, round });
  const output = module.buffers.find(({ space, dtype }) => space === 'output' && dtype === 'f32')!;
  return out.get(output.name)!;
}

describe('quantizeContractions', () => {
  const graph = model();
  const narrowed = optimize(graph, NARROW);
  const module = lower(narrowed, NARROW);
  const [wanted] = interpretGraph(graph, environment(graph, TREES));

  it('computes every contraction of a layer in 8 bits, and the head as before', () => {
    const dtypes = new Map(module.buffers.map(({ name, dtype }) => [name, dtype]));
    const operands = module.kernels.flatMap((kernel) =>
      kernel.anchor === 'gemm' || kernel.anchor === 'logprob' ? [`${kernel.path} ${dtypes.get(kernel.a)}`] : [],
    );
    expect(operands.slice(-5)).toEqual([
      'layers.1.attention.qkv e4m3',
      'layers.1.attention.o e4m3',
      'layers.1.ffn.gate_up e4m3',
      'layers.1.ffn.down e4m3',
      'head bf16',
    ]);
    const formats = module.weights.filter(({ layout }) => layout === 'kmajor').map(({ format }) => format);
    expect(formats.filter((format) => format !== 'e4m3')).toEqual(['bf16']);
    expect(unrecognized(module)).toEqual([]);
  });

  it('means in kernels what it means in the graph, within what 8 bits cost', () => {
    const inGraph = interpretGraph(narrowed, environment(graph, TREES))[0]!.data;
    const rounded = logProbs(graph, module, true);
    // Rounding to 16 bits between kernels moves a few numbers over a border of 8 bits.
    expect(distance(rounded, inGraph)).toBeLessThan(0.5 * distance(inGraph, wanted!.data) + 0.05);
    expect(distance(rounded, wanted!.data)).toBeLessThan(0.6);
    expect(distance(rounded, wanted!.data)).toBeGreaterThan(1e-4);
  });

  it('keeps tensors that it is told to keep', () => {
    const kept = graph.weights.map(({ name }) => name).filter((name) => name.includes('.0.'));
    const numerics: Numerics = { ...NARROW, narrow: { ...NARROW.narrow!, keep: kept } };
    const { weights } = lower(optimize(graph, numerics), numerics);
    const formatOf = (layer: string): readonly string[] => [
      ...new Set(
        weights
          .filter(({ layout, sources }) => layout === 'kmajor' && sources[0]!.tensor.includes(layer))
          .map(({ format }) => format),
      ),
    ];
    expect(formatOf('.0.')).toEqual(['bf16']);
    expect(formatOf('.1.')).toEqual(['e4m3']);
  });
});

describe('contractions of int8', () => {
  const graph = model();
  const plain: Numerics = {
    activations: 'f32',
    weights: { layout: 'panels', format: 'stored' },
    narrow: { format: 'i8', from: 'values', keep: [] },
  };
  const tiles: Numerics = { ...plain, activations: 'bf16', weights: { layout: 'vnni', format: 'bf16' } };
  const [wanted] = interpretGraph(graph, environment(graph, TREES));

  it.each([
    ['f32', plain],
    ['bf16', tiles],
  ] as const)(
    'round rows themselves: those of the stream in f32, their own as others multiply, in %s',
    (dtype, numerics) => {
      const narrowed = optimize(graph, numerics);
      const module = lower(narrowed, numerics);
      const dtypes = new Map(module.buffers.map((buffer) => [buffer.name, buffer.dtype]));
      const read = module.kernels.flatMap((kernel) =>
        kernel.anchor === 'gemm' || kernel.anchor === 'logprob'
          ? [`${kernel.path} ${dtypes.get(kernel.a)} ${kernel.rounding?.columns ?? 'as it is'}`]
          : [],
      );
      expect(read.slice(-5)).toEqual([
        'layers.1.attention.qkv f32 64',
        `layers.1.attention.o ${dtype} 64`,
        'layers.1.ffn.gate_up f32 64',
        `layers.1.ffn.down ${dtype} 128`,
        `head ${dtype} as it is`,
      ]);
      expect(unrecognized(module)).toEqual([]);
      const inGraph = interpretGraph(narrowed, environment(graph, TREES))[0]!.data;
      const rounded = logProbs(graph, module, true);
      expect(distance(rounded, inGraph)).toBeLessThan(0.5 * distance(inGraph, wanted!.data) + 0.05);
      expect(distance(rounded, wanted!.data)).toBeLessThan(0.5);
      expect(distance(rounded, wanted!.data)).toBeGreaterThan(1e-4);
    },
  );

  it('are those of tensors that are stored so, which take no norm weights', () => {
    const only = new Set(graph.weights.map(({ name }) => name).filter((name) => /\.0\..*(q_proj|down)/.test(name)));
    const stored = new Map([...only].map((name): [string, 'i8'] => [name, 'i8']));
    const numerics: Numerics = { ...tiles, stored, narrow: { format: 'i8', from: 'codes', keep: [], only } };
    const { weights } = lower(optimize(graph, numerics), numerics);
    const codes = weights.filter(({ format }) => format === 'i8');
    expect(codes.map(({ sources }) => sources[0]!.tensor)).toEqual([...only]);
    expect(codes.every(({ from, columnScale }) => from === 'codes' && columnScale === undefined)).toBe(true);
  });
});

describe('layers that stay as they are', () => {
  it.each([
    { layers: 1, first: 0, ends: 0 },
    { layers: 3, first: 0, ends: 0 },
    { layers: 4, first: 2, ends: 1 },
    { layers: 8, first: 5, ends: 2 },
    { layers: 16, first: 5, ends: 2 },
    { layers: 60, first: 4, ends: 2 },
  ])('of $layers are the first $first, or $ends at each end', ({ layers, first, ends }) => {
    expect(wideLayers(layers, 'first')).toEqual({ first, last: 0 });
    expect(wideLayers(layers, 'ends')).toEqual({ first: ends, last: ends });
    expect(wideLayers(layers, undefined)).toEqual({ first: 0, last: 0 });
    if (layers > 8) return;
    const narrowed = (wide: 'first' | 'ends'): number[] => {
      const numerics: Numerics = { ...NARROW, narrow: { ...NARROW.narrow!, wide } };
      const { kernels, buffers } = lower(optimize(llama({ layers }), numerics), numerics);
      const dtypes = new Map(buffers.map(({ name, dtype }) => [name, dtype]));
      const found = kernels.flatMap((kernel) =>
        kernel.anchor === 'gemm' && dtypes.get(kernel.a) === 'e4m3' ? [Number(kernel.path.split('.')[1])] : [],
      );
      return [...new Set(found)];
    };
    const all = Array.from({ length: layers }, (_, i) => i);
    expect(narrowed('first')).toEqual(all.slice(first));
    expect(narrowed('ends')).toEqual(all.slice(ends, layers - ends));
  });
});

describe('codes', () => {
  it('of i8 reach the largest code, and rows of zeros have a scale', () => {
    const row = Float64Array.of(0.5, -3, 0, 1e-6);
    expect(rowScale(row, 'i8')).toBe(Math.fround(3 / 127));
    expect(rowScale(new Float64Array(3), 'i8')).toBe(1);
    expect(rowScale(new Float64Array(3), 'e4m3')).toBe(1);
  });

  it('of E4M3 have the scale with the least error, within an octave of the least that saturates nothing', () => {
    const random = randomSource(5);
    const errorOf = (row: Float64Array, scale: number): number =>
      row.reduce((sum, value) => sum + (value - roundToE4m3(value / scale) * scale) ** 2, 0);
    const sums = { own: 0, plain: 0 };
    for (let i = 0; i < 20; i++) {
      const row = Float64Array.from({ length: 96 }, () => Math.fround(random() * random() * 3));
      const least = Math.fround(Math.max(...row.map(Math.abs)) / 448);
      const scale = rowScale(row, 'e4m3');
      expect(scale).toBeGreaterThanOrEqual(least);
      expect(scale).toBeLessThan(2 * least);
      const steps = Array.from({ length: 16 }, (_, at) => errorOf(row, least * 2 ** (at / 16)));
      expect(errorOf(row, scale)).toBeLessThan(Math.min(...steps) * 1.001);
      sums.own += errorOf(row, scale);
      sums.plain += errorOf(row, least);
    }
    expect(sums.own).toBeLessThan(0.85 * sums.plain);
    // All exact: the first of equal scales.
    expect(rowScale(Float64Array.of(1, -2, 4), 'e4m3')).toBe(Math.fround(4 / 448));
    expect(rowScale(Float64Array.of(1, NaN), 'e4m3')).toBeNaN();
  });

  it.each(['e4m3', 'i8'] as const)('of %s read back as they are, and others as the nearest', (name) => {
    const { encode, decode } = FORMATS[name];
    const codes = Uint8Array.from({ length: 256 }, (_, i) => i).filter((code) => name === 'e4m3' || code !== 0x80);
    const values = decode(codes);
    expect(decode(encode(values))).toEqual(values);
    const sorted = [...values].filter(Number.isFinite).sort((a, b) => a - b);
    for (let i = 1; i < sorted.length; i++) {
      const [low, high] = [sorted[i - 1]!, sorted[i]!];
      if (low === high) continue;
      const between = Float64Array.of(low + (high - low) * 0.49, low + (high - low) * 0.51);
      expect([...decode(encode(between))].map((value) => value + 0)).toEqual([low + 0, high + 0]);
    }
    expect(decode(encode(Float64Array.of(1e9, -1e9)))).toEqual(
      name === 'i8' ? Float64Array.of(127, -127) : Float64Array.of(448, -448),
    );
  });
});
