/** THE ordered list of passes: a LLaMA graph in primitive ops becomes fused kernels over one arena. */
import type { Graph } from '../ir/graph.js';
import { assignPrecision, type ContractionDtype } from './assignPrecision.js';
import { canonicaliseMask } from './canonicaliseMask.js';
import { eliminateCommonSubexpressions } from './eliminateCommonSubexpressions.js';
import { eliminateDeadCode } from './eliminateDeadCode.js';
import { foldConstants } from './foldConstants.js';
import { foldNormWeights } from './foldNormWeights.js';
import { fuseGroups } from './fuseGroups.js';
import { fuseLogProb } from './fuseLogProb.js';
import { lowerKernels, type LoweredModule, type WeightStorage } from './lowerKernels.js';
import { narrowTables } from './narrowTables.js';
import { pruneDeadRows } from './pruneDeadRows.js';
import { recogniseAttention } from './recogniseAttention.js';
import { roundProducts } from './roundProducts.js';
import { splitStream } from './splitStream.js';

/** What the target's contractions read. */
export interface Numerics {
  readonly activations: ContractionDtype;
  /** What attention reads: queries, keys and values. Default f32. */
  readonly attention?: ContractionDtype;
  readonly weights: WeightStorage;
  /** What an epilogue reads of its product. Default f32. */
  readonly products?: 'f32' | 'f20';
  /** What the residual stream is kept in, where activations are bf16. Default f32. */
  readonly stream?: 'f32' | 'f24';
}

/** One graph-to-graph pass: pure; returns the same object where nothing changed. */
export interface GraphPass {
  readonly name: string;
  /** Why it stands where it stands. */
  readonly reason: string;
  readonly run: (graph: Graph) => Graph;
}

export function graphPasses(numerics: Numerics): readonly GraphPass[] {
  return [
    {
      name: 'eliminateCommonSubexpressions',
      run: eliminateCommonSubexpressions,
      reason: 'patterns compare values by identity, so equal values must be one',
    },
    { name: 'foldConstants', run: foldConstants, reason: 'literals and undone movement would hide patterns' },
    {
      name: 'recogniseAttention',
      run: recogniseAttention,
      reason: 'softmax(q·kᵀ + bias)·v becomes one node, before anything rewrites its parts',
    },
    {
      name: 'canonicaliseMask',
      run: canonicaliseMask,
      reason: 'needs the attention node; a proved mask frees the f32[T, T] bias',
    },
    {
      name: 'foldConstants',
      run: foldConstants,
      reason: "transposes that recogniseAttention left cancel with the model's own",
    },
    {
      name: 'pruneDeadRows',
      run: pruneDeadRows,
      reason: 'needs attention as a barrier between rows; shrinks everything after the last one',
    },
    {
      name: 'foldNormWeights',
      run: foldNormWeights,
      reason: 'after pruning, so that a norm is folded where it is finally computed',
    },
    { name: 'fuseLogProb', run: fuseLogProb, reason: 'needs the row scale that foldNormWeights put behind the head' },
    {
      name: 'assignPrecision',
      run: (graph) => assignPrecision(graph, numerics.activations, numerics.attention),
      reason: 'last rewrite of operands; its casts are fused next',
    },
    {
      name: 'eliminateCommonSubexpressions',
      run: eliminateCommonSubexpressions,
      reason: 'rewrites repeat casts and folded weights',
    },
    {
      name: 'eliminateDeadCode',
      run: eliminateDeadCode,
      reason: 'fusion looks at readers, so dead readers must be gone',
    },
  ];
}

/** Called with every stage's name and result: verification, dumps, `inspect`. */
export type Observer = (stage: string, graph: Graph) => void;

/** Graph → optimised graph. */
export function optimise(graph: Graph, numerics: Numerics, observe: Observer = () => undefined): Graph {
  let current = graph;
  observe('model', current);
  for (const pass of graphPasses(numerics)) {
    current = pass.run(current);
    observe(pass.name, current);
  }
  return current;
}

/**
 * Optimised graph → kernels: fuseGroups decides, lowerKernels writes down, narrowTables keeps once what repeats. For
 * targets that ask for it, splitStream keeps the residual stream in 24 bits and roundProducts rounds what epilogues
 * read of products.
 */
export function lower(graph: Graph, numerics: Numerics): LoweredModule {
  const module = narrowTables(lowerKernels(fuseGroups(graph), numerics.weights));
  const split = numerics.stream === 'f24' ? splitStream(module) : module;
  return numerics.products === 'f20' ? roundProducts(split) : split;
}
