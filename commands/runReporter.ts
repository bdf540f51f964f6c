/** What results say of a run besides its figures: its settings, where answers come from, its rates. */
import { createHash } from 'node:crypto';
import { clock } from '../driver/phases.js';
import { arithmeticName } from '../driver/precision.js';
import { VERSION } from '../driver/program.js';
import type { RunIdentity } from '../evaluate/journal.js';
import type { Overlong } from '../evaluate/pathLengths.js';
import type { TokenCounts } from '../evaluate/pathOrder.js';
import type { Question } from '../evaluate/question.js';
import { Reporter } from '../evaluate/reporter.js';
import { modelArgs } from '../evaluate/runRecord.js';
import { type ResultsHeader, throughputOf } from '../evaluate/results.js';
import type { DeviceUse, Provenance, Throughput } from '../evaluate/resultTypes.js';
import { type ClosedRange, printDocs } from '../evaluate/selection.js';
import type { StartUp } from '../evaluate/startUp.js';
import type { Answers, TaskAnswers } from '../evaluate/taskAnswers.js';
import { jsonOf } from '../evaluate/taskConfig.js';
import type { TaskWindow } from '../evaluate/windows.js';
import type { GeneratorCounts } from '../engine/modelStats.js';
import { SEEDS } from '../tasks/requests/seeds.js';
import { BOOTSTRAP_DRAWS } from '../tasks/scores/aggregate.js';
import type { DraftSums } from './draftFigures.js';
import { adapterOf, checkpointId, type LoadedModel } from './loadModel.js';
import { recordOf } from './runRecord.js';
import type { EvaluationRequest, RunRequest, RunResult, ScoreRequest, TasksRequest } from './runRequest.js';
import type { TaskSource } from './sources.js';
import type { TextFacts } from './textFacts.js';

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

/** What it took to generate texts. */
export interface GenerationTotals extends GeneratorCounts, DraftSums {
  readonly texts: number;
  readonly seconds: number;
}

/** What a report is made from. */
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

/** The settings, under the names of the public harness. */
const settingsOf = (
  { request, model }: Pick<RunFacts, 'request' | 'model'>,
  bootstrapDraws: number,
): Readonly<Record<string, string | number | null>> => ({
  model: 'tilewright',
  model_args: modelArgs(request),
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
const provenanceOf = (
  { request, model, about }: Pick<RunFacts, 'request' | 'model' | 'about'>,
  dataset: string,
  questionsHash: string,
): Provenance => ({
  checkpoint: checkpointId(model),
  checkpoint_path: model.reference.path,
  ...adapterOf(request.adapter, model),
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

const ratesOf = ({ computed, loadSeconds, start }: Pick<RunFacts, 'computed' | 'loadSeconds' | 'start'>): Throughput =>
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

/** Settings that only tasks have, under the names of the public harness. */
const askedOf = ({ seeds = SEEDS, generation }: EvaluationRequest): ResultsHeader['config'] => ({
  gen_kwargs: generation === undefined ? null : jsonOf(generation),
  random_seed: seeds.python,
  numpy_seed: seeds.numpy,
  torch_seed: seeds.torch,
  fewshot_seed: seeds.fewshot,
});

/** Of everything that is asked of the questions of a file. */
const questionsHash = (questions: readonly Question[]): string => {
  const hash = createHash('sha256');
  for (const { docId, context, choices, gold, delimiter } of questions)
    hash.update(JSON.stringify([docId, context, choices, gold, delimiter]));
  return hash.digest('hex');
};

export interface ReportOptions {
  readonly request: RunRequest | TasksRequest;
  readonly source: TaskSource;
  readonly started: Date;
  /** The chat template that prompts were written with. */
  readonly template?: string | undefined;
}

/** What is known of a run when results are written. */
export interface RunState extends Omit<RunFacts, 'request'> {
  /** What must be equal in shards that are merged. */
  readonly identity: RunIdentity;
  readonly modelName: string;
  readonly generated?: GenerationTotals | undefined;
  /** Of a run that writes texts. */
  readonly written?: TextFacts;
}

/** Measures answers as they come, and writes results. */
export class RunReporter {
  readonly #options: ReportOptions;
  readonly #reporter: Reporter;

  constructor(options: ReportOptions) {
    const { source } = options;
    const { output, resultsStem, shard, logsSamples, logsTokens }: EvaluationRequest = options.request;
    this.#options = options;
    this.#reporter = new Reporter({
      layout: source.layout,
      nodes: source.nodes,
      output,
      resultsStem,
      shard,
      logsSamples,
      logsTokens,
      now: () => new Date(clock()),
    });
  }

  /** Takes the answers to a window's documents; the tasks that they finish. Throws UserError for a full disk. */
  add(window: TaskWindow, answers: Answers, modelName: string): Promise<readonly TaskAnswers[]> {
    return this.#reporter.add(window, answers, modelName);
  }

  /** Writes results of the tasks that are finished, over those that this run has written before. */
  write(state: RunState): RunResult & Pick<ReturnType<Reporter['write']>, 'results'> {
    const { identity, generated, written } = state;
    const { request, source, started, template } = this.#options;
    const facts: RunFacts = { ...state, request };
    const asked: EvaluationRequest = request;
    const { dataset } = source.file ?? {};
    const header: Omit<ResultsHeader, 'finished'> = {
      modelName: state.modelName,
      config:
        dataset === undefined ? { ...settingsOf(facts, BOOTSTRAP_DRAWS), ...askedOf(asked) } : settingsOf(facts, 0),
      provenance: {
        ...provenanceOf(
          facts,
          'data' in request ? request.data : (request.dataRoot ?? ''),
          dataset === undefined ? state.about.sha256 : questionsHash(dataset.questions),
        ),
        ...(written && { end_tokens: written.endTokens, text_defaults: { ...written.textDefaults } }),
        record: recordOf(request, state.model),
      },
      throughput: ratesOf(facts),
      prompts:
        dataset === undefined
          ? {
              systemInstruction: asked.systemInstruction ?? null,
              chatTemplate: template ?? null,
              fewshotAsMultiturn: template === undefined ? null : asked.isMultiturn !== false,
            }
          : undefined,
      generation: generated && { ...generated },
      started,
      version: VERSION,
    };
    return this.#reporter.write(header, identity);
  }

  /** Removes what is of no use without the rest of a run. */
  close(): void {
    this.#reporter.close();
  }
}
