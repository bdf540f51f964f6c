/**
 * Lets the kernel that chooses experts arrange the pairs of rows and experts too: of few rows both take less than a
 * launch. And notes which products of microscaled weights follow one of the same rows, so that they may read their
 * experts' weights while it ends. Kernels in, kernels out.
 */
import type { ArrangedPairs, GemmKernel, Kernel, KernelModule, SortByExpertKernel } from '../ir/kernel.js';
import { defined } from '../system/defined.js';

const pairsOf = ({ order, places, starts, owners }: SortByExpertKernel): ArrangedPairs => ({
  ...{ order, places, starts },
  ...defined({ owners }),
});

/** Gives each sortByExpert kernel to the route kernel whose experts it puts in order; notes what products know. */
export const fuseRouting = <M extends KernelModule>(module: M): M => markKnown(joinSorters(module));

function markKnown<M extends KernelModule>(module: M): M {
  const layouts = new Map(module.weights.map(({ name, layout }) => [name, layout]));
  const isMicroscaled = ({ segments }: GemmKernel): boolean =>
    segments.every(({ weight }) => layouts.get(weight) === 'microscaled');
  const kernels = module.kernels.map((kernel, i): Kernel => {
    const before = module.kernels[i - 1];
    if (kernel.anchor !== 'gemm' || kernel.experts === undefined || before?.anchor !== 'gemm') return kernel;
    const isKnown = before.experts?.starts === kernel.experts.starts && isMicroscaled(before) && isMicroscaled(kernel);
    return isKnown ? { ...kernel, experts: { ...kernel.experts, areKnown: true } } : kernel;
  });
  return kernels.every((kernel, i) => kernel === module.kernels[i]) ? module : { ...module, kernels };
}

function joinSorters<M extends KernelModule>(module: M): M {
  const sorters = new Map<string, SortByExpertKernel>();
  for (const kernel of module.kernels)
    if (kernel.anchor === 'sortByExpert' && !sorters.has(kernel.experts)) sorters.set(kernel.experts, kernel);
  const taken = new Set<Kernel>();
  const kernels = module.kernels.map((kernel): Kernel => {
    const sorter = kernel.anchor === 'route' && kernel.pairs === undefined ? sorters.get(kernel.experts) : undefined;
    if (kernel.anchor !== 'route' || sorter === undefined || sorter.rows !== kernel.rows) return kernel;
    taken.add(sorter);
    return { ...kernel, ops: [...kernel.ops, ...sorter.ops], pairs: pairsOf(sorter) };
  });
  return taken.size === 0 ? module : { ...module, kernels: kernels.filter((kernel) => !taken.has(kernel)) };
}
