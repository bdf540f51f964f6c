/** The calling convention of a lowered function: the graph's parameters and results, with their buffers. */
import type { FunctionInterface } from '../ir/function.js';
import type { Graph, Value } from '../ir/graph.js';

export function lowerInterface(graph: Graph, bufferOf: (v: Value) => string): FunctionInterface {
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
    takes: [],
    gives: [],
  };
}
