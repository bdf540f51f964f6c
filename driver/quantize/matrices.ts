/** Which matrices of a model are quantized, what they multiply, and which stay as they are, and why. */
import { at } from '../../system/at.js';
import { type Graph, loadTimeValues, type Node, uses, type Value } from '../../ir/graph/graph.js';
import type { ExpectedTensor } from '../../models/model/tensors.js';
import { type GptqSettings, gptqShapeProblem } from '../../models/quantized/packed.js';

/** A stored matrix that is quantized. */
export interface ChosenMatrix {
  readonly tensor: ExpectedTensor;
  readonly rows: number;
  readonly k: number;
}

/** Matrices that multiply the same columns of one value. */
export interface SharedInputs {
  /** First of the columns that they multiply. */
  readonly first: number;
  readonly k: number;
  readonly matrices: readonly ChosenMatrix[];
}

/** A value of the graph that matrices multiply. They are quantized together, before anything that they make. */
export interface InputGroup {
  readonly value: Value;
  readonly inputs: readonly SharedInputs[];
}

export interface MatrixChoice {
  /** In order of the computation. */
  readonly groups: readonly InputGroup[];
  /** Names of matrices that stay as they are, by the reason. */
  readonly kept: ReadonlyMap<string, readonly string[]>;
}

/** A product with a matrix of the checkpoint: columns from `first` on of the value `x`. */
interface MatrixUse {
  readonly x: Value;
  readonly first: number;
  readonly node: Node;
}

/** Weights that a value made of weights consists of, with the first of its columns that each has. */
function weightsIn(
  value: Value,
  makers: ReadonlyMap<Value, Node>,
): readonly (readonly [name: string, first: number])[] {
  if (value.kind === 'weight') return [[value.name, 0]];
  const node = makers.get(value);
  if (node === undefined) return [];
  const isBeside = node.op === 'concat' && node.attributes.axis === 1;
  let first = 0;
  return node.inputs.flatMap((operand) => {
    const found = weightsIn(operand, makers).map(([name, at]) => [name, at + first] as const);
    if (isBeside) first += Number(operand.type.shape[1]);
    return found;
  });
}

function usesOf(graph: Graph): ReadonlyMap<string, readonly MatrixUse[]> {
  const makers = new Map(graph.nodes.map((node) => [node.result, node]));
  const loaded = loadTimeValues(graph);
  const found = new Map<string, MatrixUse[]>();
  for (const node of graph.nodes) {
    if (node.op !== 'linear' || !loaded.has(node.operands.w)) continue;
    const { x, w } = node.operands;
    for (const [name, first] of weightsIn(w, makers)) found.set(name, [...(found.get(name) ?? []), { x, first, node }]);
  }
  return found;
}

/** Names under which the graph reads a stored tensor. */
const readAs = ({ name, parts }: ExpectedTensor): readonly string[] => parts?.map((part) => part.name) ?? [name];

export const HEAD = 'head and embeddings';
const ROUTER = 'routers of experts';

/** Why a matrix stays as it is, or the product that decides how it is quantized. */
function decide(
  tensor: ExpectedTensor,
  found: ReadonlyMap<string, readonly MatrixUse[]>,
  settings: GptqSettings,
): string | MatrixUse {
  const all = readAs(tensor).flatMap((name) => found.get(name) ?? []);
  const [use] = all;
  if (use === undefined || !all.every(({ node }) => node.path.startsWith('layers.'))) return HEAD;
  if (all.some(({ node }) => /\.router(\.|$)/.test(node.path))) return ROUTER;
  if (tensor.shape.length !== 2) return 'experts in one tensor';
  if (!tensor.name.endsWith('.weight')) return 'no weight of a module';
  if (tensor.parts?.some((part) => !('stride' in part)) === true) return 'parts that are no rows of it';
  if (all.some(({ x, first }) => x !== use.x || first !== use.first)) return 'several inputs';
  const [rows, k] = tensor.shape as [number, number];
  return gptqShapeProblem(rows, k, settings) ?? use;
}

/** The matrices of a model whose function `score` is `graph`, in primitive ops. */
export function chooseMatrices(graph: Graph, tensors: readonly ExpectedTensor[], settings: GptqSettings): MatrixChoice {
  const found = usesOf(graph);
  const kept = new Map<string, string[]>();
  const byValue = new Map<Value, Map<number, ChosenMatrix[]>>();
  for (const tensor of tensors) {
    if (tensor.role !== 'matrix') continue;
    const decision = decide(tensor, found, settings);
    if (typeof decision === 'string') {
      kept.set(decision, [...(kept.get(decision) ?? []), tensor.name]);
      continue;
    }
    const { x, first } = decision;
    const inputs = byValue.get(x) ?? new Map<number, ChosenMatrix[]>();
    byValue.set(x, inputs);
    const [rows, k] = tensor.shape as [number, number];
    inputs.set(first, [...(inputs.get(first) ?? []), { tensor, rows, k }]);
  }
  const readers = uses(graph);
  const places = new Map(graph.nodes.map((node, i) => [node, i]));
  const place = ({ value }: InputGroup): number =>
    Math.min(
      ...readers
        .get(value)!
        .filter(({ op }) => op === 'linear')
        .map((node) => places.get(node)!),
    );
  const groups = [...byValue].map(([value, inputs]): InputGroup => ({
    value,
    inputs: [...inputs].map(([first, matrices]) => ({ first, k: at(matrices, 0).k, matrices })),
  }));
  return { groups: groups.sort((a, b) => place(a) - place(b)), kept };
}
