/** Rows of the residual stream as an output of step: what the head multiplies; nothing else is computed otherwise. */
import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretFunction } from '../../ir/graph/interpreter.js';
import type { Kernel } from '../../ir/kernel.js';
import { outputsOf } from '../../ir/kernelAccess.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { buildStep, type DecoderShape } from '../../models/decoder/graph.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { SHAPE } from './llamaGraph.js';
import { F32, TENSOR_CORES } from './lowered.js';
import { distance, environment } from './modelEnvironment.js';

const ROTARY = { inverseFrequencies: Float64Array.from({ length: 8 }, (_, i) => 1 / (i + 1)), factor: 1 };
const WIDTH = 64;
const PATH = [5, 17, 599, 0, 3, 4];
const ROWS = [0, 5, 2, 2];
const SIZES = { T: PATH.length, C: PATH.length, R: ROWS.length };

const stepOf = (hidden: boolean, dtype: 'f32' | 'bf16', change: Partial<DecoderShape> = {}): Graph =>
  buildStep(
    { ...SHAPE, hiddenSize: WIDTH, headDim: 16, ...change },
    { cache: { rows: 32, dtype }, rotary: ROTARY, dtypeOf: () => 'bf16', filters: true, feeds: true, hidden },
  );

const PARAMS = new Map(
  Object.entries({
    tokens: PATH,
    isFed: PATH.map(() => 0),
    feed: PATH.map(() => 0),
    position: PATH.map((_, i) => i),
    slot: PATH.map((_, i) => 31 - 3 * i),
    key: PATH.map((_, i) => 31 - 3 * i),
    begin: PATH.map(() => 0),
    row: ROWS,
    target: ROWS.map(() => 7),
    inverseTemperature: ROWS.map(() => 0),
    keyLow: ROWS.map(() => 0),
    keyHigh: ROWS.map(() => 0),
    keep: ROWS.map(() => -1),
  }).map(([name, values]) => [name, Float64Array.from(values)]),
);

/** All inputs of the graph, those of filtered rows empty. */
const paramsOf = ({ params }: Graph): ReadonlyMap<string, Float64Array> =>
  new Map(params.map(({ name }) => [name, PARAMS.get(name) ?? new Float64Array(0)]));

const statesOf = ({ states }: Graph): ReadonlyMap<string, Float64Array> =>
  new Map(
    states.map(({ name, type }) => [
      name,
      new Float64Array(type.shape.map(Number).reduce((product, n) => product * n)),
    ]),
  );

describe('hidden rows', () => {
  it.each<readonly [string, Partial<DecoderShape>]>([
    ['a model', {}],
    ['one whose logits have a factor', { factors: { embedding: 1, residual: 1, scores: 0.25, logits: 0.0625 } }],
    ['one with a LayerNorm', { norm: { kind: 'layer', offset: 0, hasBias: true } }],
  ])('are what the norm of %s makes of its stream: graph, optimized graph and kernels', (_name, change) => {
    const graph = stepOf(true, 'f32', change);
    const { tensors, weights } = environment(graph, {});
    const env = { sizes: { ...SIZES, F: 0, E: 0, M: 0 }, params: paramsOf(graph), states: statesOf(graph), weights };
    let stream: Float64Array | undefined;
    const found = interpretFunction(graph, {
      ...env,
      trace: (node, { data }) => {
        if (node.path === 'layers.1.ffn' && node.op === 'add') stream = data;
      },
    }).results[graph.outputs.indexOf('hidden')]!.data;
    const normWeights = weights.get(graph.weights.find(({ name }) => name === 'model.norm.weight')!.name)!;
    const bias = weights.get('model.norm.bias');
    const wanted = ROWS.flatMap((row) => {
      const x = [...stream!.subarray(row * WIDTH, (row + 1) * WIDTH)];
      const mean = change.norm === undefined ? 0 : x.reduce((a, b) => a + b) / WIDTH;
      const square = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / WIDTH;
      return x.map((v, i) => ((v - mean) / Math.sqrt(square + SHAPE.rmsNormEps)) * normWeights[i]! + (bias?.[i] ?? 0));
    });
    expect(distance(found, wanted)).toBeLessThan(1e-9);
    const optimized = optimize(graph, F32);
    const again = interpretFunction(optimized, { ...env, params: paramsOf(optimized) });
    expect(distance(again.results[optimized.outputs.indexOf('hidden')]!.data, wanted)).toBeLessThan(1e-9);
    const module = lower(optimized, F32);
    verifyIndices(module);
    const inputs = module.interface.inputs.map(({ name, buffer }) => [buffer, paramsOf(optimized).get(name)!] as const);
    const buffers = new Map([...inputs, ...env.states]);
    // Vectors of the checkpoint that are read as tables have one column.
    const vectors = module.weights.flatMap(({ layout, k, sources: [source] }) => {
      const tensor = tensors.get(source!.tensor);
      return layout === 'rows' && k === 1 && tensor !== undefined
        ? [[source!.tensor, { ...tensor, rows: tensor.data.length, columns: 1 }] as const]
        : [];
    });
    const all = new Map([...tensors, ...vectors]);
    const out = interpretModule(module, { sizes: env.sizes, buffers, tensors: all });
    const { buffer } = module.interface.outputs.find(({ name }) => name === 'hidden')!;
    expect(distance(out.get(buffer)!, wanted)).toBeLessThan(1e-9);
  });

  it.each<readonly [string, Numerics, 'f32' | 'bf16']>([
    ['a CPU', F32, 'f32'],
    ['a GPU', TENSOR_CORES, 'bf16'],
  ])('leave the kernels of %s as they are without them', (_name, numerics, dtype) => {
    const kernelsOf = (hidden: boolean): readonly string[] =>
      lower(optimize(stepOf(hidden, dtype), numerics), numerics).kernels.flatMap((kernel) => {
        // A contraction may go on with its whole rows. What it computes of them is its own.
        const { finish: _, ...own } = kernel.anchor === 'gemm' ? kernel : { ...kernel, finish: undefined };
        return outputsOf(kernel).some((output) => output.kind === 'store' && output.buffer.startsWith('normed')) &&
          kernel.anchor === 'loop'
          ? []
          : [printKernel(own as Kernel)];
      });
    expect(kernelsOf(true)).toEqual(kernelsOf(false));
  });
});
