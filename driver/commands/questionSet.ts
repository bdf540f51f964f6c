/** Questions as a model takes them: tokenised in threads, and packed into micro-batches once its limits are known. */
import {
  planQuestions,
  tokeniseDataset,
  type Dataset,
  type EvaluateOptions,
  truncateOverlong,
  type LoadedQuestions,
  type Overlong,
  type QuestionPlan,
  type Shard,
  type Sharing,
} from '../../eval/index.js';
import { loadAddon } from '../../runtime/addon.js';
import type { ModelLoading } from './loadModel.js';
import type { ModelLimits } from './modelLimits.js';
import { tokeniserThreads } from './tokeniserThreads.js';

/** How a set of questions is cut. */
export interface PackOptions {
  readonly sharing: Sharing;
  /** The part to score; all where absent. */
  readonly shard?: Shard | undefined;
  /** What happens to choices that are too long with their context; `truncate` where absent. */
  readonly overlong?: Overlong | undefined;
}

export interface PackedQuestions extends PackOptions {
  readonly loaded: LoadedQuestions;
  readonly plan: QuestionPlan;
  /** Choices whose context was cut. */
  readonly truncatedChoices: number;
}

const TRIM_MS = 200;

/** Tokenises in the background. On a CPU, memory that threads have freed goes back to the system now and then. */
export async function tokenise(
  dataset: Dataset,
  { tokenizer, target, cores }: Pick<ModelLoading, 'tokenizer' | 'target' | 'cores'>,
): Promise<LoadedQuestions> {
  const timer = target.isHost ? setInterval(() => loadAddon().trim(), TRIM_MS) : undefined;
  try {
    return await tokeniseDataset(dataset, {
      tokenizer: { moduleUrl: new URL('../../models/tokenizer.js', import.meta.url).href, spec: tokenizer.spec },
      workers: tokeniserThreads(dataset.questions, tokenizer.spec, target, cores),
    });
  } finally {
    clearInterval(timer);
    if (target.isHost) loadAddon().trim();
  }
}

/** What a shard's share is measured by: the same on every machine, whatever was tuned there. */
export const weighedShard = (shard: Shard | undefined, { work }: ModelLimits): EvaluateOptions['shard'] =>
  shard === undefined
    ? undefined
    : { ...shard, workOf: ({ tokens, rows, longest }) => work.estimate(tokens, rows, longest) };

/** Throws UserError where a choice does not fit the model and may not be, or cannot be, truncated. */
export function packQuestions(
  whole: LoadedQuestions,
  { sharing, shard, overlong = 'truncate' }: PackOptions,
  limits: ModelLimits,
): PackedQuestions {
  const { questions: tokenised, choices } =
    overlong === 'truncate'
      ? truncateOverlong(whole.tokenised, limits.contextLength)
      : { questions: whole.tokenised, choices: 0 };
  const plan = planQuestions({ tokenised, sharing, scorer: limits, shard: weighedShard(shard, limits) });
  return { loaded: { ...whole, tokenised }, sharing, shard, overlong, plan, truncatedChoices: choices };
}
