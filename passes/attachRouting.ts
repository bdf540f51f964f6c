/**
 * Tells a product with the logits of experts which kernels follow it: those that choose experts and make the rows of
 * their pairs. For few rows it runs them itself, as its schedule says (CudaGemmSchedule.routes): each takes less than a
 * launch and what a launch waits for. Kernels in, kernels out.
 */
import type { GemmKernel, Kernel, KernelModule, LoopKernel, RouteKernel, Routing } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { defined } from '../system/defined.js';

export function attachRouting<M extends KernelModule>(module: M): M {
  const kernels = module.kernels.map((kernel, i): Kernel => {
    if (kernel.anchor !== 'gemm') return kernel;
    const routing = routingOf(kernel, module.kernels.slice(i + 1, i + 3));
    return routing === undefined ? kernel : { ...kernel, routing };
  });
  return kernels.every((kernel, i) => kernel === module.kernels[i]) ? module : { ...module, kernels };
}

function routingOf(kernel: GemmKernel, [route, behind]: readonly Kernel[]): Routing | undefined {
  if (kernel.routing !== undefined || kernel.experts !== undefined || kernel.finish !== undefined) return undefined;
  if (route?.anchor !== 'route' || route.pairs === undefined || route.rows !== kernel.rows) return undefined;
  const { logits } = route;
  const storing = kernel.segments.filter(({ outputs }) =>
    outputs.some(({ kind, buffer }) => kind === 'store' && buffer === logits),
  );
  if (storing.length !== 1) return undefined;
  const gather = behind?.anchor === 'loop' && isGather(behind, route, kernel) ? behind : undefined;
  return { route, ...defined({ gather }) };
}

/** Whether a loop makes rows of pairs, by the rows that `route` lists, from what was there before the product. */
function isGather(loop: LoopKernel, route: RouteKernel, product: GemmKernel): boolean {
  const reads = kernelReads(loop);
  const order = route.pairs?.order;
  return (
    order !== undefined &&
    reads.has(order) &&
    [...kernelWrites(route)].every((name) => name === order || !reads.has(name)) &&
    loop.beside === undefined &&
    loop.finish === undefined &&
    loop.headDim === undefined &&
    loop.versions === undefined &&
    loop.outputs.every(({ kind }) => kind === 'store') &&
    typeof loop.columns === 'number' &&
    [...kernelWrites(product)].every((name) => !reads.has(name))
  );
}
