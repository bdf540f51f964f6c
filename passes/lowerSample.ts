/** Ops that choose from the same logits become one kernel. */
import type { SampleKernel } from '../ir/kernel.js';
import type { SampleOp } from '../ir/ops/sampling.js';
import { MAX_SAMPLE_VOCAB, SAMPLE_INPUT_NAMES, sampleInputsOf } from '../ir/sampleInputs.js';
import type { Node, Value } from '../ir/graph/graph.js';
import { CompileError } from './compileError.js';
import type { Group } from './groups.js';
import { lastExtent, type KernelHead, type Lowering } from './lowering.js';

export function lowerSample(lowering: Lowering, { anchors, rows }: Group, head: KernelHead): SampleKernel {
  const { buffers } = lowering;
  const anchor = (op: SampleOp): Node => {
    const [found, ...more] = anchors.filter((node) => node.op === op);
    if (found === undefined || more.length > 0)
      throw new CompileError(`${head.path}: '${op}' of the same logits is wanted once, it is there ${anchors.length}×`);
    return found;
  };
  const [sample, tokens, logProbs] = [anchor('sample'), anchor('top_tokens'), anchor('top_logprobs')];
  const [logits, ...inputs] = sample.operands as [Value, ...Value[]];
  if (lowering.defs.get(logits)?.op !== 'head_logits')
    throw new CompileError(
      `${head.path}: tokens are chosen from logits that the head computes, not from %${logits.name}`,
    );
  if (anchor('sample_logprob').operands[1] !== sample.result || tokens.operands[1] !== logProbs.operands[1])
    throw new CompileError(
      `${head.path}: log-probabilities are those of the tokens that are chosen from the same logits`,
    );
  const vocab = lastExtent(logits);
  if (vocab >= MAX_SAMPLE_VOCAB)
    throw new CompileError(
      `${head.path}: a vocabulary of ${vocab} tokens; filters take fewer than ${MAX_SAMPLE_VOCAB}`,
    );
  const [entries] = inputs[SAMPLE_INPUT_NAMES.indexOf('entryToken')]!.type.shape;
  return {
    ...head,
    anchor: 'sample',
    rows,
    vocab,
    logits: buffers.of(logits),
    totals: lowering.totalsOf(logits),
    inputs: sampleInputsOf(inputs.map((v) => lowering.bufferBehind(v))),
    saved: buffers.declare(`${head.name}_saved`, { dtype: 'f32', rows: entries!, columns: 1, space: 'arena' }),
    token: buffers.of(sample.result),
    logProb: buffers.of(anchor('sample_logprob').result),
    best: {
      most: lastExtent(tokens.result),
      count: lowering.bufferBehind(tokens.operands[1]!),
      tokens: buffers.of(tokens.result),
      logProbs: buffers.of(logProbs.result),
    },
  };
}
