/** The limits of a compiled model and the cost of its micro-batches, known before its weights are loaded. */
import { bucketCostModel } from '../autotune/buckets.js';
import { type CompiledModel, contextLimit } from '../driver/compile/compile.js';
import type { ScorerLimits } from '../evaluate/questionPlan.js';
import { scoreOf } from '../ir/plan.js';
import { keysIn, rowsIn, tokensIn } from '../ir/scoring.js';
import { roundUp } from '../ir/types.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { BatchCost } from './scorer.js';
import { BatchWork } from './work.js';

export interface ModelLimits extends ScorerLimits {
  readonly work: BatchWork;
  /** Context that the model's positions allow, in tokens. `maxLength` is less if a micro-batch holds fewer tokens. */
  readonly contextLength: number;
}

/** Seconds of a micro-batch: measured if the plan was tuned, otherwise operations at a rate that rises with size. */
export function costOf(model: CompiledModel, work: BatchWork): BatchCost {
  const { bucketSeconds, capacity } = scoreOf(model.plan);
  const smooth: BatchCost =
    bucketSeconds === undefined
      ? (tokens, rows, longest) => work.seconds(tokens, rows, longest)
      : bucketCostModel(bucketSeconds);
  const { tokenStep } = model.target.devices;
  if (tokenStep === undefined) return smooth;
  const most = tokensIn(capacity);
  const step = Math.ceil(most / tokenStep);
  return (tokens, rows, longest) => smooth(Math.min(most, roundUp(tokens, step)), rows, longest);
}

export function limitsOf(checkpoint: Checkpoint, model: CompiledModel): ModelLimits {
  const plan = scoreOf(model.plan);
  const work = new BatchWork(plan);
  return {
    work,
    contextLength: checkpoint.config.maxPositions,
    cost: costOf(model, work),
    maxLength: contextLimit(checkpoint, model.plan),
    maxTokens: tokensIn(plan.capacity),
    maxRows: rowsIn(plan.capacity),
    maxKeys: keysIn(plan.capacity),
  };
}
