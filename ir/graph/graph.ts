/**
 * Graph IR (level 1): SSA dataflow over typed tensors with symbolic dimensions. Everything here is immutable. A pass
 * builds a new graph with `GraphBuilder`, and returns the old one if nothing changed.
 */
import type { ExtentDecl } from '../extents.js';
import type { Role } from '../roles.js';
import { isSymbol, type Dim, type DType, type TensorType } from '../types.js';
import { OPS, type OpName } from '../ops/index.js';

/** A static argument of an op: a number, a word, a flag, or a list of dimensions or numbers. */
export type Attribute = number | string | boolean | readonly (number | string)[];
export type Attributes = Readonly<Record<string, Attribute>>;

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
export interface Node {
  readonly op: OpName;
  readonly operands: readonly Value[];
  readonly attributes: Attributes;
  readonly result: Value;
  /** The module of the model that it belongs to: `layers.3.attention.qkv`. Empty if there is no single one. */
  readonly path: string;
}

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

  /** Adds a node and returns its result. Throws if the op does not accept the operands' types. */
  add(op: OpName, operands: readonly Value[], attributes: Attributes = {}, hint: string = op, path = this.path): Value {
    const type = OPS[op].infer(
      operands.map((v) => v.type),
      attributes,
    );
    this.declareExtents(type.shape);
    const result: Value = { kind: 'result', name: this.unique(hint), type };
    this.nodes.push({ op, operands, attributes, result, path });
    return result;
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
    for (const operand of new Set(node.operands)) {
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
  for (const { op, operands, result } of graph.nodes) {
    if (op === 'const') literals.add(result);
    else if (operands.some((v) => set.has(v)) && operands.every((v) => set.has(v) || literals.has(v))) set.add(result);
  }
  return set;
}

/** What a rewriting pass may ask while its graph is being rebuilt. */
export interface Rewriter {
  /** The new value that replaces `old`. */
  map(old: Value): Value;
  /** Adds a node to the new graph. Its model path is that of the node being rewritten unless another is given. */
  add(op: OpName, operands: readonly Value[], attributes?: Attributes, hint?: string, path?: string): Value;
  /** The node of the new graph that computes `v`, if there is one. */
  definition(v: Value): Node | undefined;
  /** A parameter of the new graph; it is added if it is missing. */
  param(name: string, dtype: DType, shape: readonly Dim[], role: Role): Value;
}

/**
 * Rebuilds `graph`, offering every node to `visit` in order. `visit` returns the (new) value that replaces the node's
 * result, or undefined to keep the node. Returns the same object if nothing was replaced.
 */
export function rewrite(graph: Graph, visit: (node: Node, rewriter: Rewriter) => Value | undefined): Graph {
  const replaced = new Map<Value, Value>();
  const nodes: Node[] = [];
  const made = new Map<Value, Node>();
  const keep = (node: Node): void => {
    nodes.push(node);
    made.set(node.result, node);
  };
  const params = [...graph.params];
  const names = new Set([...graph.params, ...graph.states, ...graph.nodes.map((n) => n.result)].map((v) => v.name));
  let changed = false;
  const map = (old: Value): Value => replaced.get(old) ?? old;
  /** The number from which on names of a base may be free: those below are taken, and stay so. */
  const tried = new Map<string, number>();
  const fresh = (hint: string): string => {
    if (!names.has(hint)) return hint;
    const base = hint.replace(/_r[0-9]+$/, '');
    let i = tried.get(base) ?? 1;
    while (names.has(`${base}_r${i}`)) i++;
    tried.set(base, i);
    return `${base}_r${i}`;
  };
  let current: Node | undefined;
  let ownName: string | undefined;
  const rewriter: Rewriter = {
    map,
    definition: (v) => made.get(v),
    add(op, operands, attributes = {}, hint = op, path = current!.path) {
      // The first new node that asks for a name gets that of the node being rewritten.
      const name = hint === ownName ? hint : fresh(hint);
      if (hint === ownName) ownName = undefined;
      names.add(name);
      const result: Value = {
        kind: 'result',
        name,
        type: OPS[op].infer(
          operands.map((v) => v.type),
          attributes,
        ),
      };
      keep({ op, operands, attributes, result, path });
      return result;
    },
    param(name, dtype, shape, role) {
      const known = params.find((p) => p.name === name);
      if (known !== undefined) return known;
      const value: Value = { kind: 'param', name: fresh(name), type: { dtype, shape }, role };
      names.add(value.name);
      params.push(value);
      return value;
    },
  };
  for (const node of graph.nodes) {
    current = node;
    ownName = node.result.name;
    const replacement = visit(node, rewriter);
    if (replacement !== undefined) {
      changed = true;
      replaced.set(node.result, replacement);
      continue;
    }
    if (node.operands.every((v) => !replaced.has(v))) {
      keep(node);
      continue;
    }
    const operands = node.operands.map(map);
    const type = OPS[node.op].infer(
      operands.map((v) => v.type),
      node.attributes,
    );
    const result: Value = { ...node.result, type };
    replaced.set(node.result, result);
    keep({ ...node, operands, result });
  }
  if (!changed) return graph;
  return { ...graph, params, nodes, results: graph.results.map(map), gives: graph.gives.map(map) };
}
