/** What the templates of kernels of experts need on any target. */
import type { SortByExpertKernel, RouteKernel } from '../ir/kernel.js';
import type { KernelOperands } from './operands.js';

export function routeValues(kernel: RouteKernel, operands: KernelOperands) {
  const { count, chosen, normalized } = kernel;
  const [logits, experts] = [operands.get(kernel.logits), operands.get(kernel.experts)];
  return {
    count,
    chosen,
    normalized,
    logits: logits.index,
    logitsStride: logits.stride,
    experts: experts.index,
    expertsStride: experts.stride,
    weights: kernel.weights.map((name, slot) => ({ slot, buffer: operands.get(name).index })),
  };
}

export function sortByExpertValues(kernel: SortByExpertKernel, operands: KernelOperands) {
  const { count, chosen } = kernel;
  const experts = operands.get(kernel.experts);
  return {
    count,
    chosen,
    experts: experts.index,
    expertsStride: experts.stride,
    order: operands.get(kernel.order).index,
    starts: operands.get(kernel.starts).index,
    places: kernel.places.map((name, slot) => ({ slot, buffer: operands.get(name).index })),
  };
}
