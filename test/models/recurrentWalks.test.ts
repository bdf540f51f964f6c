/**
 * Questions of recurrent families in float64: with beginnings that are kept in rows of states, few or many, in calls
 * shorter than a question, they get the numbers that one tree gives them.
 */
import { describe, expect, it } from 'vitest';
import { interpretFunction, interpretGraph } from '../../ir/graph/interpreter.js';
import { findArchitecture } from '../../models/families/registry.js';
import { environment } from '../passes/modelEnvironment.js';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';
import { scoredTree, sharedQuestions, walkedCalls } from '../support/walkedQuestions.js';

const CACHE_ROWS = 96;

const asDoubles = (arrays: Readonly<Record<string, ArrayLike<number>>>): Map<string, Float64Array> =>
  new Map(Object.entries(arrays).map(([name, array]) => [name, Float64Array.from(array)]));

describe.each(Object.entries(RECURRENT_FILES))('questions of %s', (_, json) => {
  const model = findArchitecture(json, 'config.json').family.describe(json, 'config.json', 'f32');
  const dtypeOf = () => 'f32' as const;
  const graph = model.step({ cache: { rows: CACHE_ROWS, dtype: 'f32' }, dtypeOf });
  const scoring = model.graph({ mask: 'tree', dtypeOf });
  const { weights } = environment(scoring, {});
  const paths = sharedQuestions(7, 40);
  const { inputs, rows } = scoredTree(paths);
  const sizes = { T: inputs['tokens']!.length, R: inputs['row']!.length };
  const wanted = interpretGraph(scoring, { sizes, params: asDoubles(inputs), weights })[0]!.data;

  it.each([
    ['many rows of states', 256, false],
    ['three', 3, false],
    ['two phases', 256, true],
  ])('get the numbers of a tree: %s', (_name, states, isTwoPhase) => {
    const limits = { tokens: 11, keys: 1000, rows: 20, cacheRows: CACHE_ROWS, states };
    let kept: ReadonlyMap<string, Float64Array> = new Map(
      graph.states.map(({ name, type }) => [
        name,
        // What nobody has written is not to be read.
        new Float64Array(type.shape.reduce((n: number, d) => n * Number(d), 1)).fill(NaN),
      ]),
    );
    const found = new Set<string>();
    for (const { inputs: given, scored } of walkedCalls(paths, limits, { states: model.states! }, isTwoPhase)) {
      const params = asDoubles(given as Readonly<Record<string, Int32Array>>);
      const [T, C, R, S] = ['tokens', 'key', 'row', 'tailSlot'].map((name) => params.get(name)!.length);
      const env = { sizes: { T: T!, C: C!, R: R!, S: S! }, params, states: kept, weights };
      const { results, states: after } = interpretFunction(graph, env);
      kept = after;
      const logProbs = results[graph.outputs.indexOf('logProb')]!.data;
      for (const [row, name] of scored) {
        expect(logProbs[row], name).toBeCloseTo(wanted[rows.get(name)!]!, 9);
        found.add(name);
      }
    }
    expect(found).toEqual(new Set(rows.keys()));
  });
});
