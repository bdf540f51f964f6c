/** What the template of a sample kernel needs on any target. */
import type { SampleKernel } from '../ir/kernel.js';
import { SAMPLE_INPUT_NAMES, type SampleInput } from '../ir/sampleInputs.js';
import type { KernelOperands } from './operands.js';

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
