/** Matrices in blocks: which products read them, and that kernels mean what the graph says. */
import { describe, expect, it } from 'vitest';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { BlockName } from '../../ir/storage.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { distance, environment, inputsOf, TREES } from './modelEnvironment.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'stored' } };

describe('keepBlockWeights', () => {
  const graph = llama({ hiddenSize: 64, intermediateSize: 128, headDim: 16 }, 'tree', 'f32');
  const withBlocks = (formatOf: (name: string) => BlockName | undefined): Numerics => ({
    ...F32,
    stored: new Map(
      graph.weights.flatMap(({ name, type }): [string, BlockName][] => {
        const format = type.shape.length === 2 ? formatOf(name) : undefined;
        return format === undefined ? [] : [[name, format]];
      }),
    ),
  });
  const formatsOf = (numerics: Numerics): readonly string[] =>
    lower(optimize(graph, numerics), numerics)
      .weights.filter(({ layout }) => layout !== 'rows')
      .map(({ sources, format }) => `${sources[0]!.tensor.split('.').slice(-2, -1)[0]} ${format}`);

  it('keeps the blocks of all products that share rows, and of none where one has no blocks', () => {
    const formats = formatsOf(
      withBlocks((name) => (/up_proj|gate_proj/.test(name) ? 'q4_0' : /o_proj/.test(name) ? undefined : 'q8_0')),
    );
    expect(new Set(formats.filter((each) => /gate|up/.test(each)))).toEqual(new Set(['gate_proj q4_0']));
    expect(formats).toContain('q_proj q8_0');
    expect(formats).toContain('o_proj f32');
  });

  it('takes two matrices of one tile only in one format', () => {
    const formats = formatsOf(withBlocks((name) => (name.includes('up_proj') ? 'q4_0' : 'q8_0')));
    expect(formats).toContain('gate_proj f32');
    expect(formats).toContain('down_proj q8_0');
  });

  it('means in kernels what it means in the graph: rows are rounded, and nothing else', () => {
    const numerics = withBlocks(() => 'q8_0');
    const env = environment(graph, TREES);
    const narrowed = optimize(graph, numerics);
    const module = lower(narrowed, numerics);
    const buffers = inputsOf(module, env);
    // Kernels read vectors as tables of one column.
    const tensors = new Map(
      [...env.tensors].map(([name, tensor]) => [
        name,
        tensor.rows === 1 ? { ...tensor, rows: tensor.columns, columns: 1 } : tensor,
      ]),
    );
    const out = interpretModule(module, { sizes: env.sizes, buffers, tensors });
    const output = module.buffers.find(({ space, dtype }) => space === 'output' && dtype === 'f32')!;
    const inGraph = interpretGraph(narrowed, env)[0]!.data;
    const exact = interpretGraph(graph, env)[0]!.data;
    expect(distance(out.get(output.name)!, inGraph)).toBeLessThan(1e-6);
    expect(distance(inGraph, exact)).toBeGreaterThan(1e-5);
    expect(distance(inGraph, exact)).toBeLessThan(0.2);
  });
});
