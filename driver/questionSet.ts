/** Questions as a model takes them: tokenised in threads, and packed into micro-batches once its limits are known. */
import {
  planQuestions,
  tokeniseDataset,
  type Dataset,
  type EvaluateOptions,
  type LoadedQuestions,
  type QuestionPlan,
  type Shard,
  type Sharing,
} from '../eval/index.js';
import { loadAddon } from '../runtime/addon.js';
import type { ModelLoading } from './loadModel.js';
import type { ModelLimits } from './modelLimits.js';
import { tokeniserThreads } from './tokeniserThreads.js';

/** How a set of questions is cut. */
export interface PackOptions {
  readonly sharing: Sharing;
  /** The part to score; all where absent. */
  readonly shard?: Shard | undefined;
}

export interface PackedQuestions extends PackOptions {
  readonly loaded: LoadedQuestions;
  readonly plan: QuestionPlan;
}

const TRIM_MS = 200;

/** Tokenises in the background. On a CPU, memory that threads have freed goes back to the system now and then. */
export async function tokenise(
  dataset: Dataset,
  { tokenizer, target, cores }: Pick<ModelLoading, 'tokenizer' | 'target' | 'cores'>,
): Promise<LoadedQuestions> {
  const timer = target === 'cpu' ? setInterval(() => loadAddon().trim(), TRIM_MS) : undefined;
  try {
    return await tokeniseDataset(dataset, {
      tokenizer: { moduleUrl: new URL('../models/tokenizer.js', import.meta.url).href, spec: tokenizer.spec },
      workers: tokeniserThreads(dataset.questions, tokenizer.spec, target, cores),
    });
  } finally {
    clearInterval(timer);
    if (target === 'cpu') loadAddon().trim();
  }
}

/** What a shard's share is measured by: the same on every machine, whatever was tuned there. */
export const weighedShard = (shard: Shard | undefined, { work }: ModelLimits): EvaluateOptions['shard'] =>
  shard === undefined
    ? undefined
    : { ...shard, workOf: ({ tokens, rows, longest }) => work.estimate(tokens, rows, longest) };

/** Throws UserError where a choice does not fit the model. */
export const packQuestions = (
  loaded: LoadedQuestions,
  { sharing, shard }: PackOptions,
  limits: ModelLimits,
): PackedQuestions => ({
  loaded,
  sharing,
  shard,
  plan: planQuestions({
    tokenised: loaded.tokenised,
    sharing,
    scorer: limits,
    shard: weighedShard(shard, limits),
  }),
});
