/** Model → plan: graph, passes, kernels, default schedules. No weights are read and nothing is compiled yet. */
import { UsageError } from '../../errors.js';
import { scoreOf, type Plan } from '../../ir/plan.js';
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { printGraph } from '../../ir/graph/printer.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { MaskKind } from '../../models/family/mask.js';
import { lower, optimise, type Observer } from '../../passes/pipeline.js';
import { MAX_CAPACITY } from '../checkPlan.js';
import { buildGraph } from '../model.js';
import { planFunction } from '../planFunction.js';
import type { CompiledModel, Target } from '../targets/target.js';

export type { CompiledModel } from '../targets/target.js';

export interface CompileOptions {
  readonly mask?: MaskKind;
  /** Largest micro-batch, packed tokens. Default: what the model's context needs, within bounds of the target. */
  readonly maxTokens?: number;
  /** Sees the graph or the kernels after every pass: dumps and `inspect`. */
  readonly observe?: Observer;
}

/** Longest context accepted, tokens: the model's own, bounded by the largest micro-batch. */
export const contextLimit = (checkpoint: Pick<Checkpoint, 'config'>, plan: Plan<unknown>): number =>
  Math.min(checkpoint.config.maxPositions, tokensIn(scoreOf(plan).capacity));

/** A checkpoint compiled by `target` for `device`. UsageError where the options do not fit. */
export function compileModel<S, D>(
  checkpoint: Checkpoint,
  target: Target<S, D>,
  device: D,
  options: CompileOptions = {},
): CompiledModel<S, D> {
  const numerics = target.numerics(device);
  const { least, most } = target.capacity(device);
  const tokens = options.maxTokens ?? Math.min(Math.max(checkpoint.config.maxPositions, least), most);
  if (!Number.isInteger(tokens) || tokens < 32 || tokens > MAX_CAPACITY)
    throw new UsageError(`a micro-batch of ${tokens} tokens: expected 32 to ${MAX_CAPACITY}`, 'use --max-tokens 1024');
  const capacity = scoringBucket({ tokens, rows: tokens, longest: tokens });
  const { mask = 'tree' } = options;
  const graph = optimise(buildGraph(checkpoint, mask), numerics, options.observe);
  const module = lower(graph, numerics, options.observe);
  return {
    target,
    device,
    isa: target.label(device),
    arithmetic: target.arithmetic(device),
    mask,
    graphText: printGraph(graph),
    plan: {
      weights: module.weights,
      constants: module.constants,
      states: module.states,
      functions: [planFunction(module, capacity, target.buckets(tokens), target.scheduling, device)],
    },
  };
}
