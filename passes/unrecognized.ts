/** Reports patterns that no pass recognized. Generic kernels compute them, correctly but more slowly. */
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import { EVERY_EXPERT } from './expandExperts.js';
import { QUANTIZE } from './quantizeContractions.js';

/** Buffers that depend on a product or an attention, directly or through other kernels. */
function computedBuffers(kernels: readonly Kernel[]): ReadonlySet<string> {
  const computed = new Set<string>();
  for (const kernel of kernels) {
    const isComputed = kernel.anchor !== 'loop' || [...kernelReads(kernel)].some((name) => computed.has(name));
    if (isComputed) kernelWrites(kernel).forEach((name) => computed.add(name));
  }
  return computed;
}

/**
 * One line for each kernel that exists because a pattern was missed. Loops that only prepare inputs (embeddings, rotary
 * tables) are not listed. A loop counts if it reads what a product or an attention computed, because ops between those
 * belong into their epilogues; loops that round rows to 8 bits do not, because they need whole rows.
 */
export function unrecognized({ kernels }: KernelModule): readonly string[] {
  const computed = computedBuffers(kernels);
  // The products with the downs of experts, one each.
  const downs = kernels.filter((kernel) => kernel.anchor === 'gemm' && kernel.segments.length === 1);
  const expanded = new Set(downs.flatMap(({ path }) => (path.endsWith(`.${EVERY_EXPERT}`) ? path : [])));
  const experts = [...expanded].map(
    (path) =>
      `${path.slice(0, -EVERY_EXPERT.length - 1).replace(/\.down$/, '')}: ` +
      'the choice of experts is not known: all of them compute every row',
  );
  const others = kernels.flatMap((kernel) => {
    if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias')
      return [`${kernel.path}: the mask is kept as a bias, because it could not be proved to have column form`];
    if (
      kernel.anchor === 'loop' &&
      !expanded.has(kernel.path) &&
      !kernel.path.endsWith(`.${QUANTIZE}`) &&
      [...kernelReads(kernel)].some((name) => computed.has(name))
    )
      return [`${kernel.path}: not fused: a separate loop computes ${kernel.ops.join(', ')}`];
    return [];
  });
  return [...experts, ...others];
}
