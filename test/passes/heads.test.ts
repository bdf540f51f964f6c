/** Norms of heads with rotation behind them, as graphs write them: kernels compute what the graph computes. */
import { describe, expect, it } from 'vitest';
import { defaultSchedule } from '../../codegen/cpu/index.js';
import { defaultCudaSchedule } from '../../codegen/cuda/index.js';
import { TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { Graph } from '../../ir/graph/graph.js';
import { type GraphEnv, interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { scoringBucket } from '../../ir/scoring.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { runGenerated, RUNNABLE } from '../codegen/harness.js';
import { casesHere } from '../support/thorough.js';
import { bufferName, F32, interpretLowered, kernelsOf, lowerAsIs, printModule, TENSOR_CORES } from './lowered.js';
import { distance, environment, parse, SIZES } from './support.js';

/** q and k of Qwen3: projection, RMSNorm over each head with one weight, rotary embedding. */
const normedHeads = (headDim: number, heads = 3, kvHeads = 1): string => {
  const one = (name: string, count: number): string => `
    %${name} = linear(%x, @${name}_proj) : f32[T, ${count * headDim}] at "attention"
    %${name}_heads = reshape(%${name}) {shape = [T, ${count}, ${headDim}]} : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_square = mul(%${name}_heads, %${name}_heads) : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_mean = mean(%${name}_square) : f32[T, ${count}, 1] at "attention"
    %${name}_safe = add(%${name}_mean, %eps) : f32[T, ${count}, 1] at "attention"
    %${name}_scale = rsqrt(%${name}_safe) : f32[T, ${count}, 1] at "attention"
    %${name}_unit = mul(%${name}_heads, %${name}_scale) : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_normed = mul(%${name}_unit, @${name}_norm) : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_turned = rotate_half(%${name}_normed) : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_straight = mul(%${name}_normed, %cosine) : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_crossed = mul(%${name}_turned, %sine) : f32[T, ${count}, ${headDim}] at "attention"
    %${name}_rotary = add(%${name}_straight, %${name}_crossed) : f32[T, ${count}, ${headDim}] at "attention"`;
  return `
  func @g(%x: f32[T, 32], %cosine: f32[T, 1, ${headDim}], %sine: f32[T, 1, ${headDim}], %row: i32[R])
    -> (f32[T, ${heads}, ${headDim}], f32[T, ${kvHeads}, ${headDim}]) {
    weight @q_proj : f32[${heads * headDim}, 32]
    weight @k_proj : f32[${kvHeads * headDim}, 32]
    weight @q_norm : f32[${headDim}]
    weight @k_norm : f32[${headDim}]
    %eps = const() {value = 0.00001} : f32[]
    ${one('q', heads)}
    ${one('k', kvHeads)}
    return %q_rotary, %k_rotary
  }`;
};

const BUCKET = scoringBucket({ tokens: SIZES.T, rows: SIZES.R, longest: SIZES.T });

/** Inputs and weights of `graph` for generated code. */
const runOf = (graph: Graph, env: GraphEnv) => ({
  sizes: SIZES,
  inputs: new Map(graph.params.map((p) => [bufferName(p), env.params.get(p.name)!])),
  tensors: new Map(
    graph.weights.map(({ name, type }): [string, RawTensor] => {
      const [rows, columns = 1] = type.shape as readonly number[];
      return [name, { rows: rows!, columns, data: env.weights.get(name)! }];
    }),
  ),
});

describe('norms of heads', () => {
  it('are left as sums of parts by the projection, and applied with the rotation by one loop', () => {
    expect(kernelsOf(normedHeads(32, 2))).toMatchInlineSnapshot(`
      "
      attention: gemm over T, x[T, 32]
        attention_w0: 64 columns, rotate 32 by 16
          q_rotary = add(mul(mul(mul(acc0, rsqrt(add(mul(groupSum(mul(acc0, acc0) of 32 columns), 0.03125),
              0.00001))), q_norm_table[column mod 32]), cosine[row, column mod 32]), mul(rotateHalf(mul(mul(acc0,
              rsqrt(add(mul(groupSum(mul(acc0, acc0) of 32 columns), 0.03125), 0.00001))), q_norm_table[column mod
              32])), sine[row, column mod 32]))
        attention_w1: 32 columns, rotate 32 by 16
          k_rotary = add(mul(mul(mul(acc0, rsqrt(add(mul(groupSum(mul(acc0, acc0) of 32 columns), 0.03125),
              0.00001))), k_norm_table[column]), cosine[row, column]), mul(rotateHalf(mul(mul(acc0,
              rsqrt(add(mul(groupSum(mul(acc0, acc0) of 32 columns), 0.03125), 0.00001))), k_norm_table[column])),
              sine[row, column]))
      "
    `);
  });

  it.each([2, 6, 8, 24, 48])('of %i columns compute what the graph computes', (headDim) => {
    kernelsOf(normedHeads(headDim));
    kernelsOf(normedHeads(headDim, 4, 2));
  });

  it.each(casesHere([32, 20], 1))('of %i columns compute it in C', (headDim) => {
    const graph = parse(normedHeads(headDim));
    const env = environment(graph);
    const module = lowerAsIs(graph);
    const isas = RUNNABLE.filter((isa) => isa !== 'amx');
    const schedules = module.kernels.map((kernel) =>
      defaultSchedule(kernel, module, { isas, l1: 32768, l2: 1 << 20 }, BUCKET),
    );
    const got = runGenerated(module, { ...runOf(graph, env), schedules, workers: 2, isQuick: true });
    expect(got.overruns).toEqual([]);
    interpretGraph(graph, env).forEach((want, i) => {
      const name = bufferName(graph.results[i]!);
      expect(distance(want.data, got.values.get(name)!), name).toBeLessThan(1e-4);
    });
  });

  it.each(casesHere([32, 20]))('of %i columns compute it in CUDA', (headDim) => {
    const graph = optimize(parse(normedHeads(headDim)), TENSOR_CORES);
    const env = environment(graph);
    const module = lower(graph, TENSOR_CORES);
    const schedules = module.kernels.map((kernel) => defaultCudaSchedule(kernel, module, TYPICAL_FACTS.sm_80, BUCKET));
    const run = runOf(graph, env);
    const got = emulateModule(module, { ...run, schedules, tokensCapacity: 64 });
    const want = interpretModule(module, { sizes: run.sizes, buffers: run.inputs, tensors: run.tensors, round: true });
    interpretGraph(graph, env).forEach((exact, i) => {
      const name = bufferName(graph.results[i]!);
      expect(distance(want.get(name)!, got.values.get(name)!), name).toBeLessThan(1e-3);
      expect(distance(exact.data, got.values.get(name)!), name).toBeLessThan(0.05);
    });
  });

  it('pass through all passes, for tensor cores as well', () => {
    const graph = parse(normedHeads(64, 2, 1));
    const env = environment(graph);
    const want = interpretGraph(graph, env);
    for (const [numerics, bound] of [
      [F32, 1e-9],
      [TENSOR_CORES, 0.1],
    ] as const) {
      const optimized = optimize(graph, numerics);
      const module = lower(optimized, numerics);
      interpretLowered(optimized, module, env).forEach((got, i) =>
        expect(distance(want[i]!.data, got), printModule(module)).toBeLessThan(bound),
      );
    }
  });
});

describe('rotation in a loop', () => {
  it('reads only what is in memory, in heads of one width for each kernel', () => {
    expect(
      kernelsOf(`
        func @g(%x: f32[T, 2, 8]) -> (f32[T, 2, 8], f32[T, 4, 4]) {
          %wide = rotate_half(%x) : f32[T, 2, 8]
          %again = reshape(%x) {shape = [T, 4, 4]} : f32[T, 4, 4]
          %narrow = rotate_half(%again) : f32[T, 4, 4]
          return %wide, %narrow
        }
      `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 16, heads of 8
        wide = rotateHalf(x[row, column])
      v__1: loop over T × 16, heads of 4
        narrow = rotateHalf(x[row, column])
      "
    `);
  });
});
