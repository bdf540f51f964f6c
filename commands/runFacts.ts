/** What results say of every run, of questions in a file and of tasks: its settings, where it comes from, its rates. */
import { arithmeticName } from '../driver/targets/precision.js';
import {
  type DeviceUse,
  type Overlong,
  printDocs,
  type Provenance,
  type StartUp,
  type Throughput,
  throughputOf,
  type TokenCounts,
} from '../evaluate/index.js';
import type { ClosedRange } from '../evaluate/selection.js';
import { checkpointId, type LoadedModel } from './loadModel.js';
import type { PackedQuestions } from './questionSet.js';
import type { ScoreRequest } from './runRequest.js';
import type { ScoredSet } from './scoreSet.js';

/** What results say of the questions. */
export interface QuestionFacts {
  /** Tokens that the tokenizer puts first. */
  readonly added: readonly number[];
  readonly overlong: Overlong;
  /** Choices and prompts that lost their beginning. */
  readonly truncated: number;
  readonly sha256: string;
  readonly docs: readonly ClosedRange[];
  readonly questions: number;
}

/** What a run computed. */
export interface Computed {
  readonly questions: number;
  readonly tokens: number;
  readonly tokenCounts: TokenCounts;
  readonly seconds: number;
  readonly modelFlops: number;
  /** What devices did, if known. */
  readonly devices: readonly DeviceUse[] | undefined;
}

/** What both reports are made from. */
export interface RunFacts {
  readonly request: ScoreRequest;
  readonly model: Pick<LoadedModel, 'model' | 'id' | 'devices' | 'reference' | 'tokenizer' | 'limits'>;
  readonly about: QuestionFacts;
  readonly computed: Computed;
  /** Seconds from the command to the first micro-batch. */
  readonly loadSeconds: number;
  /** What the first answer waited for; undefined where this command has none. */
  readonly start?: StartUp | undefined;
}

export const questionFacts = ({ loaded, overlong = 'truncate', truncatedChoices }: PackedQuestions): QuestionFacts => ({
  added: loaded.addedTokens,
  overlong,
  truncated: truncatedChoices,
  sha256: loaded.sha256,
  docs: loaded.docs,
  questions: loaded.questions.length,
});

export const computedBy = (
  { questionsScored, tokensComputed, tokenCounts, scoreSeconds, scorer }: ScoredSet,
  devices: number,
): Computed => ({
  questions: questionsScored,
  tokens: tokensComputed,
  tokenCounts,
  seconds: scoreSeconds,
  modelFlops: scorer.modelFlops,
  devices: scorer.timeline.use(devices),
});

/** The settings, under the names of the public harness. */
export const settingsOf = (
  { request, model }: Pick<RunFacts, 'request' | 'model'>,
  bootstrapDraws: number,
): Readonly<Record<string, string | number | null>> => ({
  model: 'tilewright',
  model_args: `model=${request.model},precision=${request.precision}`,
  batch_size: 'auto',
  device: model.model.target.name,
  arithmetic: arithmeticName(model.model),
  isa: model.model.isa,
  sharing: request.sharing,
  limit: request.limit ?? null,
  bootstrap_iters: bootstrapDraws,
  fewshot_seed: 1234,
});

/** What the answers depend on. */
export const provenanceOf = (
  { model, about }: Pick<RunFacts, 'model' | 'about'>,
  dataset: string,
  questionsHash: string,
): Provenance => ({
  checkpoint: checkpointId(model),
  checkpoint_path: model.reference.path,
  tokenizer_sha256: model.tokenizer.hash,
  bos_tokens: about.added,
  context_length: model.limits.contextLength,
  overlong: about.overlong,
  truncated_choices: about.truncated,
  dataset_path: dataset,
  dataset_sha256: about.sha256,
  docs: printDocs(about.docs),
  questions: about.questions,
  questions_sha256: questionsHash,
});

export const ratesOf = ({
  computed,
  loadSeconds,
  start,
}: Pick<RunFacts, 'computed' | 'loadSeconds' | 'start'>): Throughput =>
  throughputOf({
    questions: computed.questions,
    tokensComputed: computed.tokens,
    tokensWithoutSharing: computed.tokenCounts.alone,
    tokensGrouped: computed.tokenCounts.grouped,
    tokensShared: computed.tokenCounts.shared,
    loadSeconds,
    scoreSeconds: computed.seconds,
    modelFlops: computed.modelFlops,
    devices: computed.devices,
    start,
  });
