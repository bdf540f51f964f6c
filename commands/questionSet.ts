/**
 * Questions as a model takes them: tokenized in threads, and packed into micro-batches once the model's limits are
 * known.
 */
import { statSync } from 'node:fs';
import type { TargetDevices } from '../driver/targets/target.js';
import type { Dataset } from '../evaluate/dataset.js';
import { type EvaluateOptions, type LoadedQuestions, tokenizeDataset } from '../evaluate/evaluate.js';
import { cutWindows, type Overlong, type PathLimit, truncateOverlong } from '../evaluate/pathLengths.js';
import type { Question } from '../evaluate/question.js';
import { planQuestions, type QuestionPlan } from '../evaluate/questionPlan.js';
import type { Sharing } from '../evaluate/scorer.js';
import type { Shard } from '../evaluate/shardName.js';
import { TokenizerThreads } from '../evaluate/tokenize.js';
import type { TokenizerSource } from '../evaluate/tokenizeChunk.js';
import { tokensOfLines, type TokenSource } from '../evaluate/tokenLines.js';
import { FRESH_KEYS } from '../ir/stepping.js';
import type { TokenizerSpec } from '../models/tokenizer/files.js';
import { type Tokenizer, tokenTexts } from '../models/tokenizer/tokenizer.js';
import { loadAddon } from '../runtime/addon.js';
import { inParts, type Parts } from '../system/text.js';
import type { ModelLoading } from './loadModel.js';
import type { ModelLimits } from './modelLimits.js';

/** How questions share trees, which part of them is scored, and how long ones are treated. */
export interface PackOptions {
  readonly sharing: Sharing;
  /** The part to score; absent: all questions. */
  readonly shard?: Shard | undefined;
  /** What happens to choices that are too long with their context; `truncate` by default. */
  readonly overlong?: Overlong | undefined;
}

export interface PackedQuestions extends PackOptions {
  readonly loaded: LoadedQuestions;
  readonly plan: QuestionPlan;
  /** Present: beginnings that trees have in common are computed once and kept, in a cache of this many tokens. */
  readonly cacheTokens?: number;
  /** Number of choices whose context was cut. */
  readonly truncatedChoices: number;
}

const TRIM_MS = 200;

type Tokenizing = Pick<ModelLoading, 'tokenizer' | 'target' | 'cores'>;

const sourceOf = ({ tokenizer }: Tokenizing): TokenizerSource => ({
  moduleUrl: new URL('../models/tokenizer/thread.js', import.meta.url).href,
  spec: tokenizer.spec,
});

/** Threads for one set after another; the questions of the first decide how many. `isFirst`: others follow. */
export const openThreads = (loading: Tokenizing, questions: readonly Question[], isFirst = false): TokenizerThreads =>
  new TokenizerThreads({
    tokenizer: sourceOf(loading),
    workers: tokenizerThreads(questions, loading.tokenizer.spec, loading.target.devices, loading.cores, isFirst),
  });

/** Threads that open the tokenizer before there are questions; undefined where the questions are to decide. */
export function openThreadsAtOnce(loading: Tokenizing): TokenizerThreads | undefined {
  const workers = threadsAtOnce(loading.tokenizer.spec, loading.target.devices, loading.cores);
  return workers === 0 ? undefined : new TokenizerThreads({ tokenizer: sourceOf(loading), workers });
}

/**
 * Tokenizes in the background. `prefixToken`: stands in for a context without tokens. On a CPU, memory that the threads
 * have freed is regularly returned to the system.
 */
export async function tokenize(
  dataset: Dataset,
  loading: Tokenizing,
  prefixToken?: number,
  threads?: TokenizerThreads,
): Promise<LoadedQuestions> {
  const { tokenizer, target, cores } = loading;
  const timer = target.devices.isHost ? setInterval(() => loadAddon().trim(), TRIM_MS) : undefined;
  try {
    return await tokenizeDataset(dataset, {
      tokenizer: sourceOf(loading),
      prefixToken,
      threads,
      workers: threads === undefined ? tokenizerThreads(dataset.questions, tokenizer.spec, target.devices, cores) : 0,
    });
  } finally {
    clearInterval(timer);
    if (target.devices.isHost) loadAddon().trim();
  }
}

/** The measure of a shard's work. It is the same on every machine, whatever was tuned there. */
export const weighedShard = (shard: Shard | undefined, { work }: ModelLimits): EvaluateOptions['shard'] =>
  shard === undefined
    ? undefined
    : { ...shard, workOf: ({ tokens, rows, longest }) => work.estimate(tokens, rows, longest) };

/** Limit of a path that is cut into calls, by what ends first: the model's context or the list of its keys. */
const cutLimit = ({ contextLength }: ModelLimits): PathLimit =>
  contextLength > FRESH_KEYS ? { kind: 'keys', tokens: FRESH_KEYS } : { kind: 'context', tokens: contextLength };

/**
 * `mayCut`: paths that are longer than a micro-batch may be cut into calls, which keep keys and values. Throws
 * UserError if a choice does not fit the model and must not, or cannot, be truncated.
 */
export function* packQuestions(
  whole: LoadedQuestions,
  { sharing, shard, overlong = 'truncate' }: PackOptions,
  limits: ModelLimits,
  mayCut = false,
): Parts<PackedQuestions> {
  const cut = whole.tokenized.map((question) => cutWindows(question, limits.contextLength, whole.addedTokens));
  yield;
  const { questions: tokenized, choices } =
    overlong === 'truncate' ? truncateOverlong(cut, limits.contextLength) : { questions: cut, choices: 0 };
  yield;
  const plan = yield* planQuestions({
    tokenized,
    sharing,
    scorer: limits,
    shard: weighedShard(shard, limits),
    cutLimit: mayCut ? cutLimit(limits) : undefined,
  });
  return { loaded: { ...whole, tokenized }, sharing, shard, overlong, plan, truncatedChoices: choices };
}

/** Makes ahead what the first call needs: micro-batches, or the order of the walk. */
export async function prepareCalls({ plan, cacheTokens, sharing }: PackedQuestions): Promise<void> {
  if (cacheTokens === undefined) await inParts(plan.packs());
  else if (sharing !== 'kv') await inParts(plan.order());
}

/** How many threads tokenize a question set while the model is compiled and loaded. */

/**
 * Cores for each thread. The tokenizer library is multithreaded, but converting its results to JavaScript numbers is
 * not: a quarter of the processor time for HellaSwag.
 */
const CORES = 4;
const MOST = 4;
/** Sizes in characters and bytes that take less than the quarter of a second in which a thread loads its modules. */
const SMALL_SET = 512 << 10;
const SMALL_TOKENIZER_BYTES = 512 << 10;

/** Infinity if the size is unknown. Problems with a file are reported by the code that reads it. */
function bytesOf(path: string): number {
  try {
    const stat = statSync(path);
    return stat.isFile() ? stat.size : Infinity;
  } catch {
    return Infinity;
  }
}

const isLarge = (spec: TokenizerSpec): boolean =>
  (spec.kind === 'json' ? spec.text.length : bytesOf(spec.path)) > SMALL_TOKENIZER_BYTES;

const threadsOn = ({ isHost }: Pick<TargetDevices, 'isHost'>, cores: number): number =>
  isHost ? 1 : Math.min(MOST, Math.max(1, Math.floor(cores / CORES)));

/**
 * Threads to open before there are questions, so that they open the tokenizer meanwhile. 0 on a host that computes
 * itself where the tokenizer is small: a small question set then needs no thread, and kernels need the processors.
 */
export const threadsAtOnce = (spec: TokenizerSpec, devices: Pick<TargetDevices, 'isHost'>, cores: number): number =>
  devices.isHost && !isLarge(spec) ? 0 : threadsOn(devices, cores);

/**
 * 0, this thread, for a small question set behind which none follows. More than 1 only on a host of GPUs: each thread
 * holds tens of megabytes, which would break the memory bound of a run on a CPU.
 */
export function tokenizerThreads(
  questions: readonly Pick<Question, 'context' | 'choices'>[],
  spec: TokenizerSpec,
  devices: Pick<TargetDevices, 'isHost'>,
  cores: number,
  isFirst = false,
): number {
  const characters = questions.reduce(
    (sum, { context, choices }) => choices.reduce((total, choice) => total + context.length + choice.length, sum),
    0,
  );
  return !isFirst && characters <= SMALL_SET && !isLarge(spec) ? 0 : threadsOn(devices, cores);
}

/** What log-probabilities of tokens are written with: the tokens of questions, and their texts. */
export function tokenSource(tokenizer: Tokenizer, { tokenized }: LoadedQuestions): TokenSource {
  const texts = tokenTexts(tokenizer, tokensOfLines(tokenized));
  return {
    questions: new Map(tokenized.map((question) => [question.docId, question])),
    textOf: (id) => texts.get(id) ?? null,
  };
}
