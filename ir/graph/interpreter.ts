/** float64 reference interpreter of the graph IR. Every pass, kernel and backend is tested against it. */
import { extentIn, type Extents } from '../extents.js';
import type { Graph, Node, Value } from './graph.js';
import { OPS } from '../ops/index.js';
import { elementCount, mapOperands, type NamedOperands, type Tensor } from '../ops/opDef.js';
import { printNode, printValue } from './printer.js';
import { printType, type Dim } from '../types.js';
import { versionsOf } from './versions.js';

/** Most elements of one tensor that the interpreter will allocate: 1 GiB of doubles. */
const MAX_ELEMENTS = 2 ** 27;

export interface GraphEnv {
  /** Sizes of all extents that the graph declares: whole numbers, at least 0. */
  readonly sizes: Extents;
  /** Row-major elements of each parameter, by name without `%`. */
  readonly params: ReadonlyMap<string, Float64Array>;
  /** Row-major elements of each state, as the call finds it; not changed. */
  readonly states?: ReadonlyMap<string, Float64Array>;
  /** Row-major elements of each weight, by checkpoint tensor name. */
  readonly weights: ReadonlyMap<string, Float64Array>;
  /** Called with every node's result as it is computed. */
  readonly trace?: (node: Node, tensor: Tensor) => void;
}

/** The shape with the sizes of named extents filled in. */
export const concreteShape = (shape: readonly Dim[], sizes: GraphEnv['sizes']): number[] =>
  shape.map((dim) => extentIn(dim, sizes));

/** Results of `graph`, in order. See interpretFunction. */
export const interpretGraph = (graph: Graph, env: GraphEnv): readonly Tensor[] => interpretFunction(graph, env).results;

/** What a call leaves. */
export interface FunctionOutcome {
  readonly results: readonly Tensor[];
  /** Every state that the function takes, as the next call finds it. */
  readonly states: ReadonlyMap<string, Float64Array>;
}

/**
 * Results of `graph`, in order, and its states after the call. Intermediate tensors are dropped after their last use.
 * Throws, naming the value, if an input is missing or has the wrong size, or an index is out of range.
 */
export function interpretFunction(graph: Graph, env: GraphEnv): FunctionOutcome {
  for (const [symbol, size] of Object.entries(env.sizes)) {
    if (!Number.isInteger(size) || size < 0)
      throw new Error(`Extent ${symbol} is ${size}, which is not a whole number.`);
  }
  const lastUse = new Map<Value, number>();
  graph.nodes.forEach((node, i) => node.inputs.forEach((operand) => lastUse.set(operand, i)));
  for (const kept of [...graph.results, ...graph.gives]) lastUse.set(kept, Infinity);

  const live = new Map<Value, Tensor>();
  for (const value of graph.params) live.set(value, input(value, env.params.get(value.name), env));
  for (const value of graph.states) live.set(value, input(value, env.states?.get(value.name), env));
  for (const value of graph.weights) {
    if (lastUse.has(value)) live.set(value, input(value, env.weights.get(value.name), env));
  }
  const read = (value: Value): Tensor => {
    const tensor = live.get(value);
    if (tensor === undefined)
      throw new Error(`Graph @${graph.name}: ${printValue(value)} is used before it is defined.`);
    return tensor;
  };
  graph.nodes.forEach((node, i) => {
    const tensor = evaluateNode(node, mapOperands(node.operands, read), env);
    env.trace?.(node, tensor);
    live.set(node.result, tensor);
    for (const value of [...node.inputs, node.result]) if ((lastUse.get(value) ?? -1) <= i) live.delete(value);
  });
  const versions = versionsOf(graph);
  const states = new Map(graph.states.map(({ name }) => [name, env.states!.get(name)!]));
  for (const last of graph.gives) states.set(versions.get(last)!.state.name, read(last).data);
  return { results: graph.results.map(read), states };
}

function input(value: Value, data: Float64Array | undefined, env: GraphEnv): Tensor {
  const shape = concreteShape(value.type.shape, env.sizes);
  if (data === undefined) throw new Error(`${printValue(value)} : ${printType(value.type)} was not given.`);
  if (data.length !== elementCount(shape)) {
    throw new Error(
      `${printValue(value)} : ${printType(value.type)} has ${elementCount(shape)} elements, but ${data.length} ` +
        'were given.',
    );
  }
  return { shape, data };
}

function evaluateNode(node: Node, operands: NamedOperands<Tensor>, env: GraphEnv): Tensor {
  const shape = concreteShape(node.result.type.shape, env.sizes);
  const count = elementCount(shape);
  const fail = (what: string): never => {
    throw new Error(`${what}\n  in: ${printNode(node)}`);
  };
  if (count > MAX_ELEMENTS)
    fail(`The result has ${count} elements, more than the interpreter's ${MAX_ELEMENTS}; use smaller sizes.`);
  let tensor: Tensor;
  try {
    tensor = OPS[node.op].evaluate(operands, node.attributes, shape);
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error));
  }
  if (
    tensor.data.length !== count ||
    tensor.shape.length !== shape.length ||
    tensor.shape.some((dim, i) => dim !== shape[i])
  ) {
    fail(
      `The reference of '${node.op}' gave [${tensor.shape.join(', ')}] with ${tensor.data.length} elements, ` +
        `its type says [${shape.join(', ')}].`,
    );
  }
  return tensor;
}
