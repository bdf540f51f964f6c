/**
 * Graph IR (level 1): SSA dataflow over typed tensors with symbolic dimensions. Everything here is immutable. A pass
 * builds a new graph with `GraphBuilder`, and returns the old one if nothing changed.
 */
import { defined } from '../../system/defined.js';
import type { ExtentDecl } from '../extents.js';
import type { Role } from '../function.js';
import { type AttributesOf, type OperandsOf, type OpName, OPS } from '../ops/index.js';
import { type Attributes, listOperands, mapOperands, nameOperands, type NamedOperands } from '../ops/opDef.js';
import { type Dim, type DType, isSymbol, type TensorType } from '../types.js';

/**
 * A tensor. Identity is the object; `name` is unique within its graph.
 * - `param`: passed in with each call - `weight`: a checkpoint tensor - `result`: of a node
 * - `state`: memory that outlives calls, as this call finds it; it has the name of the state
 */
export interface Value {
  readonly kind: 'param' | 'weight' | 'state' | 'result';
  readonly name: string;
  readonly type: TensorType;
  /** For a param: what its numbers are. */
  readonly role?: Role;
}

/** One operation with one result. */
interface OpNode<Op extends OpName> {
  readonly op: Op;
  readonly operands: OperandsOf<Op, Value>;
  /** The operands in the order of the text form. */
  readonly inputs: readonly Value[];
  readonly attributes: AttributesOf<Op>;
  readonly result: Value;
  /** The module of the model that it belongs to: `layers.3.attention.qkv`. Empty if there is no single one. */
  readonly path: string;
}
/** A node of one op, or of one of several. */
export type NodeOf<Op extends OpName> = Op extends OpName ? OpNode<Op> : never;
export type Node = NodeOf<OpName>;

/** Whether `node` is there and of one of `ops`. */
export const isOp = <Op extends OpName>(node: Node | undefined, ...ops: readonly Op[]): node is NodeOf<Op> =>
  node !== undefined && ops.some((op) => op === node.op);

/** The arguments behind the operands of a node that is added: attributes may be left out where none is needed. */
type NodeArguments<Op extends OpName> =
  Readonly<Record<never, never>> extends AttributesOf<Op>
    ? [attributes?: AttributesOf<Op>, hint?: string, path?: string]
    : [attributes: AttributesOf<Op>, hint?: string, path?: string];

/** The node with these operands, in the order of the text form. Throws TypeMismatch if the op does not accept them. */
export function makeNode(op: OpName, inputs: readonly Value[], given: Attributes, name: string, path: string): Node {
  const attributes = Object.values(given).includes(undefined) ? defined(given) : given;
  const operands = nameOperands(OPS[op], inputs, attributes);
  const type = OPS[op].infer(mapOperands(operands, typeOf), attributes);
  // The table gives a node of this op these names.
  return { op, operands, inputs, attributes, result: { kind: 'result', name, type }, path } as Node;
}

const typeOf = ({ type }: Value): TensorType => type;

/** A node whose operands, attributes and result are known to fit. */
export function withOperands(
  op: OpName,
  inputs: readonly Value[],
  attributes: Attributes,
  result: Value,
  path: string,
): Node {
  const operands = nameOperands(OPS[op], inputs, attributes);
  // The table gives a node of this op these names.
  return { op, operands, inputs, attributes, result, path } as Node;
}

const NO_ATTRIBUTES: Attributes = {};

/** A function. Every operand is defined before the node that uses it. */
export interface Graph {
  readonly name: string;
  /** Every extent that a shape names. */
  readonly extents: readonly ExtentDecl[];
  readonly params: readonly Value[];
  /**
   * States that it reads or writes. A write makes a new version of a state and leaves the old one to nobody: versions
   * share one memory (versions.ts).
   */
  readonly states: readonly Value[];
  readonly weights: readonly Value[];
  readonly nodes: readonly Node[];
  readonly results: readonly Value[];
  /** Names of the results, under which a call returns them. */
  readonly outputs: readonly string[];
  /** The last version of each state that it writes: what the next call finds. */
  readonly gives: readonly Value[];
}

/** Functions over shared weights and states. States of one name are one state. */
export interface GraphModule {
  readonly name: string;
  readonly functions: readonly Graph[];
}

/** A function alone, as the module that it is. */
export const moduleOf = (graph: Graph): GraphModule => ({ name: graph.name, functions: [graph] });

/** The default name of a result. */
export const defaultOutput = (index: number): string => `result${index}`;

/** Builds a graph node by node, inferring types. Names are made unique from a hint. */
export class GraphBuilder {
  private readonly params: Value[] = [];
  private readonly states: Value[] = [];
  private readonly weights = new Map<string, Value>();
  private readonly nodes: Node[] = [];
  private readonly taken = new Map<string, number>();
  private readonly name: string;
  private readonly extents: ExtentDecl[];
  private path = '';

  /** An extent that is not given is declared by the first value whose shape names it. */
  constructor(name: string, extents: readonly ExtentDecl[] = []) {
    this.name = name;
    this.extents = [...extents];
  }

  param(name: string, dtype: DType, shape: readonly Dim[], role: Role = { kind: 'values' }): Value {
    const value: Value = { kind: 'param', name: this.unique(name), type: { dtype, shape }, role };
    this.declareExtents(shape);
    this.params.push(value);
    return value;
  }

  /** The parameter of this name. Throws where there is none. */
  paramOf(name: string): Value {
    const found = this.params.find((value) => value.name === name);
    if (found === undefined) throw new Error(`@${this.name} has no parameter ${name}.`);
    return found;
  }

  /** The state `name` as the call finds it. Throws where its name is taken: a state keeps its own. */
  state(name: string, dtype: DType, shape: readonly number[]): Value {
    const value: Value = { kind: 'state', name: this.unique(name), type: { dtype, shape } };
    if (value.name !== name) throw new Error(`State ${name}: another value of @${this.name} has this name.`);
    this.states.push(value);
    return value;
  }

  /** The checkpoint tensor `name`; every call with this name returns the same value. */
  weight(name: string, dtype: DType, shape: readonly Dim[]): Value {
    const known = this.weights.get(name);
    if (known !== undefined) return known;
    const value: Value = { kind: 'weight', name, type: { dtype, shape } };
    this.weights.set(name, value);
    return value;
  }

  /** Adds a node and returns its result. Throws TypeMismatch if the op does not accept the operands' types. */
  add<Op extends OpName>(op: Op, operands: OperandsOf<Op, Value>, ...rest: NodeArguments<Op>): Value;
  add(
    op: OpName,
    operands: NamedOperands<Value>,
    attributes = NO_ATTRIBUTES,
    hint: string = op,
    path = this.path,
  ): Value {
    return this.append(op, listOperands(OPS[op], operands), attributes, hint, path);
  }

  /** The same with operands in the order of the text form, for an op that is known only when the program runs. */
  append(op: OpName, inputs: readonly Value[], attributes: Attributes, hint: string, path: string): Value {
    const node = makeNode(op, inputs, attributes, this.unique(hint), path);
    this.declareExtents(node.result.type.shape);
    this.nodes.push(node);
    return node.result;
  }

  /** Runs `body` with `segment` appended to the model path of every node it adds. */
  scope<T>(segment: string, body: () => T): T {
    const outer = this.path;
    this.path = outer === '' ? segment : `${outer}.${segment}`;
    try {
      return body();
    } finally {
      this.path = outer;
    }
  }

  /** `gives`: the last version of each state that a node writes. */
  finish(
    results: readonly Value[],
    outputs: readonly string[] = results.map((_, i) => defaultOutput(i)),
    gives: readonly Value[] = [],
  ): Graph {
    return {
      name: this.name,
      extents: [...this.extents],
      params: [...this.params],
      states: [...this.states],
      weights: [...this.weights.values()],
      nodes: [...this.nodes],
      results,
      outputs,
      gives,
    };
  }

  private declareExtents(shape: readonly Dim[]): void {
    for (const dim of shape.filter(isSymbol))
      if (!this.extents.some((extent) => extent.name === dim)) this.extents.push({ name: dim });
  }

  private unique(hint: string): string {
    const base = hint.replace(/[0-9]+$/, '') || 'v';
    const count = this.taken.get(base) ?? 0;
    this.taken.set(base, count + 1);
    return hint === base && count === 0 ? base : `${base}${count}`;
  }
}

/** Maps each result to the node that computes it. */
export function definitions(graph: Graph): ReadonlyMap<Value, Node> {
  return new Map(graph.nodes.map((node) => [node.result, node]));
}

/** Maps each value to the nodes that read it, in order. The graph's own results are not counted as readers. */
export function uses(graph: Graph): ReadonlyMap<Value, readonly Node[]> {
  const map = new Map<Value, Node[]>();
  for (const node of graph.nodes) {
    for (const operand of new Set(node.inputs)) {
      const list = map.get(operand);
      if (list === undefined) map.set(operand, [node]);
      else list.push(node);
    }
  }
  return map;
}

/** Values that depend only on weights and literals, and on a weight at least. */
export function loadTimeValues(graph: Graph): ReadonlySet<Value> {
  const set = new Set<Value>(graph.weights);
  const literals = new Set<Value>();
  for (const { op, inputs, result } of graph.nodes) {
    if (op === 'const') literals.add(result);
    else if (inputs.some((v) => set.has(v)) && inputs.every((v) => set.has(v) || literals.has(v))) set.add(result);
  }
  return set;
}

/** What a rewriting pass may ask while its graph is being rebuilt. */
export class Rewriter {
  readonly nodes: Node[] = [];
  readonly params: Value[];
  /** The new value that replaces an old one. */
  readonly map: (old: Value) => Value;
  private readonly made = new Map<Value, Node>();
  private readonly names: Set<string>;
  /** The number from which on names of a base may be free: those below are taken, and stay so. */
  private readonly tried = new Map<string, number>();
  /** The model path of the node being rewritten, and its name until a new node has that. */
  private path = '';
  private ownName: string | undefined;

  constructor(graph: Graph, map: (old: Value) => Value) {
    this.map = map;
    this.params = [...graph.params];
    this.names = new Set([...graph.params, ...graph.states, ...graph.nodes.map((n) => n.result)].map((v) => v.name));
  }

  /** Goes on with `node`. */
  visit({ path, result }: Node): void {
    this.path = path;
    this.ownName = result.name;
  }

  keep(node: Node): void {
    this.nodes.push(node);
    this.made.set(node.result, node);
  }

  /** Adds a node to the new graph. Its model path is that of the node being rewritten unless another is given. */
  add<Op extends OpName>(op: Op, operands: OperandsOf<Op, Value>, ...rest: NodeArguments<Op>): Value;
  add(
    op: OpName,
    operands: NamedOperands<Value>,
    attributes = NO_ATTRIBUTES,
    hint: string = op,
    path = this.path,
  ): Value {
    return this.append(op, listOperands(OPS[op], operands), attributes, hint, path);
  }

  /** Runs `body` with `path` as the model path of every node that it adds. */
  scope<T>(path: string, body: () => T): T {
    const outer = this.path;
    this.path = path;
    try {
      return body();
    } finally {
      this.path = outer;
    }
  }

  /** Adds a node like `node`. What `operands` and `attributes` leave out is as the node has it. */
  rebuild<N extends Node>(
    node: N,
    operands: Partial<N['operands']>,
    attributes: Partial<N['attributes']> = {},
    hint = node.result.name,
    path = this.path,
  ): Value {
    const all: NamedOperands<Value> = { ...mapOperands<Value, Value>(node.operands, this.map), ...operands };
    const known: Attributes = node.attributes;
    return this.append(node.op, listOperands(OPS[node.op], all), { ...known, ...attributes }, hint, path);
  }

  /** Adds a node like `node` whose operands are those of `node`, each passed through `f`. */
  copy(node: Node, f: (operand: Value) => Value, hint = node.result.name, path = this.path): Value {
    return this.append(node.op, node.inputs.map(f), node.attributes, hint, path);
  }

  /** The node of the new graph that computes `v`, if there is one. */
  definition(v: Value): Node | undefined {
    return this.made.get(v);
  }

  /** A parameter of the new graph; it is added if it is missing. */
  param(name: string, dtype: DType, shape: readonly Dim[], role: Role): Value {
    const known = this.params.find((p) => p.name === name);
    if (known !== undefined) return known;
    const value: Value = { kind: 'param', name: this.fresh(name), type: { dtype, shape }, role };
    this.names.add(value.name);
    this.params.push(value);
    return value;
  }

  private append(op: OpName, inputs: readonly Value[], attributes: Attributes, hint: string, path: string): Value {
    // The first new node that asks for a name gets that of the node being rewritten.
    const name = hint === this.ownName ? hint : this.fresh(hint);
    if (hint === this.ownName) this.ownName = undefined;
    this.names.add(name);
    const node = makeNode(op, inputs, attributes, name, path);
    this.keep(node);
    return node.result;
  }

  private fresh(hint: string): string {
    if (!this.names.has(hint)) return hint;
    const base = hint.replace(/_r[0-9]+$/, '');
    let i = this.tried.get(base) ?? 1;
    while (this.names.has(`${base}_r${i}`)) i++;
    this.tried.set(base, i);
    return `${base}_r${i}`;
  }
}

/**
 * Rebuilds `graph`, offering every node to `visit` in order. `visit` returns the (new) value that replaces the node's
 * result, or undefined to keep the node. Returns the same object if nothing was replaced.
 */
export function rewrite(graph: Graph, visit: (node: Node, rewriter: Rewriter) => Value | undefined): Graph {
  const replaced = new Map<Value, Value>();
  const map = (old: Value): Value => replaced.get(old) ?? old;
  const rewriter = new Rewriter(graph, map);
  let changed = false;
  for (const node of graph.nodes) {
    rewriter.visit(node);
    const replacement = visit(node, rewriter);
    if (replacement !== undefined) {
      changed = true;
      replaced.set(node.result, replacement);
      continue;
    }
    if (node.inputs.every((v) => !replaced.has(v))) {
      rewriter.keep(node);
      continue;
    }
    const { op, inputs, attributes, result, path } = node;
    const next = makeNode(op, inputs.map(map), attributes, result.name, path);
    replaced.set(result, next.result);
    rewriter.keep(next);
  }
  if (!changed) return graph;
  const { params, nodes } = rewriter;
  return { ...graph, params, nodes, results: graph.results.map(map), gives: graph.gives.map(map) };
}
