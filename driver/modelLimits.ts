/** What a compiled model accepts and what its micro-batches cost: known before its weights are loaded. */
import { bucketCostModel } from '../autotune/bucketCost.js';
import type { ScorerLimits } from '../eval/index.js';
import { roundUp } from '../ir/types.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { contextLimit, type CompiledModel } from './compile.js';
import type { BatchCost } from './scorer.js';
import { BatchWork } from './work.js';

export interface ModelLimits extends ScorerLimits {
  readonly work: BatchWork;
}

/**
 * Sizes of micro-batch that differ in cost on a GPU: kernels run in whole waves of tiles over all multiprocessors, so
 * a size between two waves costs as much as the larger one.
 */
const GPU_STEPS = 32;

/** Seconds of a micro-batch: as measured where the plan was tuned, else operations at a rate that rises with size. */
export function costOf({ target, plan }: CompiledModel, work: BatchWork): BatchCost {
  const smooth: BatchCost =
    plan.bucketSeconds === undefined
      ? (tokens, rows, longest) => work.seconds(tokens, rows, longest)
      : bucketCostModel(plan.bucketSeconds);
  if (target === 'cpu') return smooth;
  const step = Math.ceil(plan.capacity.tokens / GPU_STEPS);
  return (tokens, rows, longest) => smooth(Math.min(plan.capacity.tokens, roundUp(tokens, step)), rows, longest);
}

export function limitsOf(checkpoint: Checkpoint, model: CompiledModel): ModelLimits {
  const { buckets } = model.plan;
  const work = new BatchWork(model.plan);
  return {
    work,
    cost: costOf(model, work),
    maxLength: contextLimit(checkpoint, model.plan),
    maxTokens: Math.max(...buckets.map(({ tokens }) => tokens)),
    maxRows: Math.max(...buckets.map(({ rows }) => rows)),
  };
}
