/** The calling convention of a lowered function: the graph's parameters, results and states, with their buffers. */
import type { FunctionInterface } from '../ir/function.js';
import type { Graph, Value } from '../ir/graph/graph.js';
import { versionsOf } from '../ir/graph/versions.js';

export function lowerInterface(graph: Graph, bufferOf: (v: Value) => string): FunctionInterface {
  const versions = versionsOf(graph);
  return {
    name: graph.name,
    extents: graph.extents,
    inputs: graph.params.map((v) => ({
      name: v.name,
      buffer: bufferOf(v),
      ...v.type,
      role: v.role ?? { kind: 'values' },
    })),
    outputs: graph.results.map((v, i) => ({ name: graph.outputs[i]!, buffer: bufferOf(v), ...v.type })),
    takes: graph.states.map(({ name }) => name),
    gives: graph.gives.map((last) => versions.get(last)!.state.name),
  };
}
