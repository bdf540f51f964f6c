/** Random weights and small inputs for a model's graph, for tests that compare it with what passes make of it. */
import type { Graph } from '../../ir/graph/graph.js';
import type { GraphEnv } from '../../ir/graph/interpreter.js';
import type { KernelModule } from '../../ir/kernel.js';
import type { RawTensor } from '../../ir/kernelInterpreter.js';
import { roundToDType } from '../../ir/round.js';
import { randomNumbers } from '../support/numbers.js';

/** Two trees in depth-first order: 0 → {1 → 2, 3 → {4, 5}} and 6 → 7. */
export const TREES = {
  tokens: [5, 17, 599, 0, 3, 4, 5, 511],
  position: [0, 1, 2, 1, 2, 2, 0, 1],
  subtreeEnd: [6, 3, 3, 6, 5, 6, 8, 8],
  row: [0, 2, 4, 5, 7],
  target: [17, 1, 598, 512, 7],
};

export function environment(
  graph: Graph,
  inputs: Readonly<Record<string, readonly number[]>>,
): GraphEnv & { tensors: Map<string, RawTensor> } {
  const random = randomNumbers(12345);
  const tensors = new Map<string, RawTensor>();
  for (const weight of graph.weights) {
    const [first, second] = weight.type.shape as readonly number[];
    const isBias = weight.name.endsWith('.bias');
    const [rows, columns] = second !== undefined ? [first!, second] : isBias ? [first!, 1] : [1, first!];
    const middle = second === undefined && !isBias ? 1 : 0;
    const data = Float64Array.from({ length: rows * columns }, () =>
      roundToDType(middle + random(), weight.type.dtype),
    );
    tensors.set(weight.name, { rows, columns, data });
  }
  return {
    sizes: { T: 8, R: 5 },
    tensors,
    weights: new Map([...tensors].map(([name, t]) => [name, t.data])),
    params: new Map(Object.entries(inputs).map(([name, values]) => [name, Float64Array.from(values)])),
  };
}

/** The environment's inputs, by the names of a module's buffers. */
export function inputsOf(
  { buffers }: Pick<KernelModule, 'buffers'>,
  { params }: Pick<GraphEnv, 'params'>,
): Map<string, Float64Array> {
  const given = new Map([...params].map(([name, values]) => [name.toLowerCase(), values]));
  const inputs = buffers.filter(({ space }) => space === 'input').map(({ name }) => name);
  return new Map(inputs.map((name) => [name, given.get(name.replaceAll('_', ''))!]));
}

/** Largest absolute difference. */
export const distance = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  a.length === b.length ? Array.from(a, (x, i) => Math.abs(x - b[i]!)).reduce((x, y) => Math.max(x, y), 0) : NaN;
