/** What the templates of kernels of experts need on any target. */
import { type SortByExpertKernel, type RouteKernel, type SampleKernel } from '../ir/kernel.js';
import { SAMPLE_INPUT_NAMES, type SampleInput } from '../ir/sampleInputs.js';
import type { KernelOperands } from './operands.js';

export function routeValues(kernel: RouteKernel, operands: KernelOperands) {
  const { count, chosen, normalized, scores, groups, bias, factor, inTurn } = kernel;
  const [logits, experts] = [operands.get(kernel.logits), operands.get(kernel.experts)];
  const isCompared = scores !== undefined || groups !== undefined || bias !== undefined;
  return {
    count,
    chosen,
    normalized,
    logits: logits.index,
    logitsStride: logits.stride,
    experts: experts.index,
    expertsStride: experts.stride,
    weights: kernel.weights.map((name, slot) => ({ slot, buffer: operands.get(name).index })),
    // What kernels without these say nothing of.
    rule: {
      ...(factor === undefined ? {} : { factor: Math.fround(factor) }),
      ...(isCompared ? { compared: true } : {}),
      ...(inTurn === undefined ? {} : { inTurn: Math.fround(inTurn) }),
      ...(scores === undefined ? {} : { sigmoid: true }),
      ...(groups === undefined ? {} : { groups: groups.count, keptGroups: groups.kept, bestOfGroup: groups.best }),
    },
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
    hasOwners: kernel.owners !== undefined,
    owners: kernel.owners === undefined ? undefined : operands.get(kernel.owners).index,
  };
}

// What the template of a sample kernel needs on any target.

export function sampleValues(kernel: SampleKernel, operands: KernelOperands) {
  const index = (name: string): number => operands.get(name).index;
  const stride = (name: string): number => operands.get(name).stride;
  const { best } = kernel;
  const inputs = Object.fromEntries(SAMPLE_INPUT_NAMES.map((name) => [name, index(kernel.inputs[name])])) as Readonly<
    Record<SampleInput, number>
  >;
  return {
    ...inputs,
    vocab: kernel.vocab,
    maskStride: stride(kernel.inputs.mask),
    logits: index(kernel.logits),
    logitsStride: stride(kernel.logits),
    top: index(kernel.totals.top),
    sum: index(kernel.totals.sum),
    saved: index(kernel.saved),
    token: index(kernel.token),
    logProb: index(kernel.logProb),
    most: best.most,
    bestCount: index(best.count),
    bestTokens: index(best.tokens),
    tokensStride: stride(best.tokens),
    bestLogProbs: index(best.logProbs),
    logProbsStride: stride(best.logProbs),
  };
}
