/** `run`: a checkpoint or artifact scores a question set. Tokenising overlaps compiling and loading. */
import { dirname, resolve } from 'node:path';
import { bucketCostModel } from '../autotune/bucketCost.js';
import { UserError } from '../errors.js';
import {
  checkResumedShard,
  evaluate,
  formatTable,
  loadQuestions,
  planQuestions,
  resultsFolder,
  scoreQuestions,
  shardName,
  summariseResults,
  taskByName,
  throughputOf,
  writeResults,
  type EvaluateOptions,
  type Evaluation,
  type LoadedQuestions,
  type Progress,
  type QuestionPlan,
  type ResultsInput,
  type Scored,
  type ScorerLimits,
  type Task,
} from '../eval/index.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { describeTokenizer } from '../models/tokenizer.js';
import { roundUp } from '../ir/types.js';
import { prepareOutput } from '../system/write.js';
import { loadAddon } from '../runtime/cpu/addon.js';
import { contextLimit, isaOf, type CompiledModel } from './compile.js';
import { detectMachine } from './machine.js';
import { modelName } from './names.js';
import { beginOpening, type Opening } from './open.js';
import { openDevices } from './devices/openDevices.js';
import { Phases, printPhases } from './phases.js';
import { Interrupted, type RunProgress, type RunRequest, type RunResult, type Ui } from './requests.js';
import { PlanScorer, type BatchCost, type Executor } from './scorer.js';
import { tokeniserThreads } from './tokeniserThreads.js';
import { profileEvents, timelineEvents, writeTrace } from './trace.js';
import { VERSION } from './version.js';
import { BatchWork } from './work.js';

export async function runModel(request: RunRequest, ui: Ui): Promise<RunResult> {
  const started = new Date();
  const begin = performance.now();
  const phases = new Phases();
  phases.begin('open');
  const task = taskByName(request.task);
  if (request.resume && request.output === undefined)
    throw new UserError('--resume needs the folder of the run that it continues', 'add --out DIR');
  const { shard } = request;
  if (shard !== undefined && request.output === undefined)
    throw new UserError('--shard needs a folder: merge joins what the shards write there', 'add --out DIR');
  const name = modelName(request.model);
  if (request.output !== undefined) {
    if (request.resume) checkResumedShard(request.output, name, task.name, shard);
    prepareOutput(resultsFolder(request.output, name, shard));
  }
  if (request.trace !== undefined) prepareOutput(dirname(resolve(request.trace)));

  const machine = detectMachine();
  ui.phase('open model', request.model);
  const opening = beginOpening(request, machine, ui);
  const { checkpoint } = opening;
  const tokenizer = describeTokenizer(checkpoint.dir);
  if (tokenizer.vocabSize > checkpoint.config.vocabSize) {
    throw new UserError(
      `${checkpoint.dir}: the tokenizer has ids up to ${tokenizer.vocabSize - 1}, the model ${checkpoint.config.vocabSize} embeddings`,
      'the tokenizer belongs to another model',
    );
  }
  // What a run on a CPU has promised to hold counts this process; a host of GPUs has memory, and many threads that
  // tokenise.
  const isFrugal = opening.target === 'cpu';
  if (isFrugal) loadAddon().boundHeaps();
  const questions = phases.during('tokenise', () =>
    loadQuestions(
      { path: request.data, task, limit: request.limit, docs: request.docs },
      {
        tokenizer: { moduleUrl: new URL('../models/tokenizer.js', import.meta.url).href, spec: tokenizer.spec },
        workers: tokeniserThreads(request.data, tokenizer.spec, opening.target, machine.cpu.cores),
      },
    ),
  );
  // Awaited below; a failure before that must not count as unhandled.
  questions.catch(() => undefined);
  phases.end();
  /** What is packed while weights load. */
  let planning: Promise<QuestionPlan> | undefined;
  const planned: Opening = {
    ...opening,
    finish: async () => {
      const opened = await phases.during('compile', () => opening.finish());
      planning = planAhead(request, questions, limitsOf(checkpoint, opened.model), phases);
      return opened;
    },
  };
  const {
    opened: { model, id },
    executor,
    parallelism,
  } = await openDevices(planned, request, ui, phases);
  const devices = parallelism.replicas * parallelism.stages;
  try {
    ui.phase('tokenise', request.data);
    const loaded = isFrugal ? await withTrimming(questions) : await questions;
    const plan = await planning;
    const limits = limitsOf(checkpoint, model);
    const { work } = limits;
    const scorer = new PlanScorer(executor, limits);
    if (scorer.maxTokens !== limits.maxTokens || scorer.maxRows !== limits.maxRows)
      throw new Error(`an executor of ${scorer.maxTokens} tokens for a plan of ${limits.maxTokens}`);
    const loadSeconds = (performance.now() - begin) / 1000;
    ui.phase(
      'score',
      `${shard === undefined ? '' : `shard ${shardName(shard)} of `}${loaded.questions.length} questions, sharing ${request.sharing}`,
    );
    const evaluation = await score(
      request,
      { task, loaded, scorer, name, id, model, work, plan, onFirst: firstAnswer(phases, executor, ui) },
      ui,
    );
    if (request.trace !== undefined) {
      const { timeline } = scorer;
      const kernels = evaluation.isInterrupted
        ? []
        : await profileEvents(executor, loaded, request.sharing, scorer, { timeline, pid: devices + 1 });
      writeTrace(request.trace, [...timelineEvents(timeline, devices), ...kernels]);
    }
    if (evaluation.isInterrupted) throw new Interrupted(evaluation.scores.length);
    const scored = new Set(evaluation.scores.map(({ docId }) => docId));
    const input: ResultsInput = {
      taskName: task.name,
      taskVersion: task.version,
      modelName: name,
      config: {
        model: 'tilewright',
        model_args: `model=${request.model},precision=${request.precision}`,
        batch_size: 'auto',
        device: model.target,
        arithmetic: model.arithmetic,
        isa: isaOf(model),
        sharing: request.sharing,
        limit: request.limit ?? null,
      },
      taskConfig: { dataset_path: request.data, dataset_sha256: loaded.sha256 },
      questionsInDataset: loaded.total,
      questions: loaded.questions.filter(({ docId }) => scored.has(docId)),
      scores: evaluation.scores,
      throughput: throughputOf({
        questions: evaluation.questionsScored,
        tokensComputed: evaluation.tokensComputed,
        tokensWithoutSharing: evaluation.tokensWithoutSharing,
        loadSeconds,
        scoreSeconds: evaluation.scoreSeconds,
        modelFlops: scorer.modelFlops,
        devices: scorer.timeline.use(devices),
      }),
      started,
      finished: new Date(),
      version: VERSION,
      ...(shard === undefined || evaluation.identity === undefined
        ? {}
        : { shard: { ...shard, run: evaluation.identity } }),
    };
    if (request.output === undefined) {
      const results = summariseResults(input);
      return { results, table: formatTable(results), resultsPath: undefined, samplesPath: undefined };
    }
    const { results, resultsPath, samplesPath } = writeResults(request.output, input);
    return { results, table: formatTable(results), resultsPath, samplesPath };
  } finally {
    await executor.close();
  }
}

const TRIM_MS = 200;

/** Awaits what allocates and frees in many threads; what malloc keeps of it goes back to the system now and then. */
async function withTrimming<T>(work: Promise<T>): Promise<T> {
  const addon = loadAddon();
  const timer = setInterval(() => addon.trim(), TRIM_MS);
  try {
    return await work;
  } finally {
    clearInterval(timer);
    addon.trim();
  }
}

/**
 * Steps that the largest micro-batch has on a GPU: its kernels run in whole waves of tiles over all multiprocessors,
 * and what lies between two takes about what the next takes.
 */
const GPU_STEPS = 32;

/** Seconds of a micro-batch: as tuned where this plan was, else operations at a rate that rises with the batch. */
export function costOf({ target, plan }: CompiledModel, work: BatchWork): BatchCost {
  const smooth: BatchCost =
    plan.bucketSeconds === undefined
      ? (tokens, rows, longest) => work.seconds(tokens, rows, longest)
      : bucketCostModel(plan.bucketSeconds);
  if (target === 'cpu') return smooth;
  const step = Math.ceil(plan.capacity.tokens / GPU_STEPS);
  return (tokens, rows, longest) => smooth(Math.min(plan.capacity.tokens, roundUp(tokens, step)), rows, longest);
}

/** What a scorer of the compiled model will accept, and what its micro-batches will cost. */
function limitsOf(checkpoint: Checkpoint, model: CompiledModel): ScorerLimits & { readonly work: BatchWork } {
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

const shardOf = ({ shard }: RunRequest, work: BatchWork): EvaluateOptions['shard'] =>
  shard === undefined
    ? undefined
    : { ...shard, workOf: ({ tokens, rows, longest }) => work.estimate(tokens, rows, longest) };

/** Trees and micro-batches as soon as the questions are tokenised. */
function planAhead(
  request: RunRequest,
  questions: Promise<LoadedQuestions>,
  limits: ReturnType<typeof limitsOf>,
  phases: Phases,
): Promise<QuestionPlan> {
  const plan = questions.then(({ tokenised }) =>
    phases.during('pack', () =>
      Promise.resolve(
        planQuestions({ tokenised, sharing: request.sharing, scorer: limits, shard: shardOf(request, limits.work) }),
      ),
    ),
  );
  // Awaited once the devices are open; a failure before that must not count as unhandled.
  plan.catch(() => undefined);
  return plan;
}

interface Scoring {
  readonly task: Task;
  readonly loaded: LoadedQuestions;
  readonly scorer: PlanScorer;
  readonly name: string;
  readonly id: string;
  readonly model: CompiledModel;
  readonly work: BatchWork;
  readonly plan: QuestionPlan | undefined;
  /** Called with every progress. */
  readonly onFirst: () => void;
}

/** Told of every progress, it says once how the time until the first answer was spent. */
function firstAnswer(phases: Phases, executor: Executor, ui: Ui): () => void {
  let calls = 0;
  return () => {
    calls++;
    // The first is told when everything is packed, the second with the first answer.
    if (calls === 1) phases.begin('first micro-batch');
    if (calls !== 2) return;
    phases.end();
    ui.note(printPhases(phases.spans, executor.phases ?? []));
  };
}

async function score(
  request: RunRequest,
  { task, loaded, scorer, name, id, model, work, plan, onFirst }: Scoring,
  ui: Ui,
): Promise<Evaluation & Partial<Pick<Scored, 'identity'>>> {
  const onProgress = (progress: Progress): void => {
    onFirst();
    ui.run(toRunProgress(progress));
  };
  const shared = {
    scorer,
    plan,
    sharing: request.sharing,
    onProgress,
    onWarning: (line: string) => ui.warn(line),
    ...(request.signal === undefined ? {} : { signal: request.signal }),
  };
  if (request.output === undefined)
    return evaluate({ ...shared, questions: loaded.questions, tokenised: loaded.tokenised });
  const scored = await scoreQuestions({
    ...shared,
    task,
    loaded,
    out: request.output,
    modelName: name,
    resume: request.resume,
    shard: shardOf(request, work),
    identity: { artifact: id, arithmetic: model.arithmetic, isa: isaOf(model) },
  });
  if (scored.questionsResumed > 0) ui.note(`${scored.questionsResumed} questions taken over from ${scored.journal}`);
  return scored;
}

const toRunProgress = (p: Progress): RunProgress => ({
  questionsDone: p.questionsDone,
  questionsTotal: p.questionsTotal,
  tokensDone: p.tokensDone,
  tokensTotal: p.tokensTotal,
  accuracy: p.questionsDone === 0 ? undefined : p.runningAcc,
  accuracyNorm: p.questionsDone === 0 ? undefined : p.runningAccNorm,
  tokensPerSecond: p.tokensPerSecond,
  secondsLeft: p.secondsLeft ?? undefined,
});
