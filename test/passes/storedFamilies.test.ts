/** Matrices that are multiplied as blocks or as codes, in models of every family: kernels mean what the graph says. */
import { describe, expect, it } from 'vitest';
import { numericsOf } from '../../driver/targets/cpuDevice.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { describeModel } from '../../models/config.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { FAMILY_TYPES, randomFamily, TYPICAL_TYPES } from '../support/families.js';
import { casesHere } from '../support/thorough.js';
import { distance, environment, inputsOf, TREES } from './modelEnvironment.js';

const MASKS = ['tree', 'path'] as const;
const ISAS = ['portable', 'amx'] as const;

const graphOf = (type: string, mask: (typeof MASKS)[number]): Graph => {
  const random = randomFamily(type, 5);
  const isOfHeads = type === 'gpt_neox' || random['qk_rope_head_dim'] !== undefined;
  const heads = { num_attention_heads: 4, num_key_value_heads: isOfHeads ? 4 : 2 };
  const states = type === 'mamba2' ? { num_heads: 6, n_groups: 2, expand: 1.5 } : {};
  const sizes = {
    ...states,
    ...heads,
    hidden_size: 64,
    intermediate_size: 96,
    vocab_size: 600,
    head_dim: random['head_dim'] === null ? null : 16,
  };
  return describeModel({ ...random, ...sizes }, 'config.json', 'f32').graph({ mask, dtypeOf: () => 'f32' });
};

/** Of a checkpoint of blocks, of one of codes, and of one of floats that are rounded while they load. */
const waysOf = (graph: Graph, isa: (typeof ISAS)[number]): readonly Numerics[] => {
  // Blocks are of 32 columns.
  const matrices = graph.weights.filter(({ type: { shape } }) => shape.length === 2 && Number(shape[1]) % 32 === 0);
  const all = (format: 'q8_0' | 'i8'): Numerics =>
    numericsOf(isa, { stored: new Map(matrices.map(({ name }) => [name, format])), rounds: false });
  return [...(isa === 'amx' ? [] : [all('q8_0')]), all('i8'), numericsOf(isa, { stored: new Map(), rounds: true })];
};

describe.each(casesHere(FAMILY_TYPES, ...TYPICAL_TYPES))('%s', (type) => {
  it('becomes kernels, whatever is gathered before a product', () => {
    for (const mask of MASKS)
      for (const isa of ISAS) {
        const graph = graphOf(type, mask);
        for (const numerics of waysOf(graph, isa))
          expect(lower(optimize(graph, numerics), numerics).kernels.length).toBeGreaterThan(5);
      }
  });

  it('means the same in kernels', () => {
    const graph = graphOf(type, 'tree');
    // Matrices of the third way are rounded where they are packed.
    for (const numerics of waysOf(graph, 'portable').slice(0, 2)) {
      const env = environment(graph, TREES);
      const narrowed = optimize(graph, numerics);
      const module = lower(narrowed, numerics);
      const buffers = inputsOf(module, env);
      // Vectors are tables of a loop, or factors of columns of a matrix.
      const vectors = new Set(
        graph.weights.filter(({ type: { shape } }) => shape.length === 1).map(({ name }) => name),
      );
      const tables = new Set(module.weights.flatMap(({ sources }) => sources.map(({ tensor }) => tensor)));
      for (const [name, { rows, columns, data }] of env.tensors)
        if (rows === 1 && vectors.has(name) && tables.has(name))
          env.tensors.set(name, { rows: columns, columns: 1, data });
      for (const { name, values } of module.constants)
        env.tensors.set(name, { rows: values.length, columns: 1, data: Float64Array.from(values) });
      const out = interpretModule(module, { sizes: env.sizes, buffers, tensors: env.tensors });
      const output = module.buffers.find(({ space, dtype }) => space === 'output' && dtype === 'f32')!;
      const wanted = interpretGraph(narrowed, env)[0]!.data;
      expect(distance(out.get(output.name)!, wanted)).toBeLessThan(1e-9);
    }
  });
});
