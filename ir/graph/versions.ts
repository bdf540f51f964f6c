/**
 * Versions of a state. In the graph a write takes one version and makes the next; in memory they are all one buffer.
 * That is sound if nobody reads a version once the next is made, which verifyVersions proves.
 */
import type { StateDecl } from '../function.js';
import { operandEntries } from '../ops/opDef.js';
import type { Graph, Node, Value } from './graph.js';

/** Which state a value is a version of, and how many writes of this call came before it. */
export interface Version {
  readonly state: Value;
  readonly writes: number;
}

/** Names of the operands that may be versions of states: rows of them are read by index, or written. */
function takenStates({ op, attributes }: Node): readonly string[] {
  if (op === 'gather_rows' || op === 'write_rows') return ['x'];
  if (op === 'scan' || op === 'scan_state') return ['state'];
  return op === 'attention' && attributes.mask === 'path' ? ['k', 'v', 'kScale', 'vScale', 'kTail'] : [];
}

/** The version that each value of `graph` is, where it is one: states themselves, and what writes make of them. */
export function versionsOf({ states, nodes }: Graph): ReadonlyMap<Value, Version> {
  const versions = new Map<Value, Version>(states.map((state) => [state, { state, writes: 0 }]));
  for (const node of nodes) {
    const taken =
      node.op === 'write_rows' ? node.operands.x : node.op === 'scan_state' ? node.operands.state : undefined;
    const old = taken && versions.get(taken);
    if (old !== undefined) versions.set(node.result, { state: old.state, writes: old.writes + 1 });
  }
  return versions;
}

/**
 * Calls `fail` at the first node that reads a version of a state which a write before it replaced, or that reads one
 * otherwise than by rows, and where the function does not give the last version of each state that it writes.
 */
export function verifyVersions(graph: Graph, fail: (what: string, node?: Node) => never): void {
  const versions = versionsOf(graph);
  const current = new Map<Value, Value>(graph.states.map((state) => [state, state]));
  for (const node of graph.nodes) {
    const taken = takenStates(node);
    for (const [name, operand] of operandEntries<Value>(node.operands)) {
      const version = versions.get(operand);
      if (version === undefined) continue;
      const { name: state } = version.state;
      if (!taken.includes(name))
        fail(`%${operand.name} is a version of state ${state}: only reads and writes of rows take it`, node);
      if (current.get(version.state) !== operand)
        fail(`%${operand.name} is an old version of state ${state}: a write before this has replaced it`, node);
    }
    const version = versions.get(node.result);
    if (version !== undefined) current.set(version.state, node.result);
  }
  const result = graph.results.find((value) => versions.has(value));
  if (result !== undefined) fail(`%${result.name} is a version of a state: it is given, not returned`);
  const given = new Set<Value>();
  for (const value of graph.gives) {
    const version = versions.get(value);
    if (version === undefined || version.writes === 0) return fail(`it gives %${value.name}, which no write has made`);
    if (given.has(version.state)) fail(`it gives state ${version.state.name} twice`);
    if (current.get(version.state) !== value)
      fail(`it gives %${value.name}, which is an old version of state ${version.state.name}`);
    given.add(version.state);
  }
  for (const [state, last] of current)
    if (last !== state && !given.has(state)) fail(`it writes state ${state.name} and does not give %${last.name}`);
}

/** How a state lies in memory: a matrix with its first extent as rows. */
export function stateDecl({ name, type: { dtype, shape } }: Value): StateDecl {
  const [rows, ...rest] = shape.map(Number);
  return { name, dtype, rows: rows!, columns: rest.reduce((product, extent) => product * extent, 1) };
}
