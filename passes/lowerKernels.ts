/**
 * Groups become kernels, and stored values become buffers. fuseGroups has made all decisions; each kind of group has a
 * file that writes its kernels down:
 *
 * - lowerGemm, lowerAttention, lowerLogProb, lowerSample: the anchors;
 * - lowerRecurrent: links and scans of recurrent layers;
 * - lowerPrograms: what is stored behind an anchor, and loops, which have none.
 *
 * All of them share a Lowering: names, buffers (lowerBuffers), weights (lowerWeights), and scalar programs
 * (lowerScalars).
 */
import type { FunctionInterface, StateDecl } from '../ir/function.js';
import type { Graph, Value } from '../ir/graph/graph.js';
import { stateDecl, versionsOf } from '../ir/graph/versions.js';
import type { ConstantVector, Kernel, KernelModule } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import type { FusedGraph } from './fuseGroups.js';
import { lowerAttention, lowerLogProb, lowerRoute, lowerSample, lowerSortByExpert } from './lowerAnchors.js';
import { lowerLinks, lowerScan } from './lowerRecurrent.js';
import { lowerGemm, lowerLoop, lowerWrite } from './lowerGemm.js';
import { groupPath, Lowering } from './lowering.js';
import type { WeightStorage } from './lowerWeights.js';
import { anchorsOf, type Group } from './placedValues.js';

export interface LoweredModule extends KernelModule {
  readonly constants: readonly ConstantVector[];
  readonly states: readonly StateDecl[];
}

/**
 * Turns each group into a kernel and each stored value into a buffer. No buffer takes a name of `states`, which are
 * those of other functions.
 */
export function lowerKernels(fused: FusedGraph, storage: WeightStorage, states: readonly string[] = []): LoweredModule {
  const { graph, groups } = fused;
  const lowering = new Lowering(fused, storage, states);
  const kernels = groups.flatMap((group) =>
    lowerGroup(lowering, group).map((kernel) => noteVersions(kernel, group, fused)),
  );
  // Names the buffers of all results, and declares those that no kernel has named: before buffers are listed.
  const convention = lowerInterface(graph, (v) => lowering.bufferBehind(v));
  return {
    interface: convention,
    buffers: lowering.buffers.all,
    weights: lowering.weights.all,
    kernels,
    constants: lowering.weights.constants,
    states: graph.states.map(stateDecl),
  };
}

function lowerGroup(lowering: Lowering, group: Group): readonly Kernel[] {
  const path = groupPath(group);
  const ops = [...anchorsOf(group), ...group.members].map(({ op }) => op);
  const head = { name: lowering.names.unique(path), path, ops };
  switch (group.kind) {
    case 'gemm':
      return [lowerGemm(lowering, group, head)];
    case 'attention':
      return [lowerAttention(lowering, group, head)];
    case 'logprob':
      return lowerLogProb(lowering, group, head);
    case 'sample':
      return [lowerSample(lowering, group, head)];
    case 'route':
      return [lowerRoute(lowering, group, head)];
    case 'sortByExpert':
      return [lowerSortByExpert(lowering, group, head)];
    case 'links':
      return [lowerLinks(lowering, group, head)];
    case 'scan':
      return [lowerScan(lowering, group, head)];
    case 'loop':
      return [lowerLoop(lowering, group, head)];
    case 'write':
      return [lowerWrite(lowering, group, head)];
    default:
      return group satisfies never;
  }
}

/** The kernel with the version of each state that the group's nodes mean it to find in memory. */
function noteVersions(kernel: Kernel, { anchors, members }: Group, { versions }: FusedGraph): Kernel {
  const touched = new Set([...kernelReads(kernel), ...kernelWrites(kernel)]);
  const meant = [...anchors, ...members].flatMap(({ inputs }) =>
    inputs.flatMap((operand) => {
      const version = versions.get(operand);
      return version !== undefined && touched.has(version.state.name) ? [[version.state.name, version.writes]] : [];
    }),
  );
  return meant.length === 0 ? kernel : { ...kernel, versions: Object.fromEntries(meant) as Record<string, number> };
}

// The calling convention of a lowered function: the graph's parameters, results and states, with their buffers.

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
