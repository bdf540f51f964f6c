/** Tests of a pass read: text in → pass → text out. Whatever the text, its meaning in float64 must stay. */
import { expect } from 'vitest';
import type { Graph, Value } from '../../ir/graph/graph.js';
import { concreteShape, type GraphEnv, interpretGraph } from '../../ir/graph/interpreter.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { printGraph } from '../../ir/graph/printer.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { elementCount } from '../../ir/ops/opDef.js';
import { isSymbol } from '../../ir/types.js';
import { randomNumbers } from '../support/numbers.js';

export type Pass = (graph: Graph) => Graph;

/**
 * Inputs that form a meaningful batch of 8 tokens and 5 scored rows: meta-pairs (question 0–1 with answers 2–3 and 4–5,
 * question 6 with answer 7) and the same as a depth-first tree.
 */
export const SIZES = { T: 8, R: 5 };
const INPUTS: Readonly<Record<string, readonly number[]>> = {
  pair: [0, 0, 0, 0, 0, 0, 1, 1],
  branch: [0, 0, 1, 1, 2, 2, 0, 1],
  subtreeEnd: [6, 6, 4, 4, 6, 6, 8, 8],
  row: [0, 2, 4, 5, 7],
};

/** An environment for `graph`: known names as above, other i32 inputs 0, 1 or 2, everything else random in ±2. */
export function environment(
  graph: Graph,
  seed = 4711,
  inputs: Readonly<Record<string, readonly number[]>> = {},
): GraphEnv {
  const random = randomNumbers(seed);
  const given: Readonly<Record<string, readonly number[]>> = { ...INPUTS, ...inputs };
  const fill = (dtype: string, count: number): Float64Array =>
    Float64Array.from({ length: count }, () => {
      if (dtype === 'i32') return Math.floor((random() + 0.5) * 3);
      return dtype === 'bool' ? Number(random() < 0) : 4 * random();
    });
  return {
    sizes: SIZES,
    params: new Map(
      graph.params.map(({ name, type }) => {
        const known = given[name];
        const fits =
          known !== undefined && type.dtype === 'i32' && type.shape.length === 1 && type.shape.every(isSymbol);
        return [
          name,
          fits ? Float64Array.from(known) : fill(type.dtype, elementCount(concreteShape(type.shape, SIZES))),
        ];
      }),
    ),
    weights: new Map(
      graph.weights.map(({ name, type }) => [name, fill(type.dtype, elementCount(concreteShape(type.shape, SIZES)))]),
    ),
  };
}

/** Largest difference of two lists, relative if numbers are large. NaN differs from everything but NaN. */
export function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Infinity;
  return Array.from(a).reduce((worst, x, i) => {
    const y = b[i]!;
    if (Object.is(x, y) || x === y) return worst;
    const d = Math.abs(x - y) / Math.max(1, Math.abs(x));
    return Number.isNaN(d) ? Infinity : Math.max(worst, d);
  }, 0);
}

/**
 * Expects `before` and `after` to give the same results on inputs of `environment`. `after` may have more parameters.
 */
export function sameMeaning(before: Graph, after: Graph, tolerance = 1e-9, seed?: number): void {
  const union = (a: readonly Value[], b: readonly Value[]): readonly Value[] => [
    ...new Map([...a, ...b].map((v) => [v.name, v])).values(),
  ];
  const env = environment(
    { ...before, params: union(before.params, after.params), weights: union(before.weights, after.weights) },
    seed,
  );
  const [wanted, got] = [interpretGraph(before, env), interpretGraph(after, env)];
  expect(got.length).toBe(wanted.length);
  wanted.forEach((tensor, i) => {
    expect(got[i]!.shape).toEqual(tensor.shape);
    expect(
      distance(tensor.data, got[i]!.data),
      `result ${i} of\n${printGraph(before)}and\n${printGraph(after)}`,
    ).toBeLessThanOrEqual(tolerance);
  });
}

/** Text without the indentation that it has in a test. A long line may go on in the next one, behind a backslash. */
function dedent(text: string): string {
  const lines = text.replace(/^\n/, '').trimEnd().split('\n');
  const indent = Math.min(...lines.filter((l) => l.trim() !== '').map((l) => l.length - l.trimStart().length));
  return `${lines.map((l) => l.slice(indent).replace(/(?<=\S) {2,}/g, ' ')).join('\n')}\n`;
}

export const parse = (text: string): Graph => {
  const graph = parseGraph(dedent(text));
  verifyGraph(graph);
  return graph;
};

/** `text` with each `from`, which must occur once, replaced. */
export const edit = (text: string, ...edits: readonly (readonly [from: string, to: string])[]): string =>
  edits.reduce((now, [from, to]) => {
    expect(now.split(from).length, `times that ${JSON.stringify(from)} occurs in${now}`).toBe(2);
    return now.replace(from, () => to);
  }, text);

/**
 * Expects `before` to become exactly `after`, which verifies, computes the same (up to `tolerance`), and leaves nothing
 * for a second run of the pass to do. Prints both sides on failure.
 */
export function check(before: string, pass: Pass, after: string, tolerance?: number): void {
  const graph = parse(before);
  const result = pass(graph);
  verifyGraph(result, pass.name);
  if (printGraph(result) !== dedent(after))
    expect(`${printGraph(graph)}— becomes —\n${printGraph(result)}`).toBe(
      `${dedent(before)}— becomes —\n${dedent(after)}`,
    );
  sameMeaning(graph, result, tolerance);
  expect(pass(result), 'a second run changes nothing').toBe(result);
}

/** A near miss: the pass must leave `text` alone, and return the same object to say so. */
export function checkUnchanged(text: string, pass: Pass): void {
  const graph = parse(text);
  const result = pass(graph);
  if (result !== graph) expect(printGraph(result)).toBe(printGraph(graph));
  expect(result).toBe(graph);
}
