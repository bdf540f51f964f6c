/** What results say of every run, of questions in a file and of tasks: its settings, where it comes from, its rates. */
import { printDocs, throughputOf, type Provenance, type Throughput } from '../../eval/index.js';
import type { ScoreRequest } from '../requests.js';
import { checkpointId, type LoadedModel } from './loadModel.js';
import type { PackedQuestions } from './questionSet.js';
import type { ScoredSet } from './scoreSet.js';

/** What both reports are made from. */
export interface RunFacts {
  readonly request: ScoreRequest;
  readonly model: Pick<LoadedModel, 'model' | 'devices' | 'reference' | 'tokenizer' | 'limits'>;
  readonly questions: PackedQuestions;
  readonly scored: ScoredSet;
  /** Seconds from the command to the first micro-batch. */
  readonly loadSeconds: number;
}

/** The settings, under the names of the public harness. */
export const settingsOf = (
  { request, model }: Pick<RunFacts, 'request' | 'model'>,
  bootstrapDraws: number,
): Readonly<Record<string, string | number | null>> => ({
  model: 'tilewright',
  model_args: `model=${request.model},precision=${request.precision}`,
  batch_size: 'auto',
  device: model.model.target.name,
  arithmetic: model.model.arithmetic,
  isa: model.model.isa,
  sharing: request.sharing,
  limit: request.limit ?? null,
  bootstrap_iters: bootstrapDraws,
  fewshot_seed: 1234,
});

/** What the answers depend on. `truncatedPrompts`: generated texts whose prompts lost their beginning. */
export const provenanceOf = (
  { model, questions }: Pick<RunFacts, 'model' | 'questions'>,
  dataset: string,
  questionsHash: string,
  truncatedPrompts = 0,
): Provenance => ({
  checkpoint: checkpointId(model),
  checkpoint_path: model.reference.path,
  tokenizer_sha256: model.tokenizer.hash,
  bos_tokens: questions.loaded.addedTokens,
  context_length: model.limits.contextLength,
  overlong: questions.overlong ?? 'truncate',
  truncated_choices: questions.truncatedChoices + truncatedPrompts,
  dataset_path: dataset,
  dataset_sha256: questions.loaded.sha256,
  docs: printDocs(questions.loaded.docs),
  questions: questions.loaded.questions.length,
  questions_sha256: questionsHash,
});

export const ratesOf = ({
  scored,
  loadSeconds,
  model,
}: Pick<RunFacts, 'scored' | 'loadSeconds' | 'model'>): Throughput =>
  throughputOf({
    questions: scored.questionsScored,
    tokensComputed: scored.tokensComputed,
    tokensWithoutSharing: scored.tokenCounts.alone,
    tokensGrouped: scored.tokenCounts.grouped,
    tokensShared: scored.tokenCounts.shared,
    loadSeconds,
    scoreSeconds: scored.scoreSeconds,
    modelFlops: scored.scorer.modelFlops,
    devices: scored.scorer.timeline.use(model.devices),
  });
