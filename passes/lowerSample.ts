/** Ops that choose from the same logits become one kernel. */
import type { SampleKernel } from '../ir/kernel.js';
import { mapInputs, MAX_SAMPLE_VOCAB } from '../ir/sampleInputs.js';
import { extentsOf } from '../ir/types.js';
import { CompileError } from './compileError.js';
import type { GroupOf } from './groups.js';
import { lastExtent, onlyAnchor, type KernelHead, type Lowering } from './lowering.js';

export function lowerSample(lowering: Lowering, { anchors, rows }: GroupOf<'sample'>, head: KernelHead): SampleKernel {
  const { buffers } = lowering;
  const sample = onlyAnchor(anchors, 'sample', head);
  const [tokens, logProbs] = [onlyAnchor(anchors, 'top_tokens', head), onlyAnchor(anchors, 'top_logprobs', head)];
  const chosen = onlyAnchor(anchors, 'sample_logprob', head);
  const { z: logits, ...inputs } = sample.operands;
  if (lowering.defs.get(logits)?.op !== 'head_logits')
    throw new CompileError(
      `${head.path}: tokens are chosen from logits that the head computes, not from %${logits.name}`,
    );
  const { count } = tokens.operands;
  if (chosen.operands.token !== sample.result || count !== logProbs.operands.count)
    throw new CompileError(
      `${head.path}: log-probabilities are those of the tokens that are chosen from the same logits`,
    );
  const vocab = lastExtent(logits);
  if (vocab >= MAX_SAMPLE_VOCAB)
    throw new CompileError(
      `${head.path}: a vocabulary of ${vocab} tokens; filters take fewer than ${MAX_SAMPLE_VOCAB}`,
    );
  const [entries] = extentsOf(inputs.entryToken.type.shape, 1);
  return {
    ...head,
    anchor: 'sample',
    rows,
    vocab,
    logits: buffers.of(logits),
    totals: lowering.totalsOf(logits),
    inputs: mapInputs((name) => lowering.bufferBehind(inputs[name])),
    saved: buffers.declare(`${head.name}_saved`, { dtype: 'f32', rows: entries, columns: 1, space: 'arena' }),
    token: buffers.of(sample.result),
    logProb: buffers.of(chosen.result),
    best: {
      most: lastExtent(tokens.result),
      count: lowering.bufferBehind(count),
      tokens: buffers.of(tokens.result),
      logProbs: buffers.of(logProbs.result),
    },
  };
}
