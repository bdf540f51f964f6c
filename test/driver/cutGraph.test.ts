/** The pieces of a graph compute what the whole does, in float64 and to the bit. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { buildGraph } from '../../driver/functions.js';
import { cutGraph } from '../../driver/quantize/cutGraph.js';
import { chooseMatrices } from '../../driver/quantize/matrices.js';
import { storedTensors } from '../../driver/quantize/tensors.js';
import { tensorValues } from '../../driver/tensorValues.js';
import { isOp, type Value } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { expandExperts } from '../../passes/expandExperts.js';
import { ROOT } from '../e2e/support.js';

const TOKENS = 6;
const SETTINGS = { bits: 4, group: 32, isSymmetric: true, isOrdered: false } as const;

describe('cutGraph', () => {
  it.each(['gpt-neox', 'gemma2', 'phi3', 'mixtral'])('%s', (family) => {
    const checkpoint = openCheckpoint(join(ROOT, '..', 'shared', 'checkpoints', 'families', family));
    const graph = expandExperts(buildGraph(checkpoint));
    const { groups } = chooseMatrices(graph, storedTensors(checkpoint), SETTINGS);
    const pieces = cutGraph(
      graph,
      groups.map(({ value }) => value),
    );
    const weights = new Map(
      graph.weights.map(({ name }) => [name, tensorValues(checkpoint.tensors, name, 1).data] as const),
    );
    const order = Float64Array.from({ length: TOKENS }, (_, i) => i);
    const params = new Map([
      ['tokens', order.map((i) => 7 + 5 * i)],
      ['position', order],
      ['subtreeEnd', order.map(() => TOKENS)],
      ['row', order],
      ['target', order],
    ]);
    const whole = new Map<Value, Float64Array>();
    const sizes = { T: TOKENS, R: TOKENS };
    interpretGraph(graph, { sizes, params, weights, trace: ({ result }, { data }) => whole.set(result, data) });
    const live = new Map<Value, Float64Array>();
    for (const [i, { graph: piece, takes, gives, drops }] of pieces.entries()) {
      verifyGraph(piece);
      const given = [...takes].map(([name, value]) => [name, live.get(value)!] as const);
      const results = interpretGraph(piece, { sizes: { T: TOKENS }, params: new Map([...params, ...given]), weights });
      for (const value of drops) live.delete(value);
      [...gives.values()].forEach((value, at) => live.set(value, results[at]!.data));
      const { value } = groups[i]!;
      expect(live.get(value)).toEqual(whole.get(value));
    }
    expect(live.size).toBe(1);
    // No product of a layer is computed twice.
    const linears = pieces.flatMap(({ graph: { nodes } }) => nodes.filter((node) => isOp(node, 'linear')));
    expect(linears.length).toBeGreaterThan(20);
    const matrices = linears.map(({ operands: { w }, path }) => `${path} ${w.name}`);
    expect(new Set(matrices).size).toBe(linears.length);
  });
});
