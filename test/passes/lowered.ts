/** Takes graphs through fuseGroups and lowerKernels to the kernel interpreter. */
import { expect } from 'vitest';
import { definitions, type Graph, type Value } from '../../ir/graph/graph.js';
import { interpretGraph, type GraphEnv } from '../../ir/graph/interpreter.js';
import type { Kernel } from '../../ir/kernel.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import { lower } from '../../passes/runPasses.js';
import type { Numerics } from '../../passes/numerics.js';
import { distance, environment, parse } from './support.js';

export const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
export const BF16: Numerics = { activations: 'bf16', weights: { layout: 'vnni', format: 'bf16' } };
export const TENSOR_CORES: Numerics = {
  activations: 'bf16',
  attention: 'bf16',
  products: 'f20',
  stream: 'f24',
  writes: 'epilogues',
  rows: 'contractions',
  states: 'blocks',
  weights: { layout: 'kmajor', format: 'bf16', pairingWidth: 8 },
};
export const HALF: Numerics = {
  activations: 'f16',
  attention: 'f16',
  products: 'f20',
  writes: 'epilogues',
  rows: 'contractions',
  states: 'blocks',
  weights: { layout: 'kmajor', format: 'f16', pairingWidth: 8 },
};

/** Kernels of a graph as it stands: only dead code is removed. They are verified. */
export function lowerAsIs(graph: Graph, numerics: Numerics = F32): LoweredModule {
  const module = lower(eliminateDeadCode(graph), numerics);
  verifyKernels(module);
  return module;
}

/** Name of a value's buffer: lower case, words joined by `_`. */
export const bufferName = (v: Value): string => v.name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();

/** Results of `graph` in order, computed by `module`, which was lowered from it. */
export function interpretLowered(graph: Graph, module: LoweredModule, env: GraphEnv, round = false): Float64Array[] {
  const tensors = new Map<string, RawTensor>(
    graph.weights.map((w) => {
      const [first, second] = w.type.shape as readonly number[];
      return [
        w.name,
        { rows: second === undefined ? 1 : first!, columns: second ?? first!, data: env.weights.get(w.name)! },
      ];
    }),
  );
  // A vector of the checkpoint that is read as a table has one column.
  for (const weight of module.weights) {
    const source = tensors.get(weight.sources[0]!.tensor);
    if (weight.layout === 'rows' && weight.k === 1 && source !== undefined)
      tensors.set(weight.sources[0]!.tensor, { rows: source.data.length, columns: 1, data: source.data });
  }
  const buffers = new Map(graph.params.map((p) => [bufferName(p), env.params.get(p.name)!]));
  const out = interpretModule(module, { sizes: env.sizes, buffers, tensors, round });
  const defs = definitions(graph);
  const behindViews = (v: Value): Value => (defs.get(v)?.op === 'reshape' ? behindViews(defs.get(v)!.inputs[0]!) : v);
  return graph.results.map((r) => out.get(bufferName(behindViews(r)))!);
}

/** `text` with lines of at most 112 columns: the rest of a longer line follows, indented by four more. */
export const folded = (text: string): string =>
  text
    .split('\n')
    .map((line) => {
      const indent = line.slice(0, line.length - line.trimStart().length);
      const lines: string[] = [];
      let rest = line;
      while (rest.length > 112) {
        const end = rest.lastIndexOf(' ', 112);
        lines.push(rest.slice(0, end));
        rest = `${indent}    ${rest.slice(end + 1)}`;
      }
      return [...lines, rest].join('\n');
    })
    .join('\n');

const printKernels = (kernels: readonly Kernel[]): string => folded(`\n${kernels.map(printKernel).join('\n')}\n`);
export const printModule = (module: LoweredModule): string => printKernels(module.kernels);
/** Kernels whose path begins with `prefix`. */
export const printPart = (module: LoweredModule, prefix: string): string =>
  printKernels(module.kernels.filter(({ path }) => path.startsWith(prefix)));

/** The kernels of the graph in `text`, as text. They compute what the graph computes. */
export function kernelsOf(text: string): string {
  const graph = parse(text);
  const module = lowerAsIs(graph);
  const env = environment(graph);
  const got = interpretLowered(graph, module, env);
  interpretGraph(graph, env).forEach((tensor, i) =>
    expect(distance(tensor.data, got[i]!), `result ${i} by${printModule(module)}`).toBeLessThan(1e-12),
  );
  return printModule(module);
}
