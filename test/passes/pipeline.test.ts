import { describe, expect, it } from 'vitest';
import { CompileError } from '../../errors.js';
import type { Graph, Node } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import type { Numerics } from '../../passes/numerics.js';
import { GRAPH_PASSES, isNeeded, KERNEL_PASSES } from '../../passes/pipeline.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { BF16, F32, HALF, interpretLowered, TENSOR_CORES } from './lowered.js';
import { distance, environment, parse } from './support.js';

const count = (graph: Graph): Record<string, number> => {
  const ops: Record<string, number> = {};
  for (const node of graph.nodes) ops[node.op] = (ops[node.op] ?? 0) + 1;
  return ops;
};

describe('the pipeline', () => {
  it('says of every pass why it is where it is', () => {
    for (const { name, reason } of [...GRAPH_PASSES, ...KERNEL_PASSES]) expect(reason, name).toMatch(/\w+ \w+/);
  });

  it('runs a pass only for the numerics that it is for', () => {
    const needed = (numerics: Numerics): string[] =>
      KERNEL_PASSES.filter((pass) => isNeeded(pass, numerics)).map(({ name }) => name);
    expect(GRAPH_PASSES.every((pass) => isNeeded(pass, F32))).toBe(true);
    expect(needed(F32)).toEqual(KERNEL_PASSES.filter(({ when }) => when === undefined).map(({ name }) => name));
    const all = KERNEL_PASSES.map(({ name }) => name);
    expect(needed(HALF)).toEqual(all.filter((name) => name !== 'splitResidualStream'));
    expect(needed(TENSOR_CORES)).toEqual(all);
  });

  it.each(['tree', 'metaPair', 'slidingWindow'] as const)('leaves nothing for any pass to do (%s)', (mask) => {
    for (const numerics of [F32, BF16]) {
      const result = optimize(llama({}, mask), numerics);
      for (const pass of GRAPH_PASSES) expect(pass.run(result, numerics), pass.name).toBe(result);
      expect(optimize(result, numerics)).toBe(result);
    }
  });

  it('leaves a graph alone that contains no part of a model', () => {
    const graph = parse(`
      func @g(%x: f32[T, 4]) -> (f32[T, 3]) {
        weight @w : f32[3, 4]
        %bent = cos(%x) : f32[T, 4]
        %y = linear(%bent, @w) : f32[T, 3]
        return %y
      }
    `);
    expect(optimize(graph, F32)).toBe(graph);
  });

  it('leaves no primitive softmax, separate norm, bias or logits of LLaMA', () => {
    expect(count(llama())).toMatchInlineSnapshot(`
      {
        "add": 17,
        "and": 1,
        "argmax": 1,
        "cast": 8,
        "const": 11,
        "cos": 1,
        "div": 4,
        "eq": 1,
        "exp": 5,
        "gather_last": 1,
        "gather_rows": 3,
        "iota": 1,
        "le": 1,
        "linear": 15,
        "log": 1,
        "lt": 1,
        "matmul": 4,
        "mean": 5,
        "mul": 28,
        "neg": 2,
        "reduce_max": 3,
        "repeat": 4,
        "reshape": 15,
        "rotate_half": 4,
        "rsqrt": 5,
        "select": 1,
        "sin": 1,
        "sub": 4,
        "sum": 3,
        "transpose": 10,
        "vector": 1,
      }
    `);
    const ops = count(optimize(llama(), F32));
    expect(ops).toMatchInlineSnapshot(`
      {
        "add": 15,
        "attention": 2,
        "cast": 18,
        "const": 2,
        "cos": 1,
        "div": 2,
        "exp": 2,
        "gather_rows": 2,
        "is_argmax": 1,
        "linear": 14,
        "logprob": 1,
        "mean": 5,
        "mul": 37,
        "neg": 2,
        "reshape": 11,
        "rotate_half": 4,
        "rsqrt": 5,
        "sin": 1,
        "vector": 1,
      }
    `);
    expect(
      optimize(llama(), F32).nodes.filter(
        (n) => n.result.type.shape.filter((d) => d === 'T').length > 1 || n.result.type.shape.at(-1) === 600,
      ),
    ).toEqual([]);
  });

  it('asks for the ends of subtrees if the mask is a meta-pair, and for nothing else new', () => {
    const names = (graph: Graph): string[] => graph.params.map((p) => p.name);
    expect(names(optimize(llama({}, 'metaPair'), F32))).toEqual([...names(llama({}, 'metaPair')), 'subtreeEnd']);
    expect(names(optimize(llama({}, 'tree'), F32))).toEqual(names(llama({}, 'tree')));
  });

  it('keeps a mask that it cannot prove as a bias, computed once for all layers', () => {
    const module = lower(optimize(llama({}, 'slidingWindow'), F32), F32);
    const masks = module.kernels.flatMap((k) => (k.anchor === 'attention' ? [k.mask] : []));
    expect(masks).toEqual([
      { kind: 'bias', buffer: 'bias' },
      { kind: 'bias', buffer: 'bias' },
    ]);
    expect(module.kernels.filter((k) => k.anchor === 'loop' && k.columns === 'T').map((k) => k.path)).toEqual([
      'prepare',
    ]);
  });
});

describe('from the graph of a model to kernels', () => {
  it.each([
    ['heads of 48', { headDim: 48, hiddenSize: 64 }, 'tree', F32],
    ['heads of 96, one key head', { headDim: 96, kvHeads: 1 }, 'tree', F32],
    ['as many key heads', { kvHeads: 4 }, 'metaPair', F32],
    ['one layer, all of it pruned', { layers: 1 }, 'tree', F32],
    ['three layers under a window', { layers: 3 }, 'slidingWindow', F32],
    [
      'a tied head and an odd width',
      { tieWordEmbeddings: true, hiddenSize: 50, intermediateSize: 33, vocabSize: 1025 },
      'tree',
      F32,
    ],
    ['16 bits', {}, 'tree', BF16],
    ['16 bits for tensor cores', { hiddenSize: 50, headDim: 48 }, 'tree', TENSOR_CORES],
    ['half precision for tensor cores', {}, 'metaPair', HALF],
  ] as const)('%s: the results are the same', (_what, shape, mask, numerics: Numerics) => {
    const graph = llama(shape, mask);
    const optimized = optimize(graph, numerics);
    verifyGraph(optimized);
    const module = lower(optimized, numerics);
    verifyKernels(module);
    const env = environment(optimized);
    const [logProb, isArgmax] = interpretGraph(graph, env);
    const [gotLogProb, gotIsArgmax] = interpretLowered(optimized, module, env);
    expect([...logProb!.data].every((x) => Number.isFinite(x) && x < 0)).toBe(true);
    // bf16 keeps 8 bits of weights as large as 2.
    expect(distance(logProb!.data, gotLogProb!)).toBeLessThan(numerics === F32 ? 1e-9 : 0.1);
    if (numerics === F32) expect([...gotIsArgmax!]).toEqual([...isArgmax!.data]);
  });

  it('says which pattern was missed if a model is written another way', () => {
    const graph = llama();
    const isScore = ({ op, path, result: { type } }: Node): boolean =>
      op === 'mul' && path === 'layers.0.attention' && type.shape.slice(1).join() === 'T,T';
    const score = graph.nodes.find(isScore)!.result;
    const unusual: Graph = {
      ...graph,
      nodes: graph.nodes.map((n) =>
        n.op === 'reduce_max' && n.path === 'layers.0.attention'
          ? { ...n, operands: { x: score }, inputs: [score] }
          : n,
      ),
    };
    verifyGraph(unusual);
    expect(() => lower(optimize(unusual, F32), F32)).toThrow(CompileError);
    expect(() => lower(optimize(unusual, F32), F32)).toThrowErrorMatchingInlineSnapshot(
      `[Error: no kernel for 'transpose' (%q_by_head) outside the patterns that passes recognize]`,
    );
  });
});
