/** What the template of a logprobReduce kernel needs on any target. */
import type { LogProbReduceKernel } from '../ir/kernel.js';
import { LOGPROB_BLOCK, partWidth } from '../ir/kernel.js';
import type { KernelOperands } from './operands.js';

export function logprobReduceValues(kernel: LogProbReduceKernel, operands: KernelOperands) {
  const parts = operands.get(kernel.parts);
  return {
    parts: parts.index,
    partsStride: parts.stride,
    target: operands.get(kernel.target).index,
    logProb: operands.get(kernel.logProb).index,
    isArgmax: operands.get(kernel.isArgmax).index,
    draw:
      kernel.draw === undefined
        ? undefined
        : { token: operands.get(kernel.draw.token).index, logProb: operands.get(kernel.draw.logProb).index },
    totals:
      kernel.totals === undefined
        ? undefined
        : { top: operands.get(kernel.totals.top).index, sum: operands.get(kernel.totals.sum).index },
    width: partWidth(kernel),
    vocab: kernel.vocab,
    block: LOGPROB_BLOCK,
    blocks: Math.ceil(kernel.vocab / LOGPROB_BLOCK),
  };
}
