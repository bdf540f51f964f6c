/** Verifier of the graph IR. It runs after every pass, so that a fault is reported at the pass that made it. */
import { EXTENT_COUNTS, EXTENT_NAME, productOf } from '../extents.js';
import { printRole, STATE_NAME } from '../function.js';
import { oncePer } from '../oncePer.js';
import { isOpName, OPS } from '../ops/index.js';
import { listOperands } from '../ops/opDef.js';
import { isSymbol, printType, sameType } from '../types.js';
import { attributeProblem, inferred, NAME, PATH, typeProblem, WEIGHT_NAME } from './checkNode.js';
import type { Graph, GraphModule, Node, Value } from './graph.js';
import { printNode, printValue } from './printer.js';
import { verifyVersions } from './versions.js';

const NAMES: Readonly<Record<Value['kind'], RegExp>> = {
  param: NAME,
  state: STATE_NAME,
  weight: WEIGHT_NAME,
  result: NAME,
};

/** Throws where two functions have one name, or states of one name differ, and where a function breaks a rule. */
export function verifyModule({ name, functions }: GraphModule, after?: string): void {
  const fail = (what: string): never => {
    throw new Error(`Module @${name}${after === undefined ? '' : ` after ${after}`}: ${what}.`);
  };
  if (!NAME.test(name)) fail(`the name ${JSON.stringify(name)} is not an identifier`);
  if (functions.length === 0) fail('it has no function');
  const names = new Set<string>();
  const states = new Map<string, Value>();
  for (const graph of functions) {
    verifyGraph(graph, after);
    if (names.has(graph.name)) fail(`two functions are called @${graph.name}`);
    names.add(graph.name);
    for (const state of graph.states) {
      const known = states.get(state.name) ?? state;
      if (!sameType(known.type, state.type))
        fail(`state ${state.name} is ${printType(known.type)} and, in @${graph.name}, ${printType(state.type)}`);
      states.set(state.name, known);
    }
  }
}

/** What a value says by itself. Passes hand most values and nodes on, so each is looked at once. */
const checkValue = oncePer(({ kind, name, type }: Value) => ({
  isNamed: NAMES[kind].test(name),
  wrong: typeProblem(type),
}));

/** The rule that a node breaks by itself, whatever graph it is in; undefined if it breaks none. */
const nodeProblem = oncePer(({ op, path, operands, inputs, attributes, result }: Node): string | undefined => {
  if (!isOpName(op)) return `${String(op)} is not an op`;
  if (!PATH.test(path)) return `${JSON.stringify(path)} is not a model path`;
  const def = OPS[op];
  const problem = attributeProblem(op, def, attributes);
  if (problem !== undefined) return `found ${problem.found}, expected ${problem.expected}`;
  const types = inputs.map((v) => v.type);
  const type = inferred(def, types, attributes);
  if (typeof type === 'string') return `${op}: ${type}`;
  const named = listOperands(def, operands);
  if (named.length !== inputs.length || named.some((v, i) => v !== inputs[i]))
    return `${op}: the operands by name are not those in order`;
  return sameType(type, result.type)
    ? undefined
    : `${op} gives ${printType(type)}, the node declares ${printType(result.type)}`;
});

/**
 * Throws at the first rule that `graph` breaks, with the node's text and, if given, the name of the pass that it comes
 * `after`. Rules: names follow the grammar and are unique; shapes name declared extents; operands are declared, by
 * identity, before their use; every op is known, has the operands and attributes that it takes and the result type that
 * it infers; no node reads an old version of a state, and the last one is given (versions.ts); there is at least one
 * result or given state.
 */
export function verifyGraph(graph: Graph, after?: string): void {
  const where = `Graph @${graph.name}${after === undefined ? '' : ` after ${after}`}`;
  const fail = (what: string, node?: Node): never => {
    throw new Error(`${where}: ${what}.${node === undefined ? '' : `\n  in: ${printNode(node)}`}`);
  };
  if (!NAME.test(graph.name)) fail(`the graph's name ${JSON.stringify(graph.name)} is not an identifier`);

  const extents = new Set<string>();
  for (const { name, counts, within } of graph.extents) {
    if (!EXTENT_NAME.test(name)) fail(`${JSON.stringify(name)} is not a name of an extent (${EXTENT_NAME.source})`);
    if (counts !== undefined && !EXTENT_COUNTS.test(counts))
      fail(`${JSON.stringify(counts)} is not a word for what extent ${name} counts (${EXTENT_COUNTS.source})`);
    if (extents.has(name)) fail(`extent ${name} is declared twice`);
    if (within !== undefined && !extents.has(within)) fail(`extent ${name} lies within ${within}, which is not there`);
    const factor = productOf(name)?.of;
    if (factor !== undefined && !extents.has(factor))
      fail(`extent ${name} is a product of ${factor}, which is not there`);
    extents.add(name);
  }
  const defined = new Set<Value>();
  const names = new Map<string, Value>();
  const define = (value: Value, kind: Value['kind'], node?: Node): void => {
    if (value.kind !== kind) fail(`${printValue(value)} is declared as a ${kind}, but its kind is ${value.kind}`, node);
    const key = printValue(value);
    const { isNamed, wrong } = checkValue(value);
    if (!isNamed) fail(`${JSON.stringify(value.name)} is not a name of a ${kind}`, node);
    if (names.has(key)) fail(`${key} is defined twice`, node);
    if (wrong !== undefined) fail(`${key} is ${printType(value.type)}: ${wrong}`, node);
    const unknown = value.type.shape.find((dim) => isSymbol(dim) && !extents.has(dim));
    if (unknown !== undefined) fail(`${key} is ${printType(value.type)}, but no extent ${unknown} is declared`, node);
    names.set(key, value);
    defined.add(value);
  };
  const use = (value: Value, node?: Node): void => {
    if (defined.has(value)) return;
    const key = printValue(value);
    if (names.has(key))
      fail(`${key} is not the ${key} of this graph, but an object with that name from an earlier graph`, node);
    if (value.kind === 'weight') fail(`${key} is not declared as a weight`, node);
    fail(`${key} is used before it is defined`, node);
  };

  for (const param of graph.params) define(param, 'param');
  for (const state of graph.states) {
    define(state, 'state');
    if (state.type.shape.some(isSymbol) || state.type.shape.length === 0 || state.type.shape.includes(0))
      fail(`%${state.name} is ${printType(state.type)}: a state has a fixed shape, with at least one row`);
  }
  for (const weight of graph.weights) {
    define(weight, 'weight');
    if (weight.type.shape.some(isSymbol))
      fail(`@${weight.name} is ${printType(weight.type)}: a weight has a fixed shape`);
  }
  for (const node of graph.nodes) {
    const problem = nodeProblem(node);
    if (problem !== undefined) fail(problem, node);
    for (const operand of node.inputs) use(operand, node);
    define(node.result, 'result', node);
  }
  if (graph.results.length === 0 && graph.gives.length === 0) fail('it returns nothing and gives no state');
  for (const value of [...graph.results, ...graph.gives]) use(value);
  verifyVersions(graph, fail);
  for (const { role, name } of graph.params)
    if (role !== undefined && 'state' in role && !graph.states.some((state) => state.name === role.state))
      fail(`%${name} is ${printRole(role)}, but the function takes no state ${role.state}`);
  if (graph.outputs.length !== graph.results.length)
    fail(`it names ${graph.outputs.length} outputs and returns ${graph.results.length} values`);
  for (const output of graph.outputs)
    if (!NAME.test(output)) fail(`${JSON.stringify(output)} is not a name of an output`);
  if (new Set(graph.outputs).size < graph.outputs.length) fail('two outputs have the same name');
}
