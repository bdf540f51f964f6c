/**
 * Steps of recurrent families in float64: texts in pieces, from rows of states that others have left, get the numbers
 * that scoring gives them. The inputs are made as a device makes them of messages.
 */
import { describe, expect, it } from 'vitest';
import { SequenceTable } from '../../driver/devices/sequenceTable.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretFunction, interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { findArchitecture } from '../../models/families/registry.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { environment } from '../passes/modelEnvironment.js';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';
import { pathsOfWalk, scoreInputs, walkStates } from '../support/stateWalk.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
const CACHE_ROWS = 16 * 64;

const statesOf = (graph: Graph): ReadonlyMap<string, Float64Array> =>
  new Map(
    graph.states.map(({ name, type }) => [
      name,
      new Float64Array(type.shape.reduce((n: number, d) => n * Number(d), 1)),
    ]),
  );
const asDoubles = (arrays: Readonly<Record<string, ArrayLike<number> | undefined>>): Map<string, Float64Array> =>
  new Map(Object.entries(arrays).map(([name, array]) => [name, Float64Array.from(array ?? [])]));

describe.each(Object.entries(RECURRENT_FILES))('steps of %s', (_, json) => {
  const model = findArchitecture(json, 'config.json').family.describe(json, 'config.json', 'f32');
  const states = model.states!;
  const dtypeOf = () => 'f32' as const;
  const graph = model.step({ cache: { rows: CACHE_ROWS, dtype: 'f32' }, dtypeOf });
  const scoring = model.graph({ mask: 'tree', dtypeOf });
  const { weights, tensors: all } = environment(scoring, {});
  const tensors = new Map(
    [...all].map(([name, { rows, columns, data }]) => [
      name,
      rows === 1 ? { rows: columns, columns: 1, data } : { rows, columns, data },
    ]),
  );
  const walk = walkStates({ seed: 5, vocab: 40, texts: 2, length: 30 });
  const wanted = new Map<string, number>();
  const { inputs, keys } = scoreInputs(pathsOfWalk(walk));
  const sizes = { T: inputs.tokens.length, R: keys.length };
  interpretGraph(scoring, { sizes, params: asDoubles(inputs), weights })[0]!.data.forEach((x, i) =>
    wanted.set(keys[i]!, x),
  );

  const checked = (run: (params: Map<string, Float64Array>, sizes: Record<string, number>) => Float64Array): void => {
    const table = new SequenceTable({ pages: CACHE_ROWS / 16, keys: 4096, states });
    for (const { message, asked } of walk) {
      const params = asDoubles({ ...table.apply(message).inputs });
      const size = { T: asked.length, C: params.get('key')!.length, R: asked.length };
      const found = run(params, { ...size, S: params.get('tailSlot')!.length });
      asked.forEach((path, i) => expect(found[i], path.join()).toBeCloseTo(wanted.get(path.join())!, 9));
    }
  };

  it('give the numbers of scoring as the model writes them', () => {
    let kept = statesOf(graph);
    checked((params, size) => {
      const { results, states: after } = interpretFunction(graph, { sizes: size, params, states: kept, weights });
      kept = after;
      return results[graph.outputs.indexOf('logProb')]!.data;
    });
  });

  it('give the numbers of scoring as kernels', () => {
    const module = lower(optimize(graph, F32), F32);
    verifyKernels(module);
    verifyIndices(module);
    let kept = statesOf(graph);
    checked((params, size) => {
      const given = module.interface.inputs.map(({ name, buffer }) => [buffer, params.get(name)!] as const);
      const out = interpretModule(module, { sizes: size, buffers: new Map([...given, ...kept]), tensors });
      kept = new Map([...kept.keys()].map((name) => [name, out.get(name) ?? kept.get(name)!]));
      return out.get(module.interface.outputs.find(({ name }) => name === 'logProb')!.buffer)!;
    });
  });
});
