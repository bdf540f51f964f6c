/** The third step of a run: a loaded model scores a set of questions, with a journal if there is a folder. */
import { dirname } from 'node:path';
import { artifactId } from '../driver/artifact/manifest.js';
import type { OpenedModel } from '../driver/compile/open.js';
import { type Arithmetic, arithmeticName } from '../driver/precision.js';
import type { RunProgress, Ui } from '../driver/requests.js';
import { evaluate, type Evaluation, type Progress, type Scored, scoreQuestions } from '../evaluate/evaluate.js';
import type { TaskName } from '../evaluate/question.js';
import type { Turn } from '../evaluate/turns.js';
import { cacheTokensOf } from '../ir/stepping.js';
import { defined } from '../system/defined.js';
import { quoteForShell } from '../system/process.js';
import { counted } from '../system/text.js';
import { checkpointId, type LoadedModel } from './loadModel.js';
import { type PackedQuestions, weighedShard } from './questionSet.js';
import { planPathScorer, PlanScorer, stepShapeOf } from './scorer.js';

export interface ScoreSetOptions {
  readonly task: TaskName;
  /** Folder of the results and the journal. Nothing is written without it. */
  readonly output?: string | undefined;
  /** The model's name in results. */
  readonly modelName: string;
  readonly resume: boolean;
  /** Whether questions before these are of the same run. */
  readonly isLater?: boolean;
  /** The command that continues with a journal, for messages. */
  readonly resumeCommand?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called at every progress event. */
  readonly onProgress?: (() => void) | undefined;
  /** Records what the model does for several sets; by default one of its own. */
  readonly scorer?: PlanScorer | undefined;
  /** Its place among sets that are computed one behind another; alone by default. */
  readonly turn?: Turn | undefined;
  /** Scores name the log-probability of every token. */
  readonly keepsTokens?: boolean | undefined;
}

export interface ScoredSet extends Evaluation, Partial<Pick<Scored, 'identity'>> {
  /** What the model did for this set: operations and a timeline. */
  readonly scorer: PlanScorer;
}

/** What names a model's answers, in journals and shards. */
export async function modelIdentity(model: LoadedModel): Promise<ModelIdentity> {
  const known = identities.get(model);
  if (known !== undefined) return known;
  const identity = {
    artifact: scoringId(model),
    checkpoint: checkpointId(model),
    tokenizer: model.tokenizer.hash,
    arithmetic: arithmeticName(model.model),
    isa: model.model.isa,
  };
  identities.set(model, identity);
  return identity;
}

type ModelIdentity = Readonly<Record<string, string>>;

/** Of models that are open: the graph of one is read for it. */
const identities = new WeakMap<LoadedModel, ModelIdentity>();

export const scorerOf = ({ executor, limits, model }: LoadedModel): PlanScorer =>
  new PlanScorer(executor, {
    ...limits,
    functions: model.plan.functions,
    nonFiniteAdvice: nonFiniteAdvice(model.target.devices.isHost, model.arithmetic),
  });

/** Scores one set. The model stays open, so another set may follow. */
export async function scoreSet(
  model: LoadedModel,
  { loaded, plan, sharing, shard, cacheTokens }: PackedQuestions,
  options: ScoreSetOptions,
  ui: Ui,
): Promise<ScoredSet> {
  const scorer = options.scorer ?? scorerOf(model);
  const shared = {
    scorer,
    pathScorer:
      cacheTokens === undefined
        ? undefined
        : planPathScorer(model.executor, { ...stepShapeOf(model.model), cacheTokens }, scorer),
    plan,
    sharing,
    turn: options.turn,
    keepsTokens: options.keepsTokens,
    onProgress: (progress: Progress) => {
      options.onProgress?.();
      ui.run(toRunProgress(progress));
    },
    onWarning: (line: string) => ui.warn(line),
    ...defined({ signal: options.signal }),
  };
  if (options.output === undefined) {
    const evaluation = await evaluate({ ...shared, questions: loaded.questions, tokenized: loaded.tokenized });
    return { ...evaluation, scorer };
  }
  const scored = await scoreQuestions({
    ...shared,
    task: options.task,
    loaded,
    out: options.output,
    modelName: options.modelName,
    resume: options.resume,
    shard: weighedShard(shard, model.limits),
    identity: {
      ...(await modelIdentity(model)),
    },
    onKept: (path, kept) => {
      if (kept.questions === 0) return;
      ui.note(
        `answers of an earlier run to ${counted(kept.questions, 'question')} were in ${path}; ` +
          `they are kept in ${kept.path}`,
      );
      const again = options.resumeCommand ?? 'the same command with --resume';
      ui.note(`to go on with them instead: mv ${quoteForShell(kept.path)} ${quoteForShell(path)} && ${again}`);
    },
  });
  if (scored.questionsResumed > 0)
    ui.note(`${counted(scored.questionsResumed, 'question')} taken over from ${scored.journal}`);
  else if (options.resume && options.isLater !== true)
    ui.note(
      `nothing to take over: there is no answer of this run in ${dirname(scored.journal)} ` +
        '(with other tasks, limits, shots or seeds it is another run)',
    );
  return { ...scored, scorer };
}

/** What to try if values are NaN or infinite. Never suggests a setting that is already on. */
export function nonFiniteAdvice(isHost: boolean, arithmetic: Arithmetic): string {
  if (arithmetic === 'f32')
    return 'This was computed in f32, so the weights hold NaN or are too large: check the checkpoint';
  const wider = isHost ? '--precision f32' : '--target cpu --precision f32';
  const other = !isHost && arithmetic === 'f16' ? '--precision bf16, or ' : '';
  return `The weights hold NaN, or ${arithmetic} overflows: try ${other}${wider}`;
}

const toRunProgress = (p: Progress): RunProgress => ({
  questionsDone: p.questionsDone,
  questionsTotal: p.questionsTotal,
  tokensDone: p.tokensDone,
  tokensTotal: p.tokensTotal,
  accuracy: p.questionsMeasured === 0 ? undefined : p.runningAcc,
  accuracyNorm: p.questionsMeasured === 0 ? undefined : p.runningAccNorm,
  tokensPerSecond: p.tokensPerSecond,
  secondsLeft: p.secondsLeft ?? undefined,
});

/**
 * Identity of what scores are computed with, in journals, shards and records. Memory for keys and values is no part of
 * it, because answers are the same with and without: a run may be resumed on a machine that has less.
 */
export const scoringId = ({ id, reference, model }: Pick<OpenedModel, 'id' | 'reference' | 'model'>): string =>
  cacheTokensOf(model) === undefined ? id : artifactId(reference, model, model.graphs.score);
