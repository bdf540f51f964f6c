/**
 * Chooses how beginnings that many questions have in common are computed: once, in memory for keys and values, or again
 * in each tree. Fewer tokens win, if there is memory for the longest path and a call.
 */
import type { OpenedModel } from '../driver/compile/open.js';
import { stateShapeOf } from '../driver/devices/steps.js';
import type { Ui } from '../driver/requests.js';
import type { CompiledModel } from '../driver/targets/target.js';
import { UsageError, UserError } from '../errors.js';
import type { LoadedQuestions } from '../evaluate/evaluate.js';
import { countOrdered, isWorthKeeping, isWorthKeepingWithin, MIN_GAIN, pathsOf } from '../evaluate/pathOrder.js';
import type { Question } from '../evaluate/question.js';
import { type Path, pathLength } from '../evaluate/tree.js';
import { groupContexts } from '../evaluate/twoPhase.js';
import type { WalkLimits } from '../evaluate/scorer.js';
import { questionName } from '../evaluate/tokenize.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import { STEP } from '../ir/function.js';
import { scoreOf } from '../ir/plan.js';
import { tokensIn } from '../ir/scoring.js';
import { cacheTokensOf, stepSize } from '../ir/stepping.js';
import { roundUp } from '../ir/types.js';
import { defined } from '../system/defined.js';
import { bytes, count, inParts } from '../system/text.js';
import { cacheBytesOf, compileWithRoom, TOKEN_BYTES } from './cacheSize.js';
import type { LoadedModel, ModelLoading } from './loadModel.js';
import { limitsOf, type ModelLimits } from './modelLimits.js';
import { type PackedQuestions, packQuestions } from './questionSet.js';
import type { ScoreRequest } from './runRequest.js';

/** Calls of fewer tokens than this read the weights too often. */
export const MIN_CALL = 1024;

/** Room for what is put before a context and a choice. */
const ADDED_BYTES = 8;
/** Where more questions follow, there is room for one of so many tokens, or twice the longest so far. */
const FORESEEN = 4096;

/**
 * Whether contexts have so much in common that tokens should be counted. This looks at text alone, in a fraction of a
 * second, so that other question sets are tokenized while the model is compiled.
 */
export function mayKeepPrefixes(
  { sharing, prefixes = 'auto' }: Pick<ScoreRequest, 'sharing' | 'prefixes'>,
  questions: readonly Pick<Question, 'context'>[],
): boolean {
  requireTree({ sharing, prefixes });
  if (prefixes !== 'auto' || sharing !== 'tree') return prefixes === 'keep';
  const contexts = questions.map(({ context }) => context).sort();
  let whole = 0,
    shared = 0;
  contexts.forEach((context, i) => {
    const before = contexts[i - 1] ?? '';
    let at = 0;
    while (at < context.length && context.charCodeAt(at) === before.charCodeAt(at)) at++;
    whole += context.length;
    shared += at;
  });
  return whole > MIN_GAIN * (whole - shared);
}

function requireTree({ sharing, prefixes }: Pick<ScoreRequest, 'sharing' | 'prefixes'>): void {
  if (prefixes === 'keep' && sharing !== 'tree')
    throw new UsageError(
      `--prefixes keep: with --sharing ${sharing}, trees have no beginning in common`,
      'leave out one',
    );
}

/** Whether paths may be cut into calls, so that they may be longer than a micro-batch. */
export const mayCutPaths = ({ sharing, prefixes = 'auto' }: Pick<ScoreRequest, 'sharing' | 'prefixes'>): boolean =>
  sharing === 'kv' || (sharing === 'tree' && prefixes !== 'repeat');

/**
 * Whether a choice may be longer, with its context, than a micro-batch, so that it needs memory for keys and values.
 * This looks at text alone: a token has at least a byte.
 */
export async function mayNeedCache(
  { checkpoint, minCapacity, compile }: Pick<ModelLoading, 'checkpoint' | 'minCapacity' | 'compile'>,
  { sharing, prefixes = 'auto' }: Pick<ScoreRequest, 'sharing' | 'prefixes'>,
  questions: readonly Pick<Question, 'context' | 'choices'>[],
): Promise<boolean> {
  if (sharing !== 'tree' || prefixes !== 'auto') return false;
  const longest = Math.min(checkpoint.config.maxPositions, longestText(questions));
  return longest > minCapacity() && longest > tokensIn(scoreOf((await compile()).model.plan).capacity);
}

/** Bytes of the longest question with one of its choices. */
const longestText = (questions: readonly Pick<Question, 'context' | 'choices'>[]): number =>
  questions.reduce((most, { context, choices }) => {
    const choice = choices.reduce((longest, each) => Math.max(longest, Buffer.byteLength(each)), 0);
    return Math.max(most, Buffer.byteLength(context) + choice + ADDED_BYTES);
  }, 0);

/** Memory for a question of `longest` tokens and a call: a power of two, since each size has kernels of its own. */
const cacheFor = (longest: number, maxTokens: number): number => 2 ** Math.ceil(Math.log2(longest + maxTokens));

/**
 * What a token takes over kept states of recurrent layers, of what it takes in trees: 1.08 and 1.13 of questions with
 * five shots (docs/log/families.md, Kept states).
 */
const COST_OVER_STATES = 1.1;
/** Tokens in trees that take as long as `kept` over what is kept. */
const costOf = (kept: number, hasStates: boolean): number => (hasStates ? COST_OVER_STATES * kept : kept);

/** How long questions may be where more follow that are not known yet. */
const foreseenOf = (longest: number, { contextLength }: Pick<ModelLimits, 'contextLength'>): number =>
  Math.min(Math.max(2 * longest, FORESEEN), contextLength);

/** A model that is compiled before tokens are known. */
export interface CompiledAhead {
  readonly opened: OpenedModel;
  /** Lets go of its memory, where it is being loaded, before another is compiled. */
  readonly release?: () => Promise<void>;
  /** It is the one that will be needed, but for questions that are much longer in tokens than texts let expect. */
  readonly isCertain: boolean;
}

/**
 * Compiles the model while questions become tokens. Where more questions follow, it gets memory for keys and values by
 * the length of these as texts; if tokens turn out to need more, packWithPrefixes compiles it again.
 */
export async function compileAhead(
  loading: ModelLoading,
  request: ScoreRequest,
  questions: readonly Pick<Question, 'context' | 'choices'>[],
  isFirst: boolean,
): Promise<CompiledAhead> {
  const { prefixes = 'auto', sharing } = request;
  if (!isFirst || prefixes === 'repeat' || sharing !== 'tree')
    return { opened: await loading.compile(), isCertain: isFirst && sharing !== 'kv' };
  const contextLength = loading.checkpoint.config.maxPositions;
  const maxTokens = loading.minCapacity();
  const longest = Math.min(Math.ceil(longestText(questions) / TOKEN_BYTES), contextLength);
  const wanted = request.cacheTokens ?? cacheFor(foreseenOf(longest, { contextLength }), maxTokens);
  const opened = await compileWithRoom(loading, request, { wanted, least: minOf(longest, maxTokens) });
  return { opened: opened ?? (await loading.compile()), isCertain: opened !== undefined };
}

export interface PackingOptions {
  /** More questions follow, for which the model gets memory in any case, where there is room. */
  readonly isFirst?: boolean;
  /** What compileAhead came to for these questions, if it was asked. */
  readonly ahead?: CompiledAhead;
}

/** Questions with what was decided on memory for keys and values, and why. */
export interface PackedWithCache extends PackedQuestions {
  /** The model that they are packed for, compiled last. */
  readonly opened: OpenedModel;
  /** A line with the numbers of tokens. */
  readonly note: string;
  /** There is less memory than would have been used. */
  readonly lacksRoom?: boolean;
  /** The longest path, in tokens. */
  readonly longest: number;
}

/** Numbers of tokens are details; that memory is short is not. */
export function tellOfPacking({ note, lacksRoom }: PackedWithCache, ui: Pick<Ui, 'note' | 'detail'>): void {
  if (lacksRoom === true) ui.note(note);
  else ui.detail(note);
}

/** The first tree that fits no micro-batch, for messages. */
const oversizedOf = ({
  plan,
  loaded,
}: PackedQuestions): { readonly name: string; readonly tokens: number } | undefined => {
  const tree = plan.oversized[0];
  return tree && { name: questionName(loaded.tokenized[tree.paths[0]!.question]!), tokens: tree.longest };
};

interface TokensBothWays {
  readonly trees: number;
  readonly kept: number;
  /** The longest path. */
  readonly longest: number;
  /** The smallest cache that is of use. */
  readonly least: number;
}

/** Memory, in tokens, that walks over these questions need at least. */
const minOf = (longest: number, maxTokens = MIN_CALL): number =>
  roundUp(longest + Math.min(maxTokens, MIN_CALL), PAGE_TOKENS);

const longestOf = ({ tokenized }: Pick<LoadedQuestions, 'tokenized'>): number =>
  pathsOf(tokenized).reduce((most, each) => Math.max(most, pathLength(each)), 0);

/** Memory, in tokens, for questions that may be longer than a call. */
export const roomForQuestions = (loaded: Pick<LoadedQuestions, 'tokenized'>): number => minOf(longestOf(loaded));

async function countBothWays({ loaded, plan }: PackedQuestions, { maxTokens }: ModelLimits): Promise<TokensBothWays> {
  const ordered = await inParts(plan.order());
  const longest = longestOf(loaded);
  return {
    trees: plan.trees.reduce((sum, { tokens }) => sum + tokens, 0),
    kept: countOrdered(ordered).shared,
    longest,
    least: minOf(longest, maxTokens),
  };
}

/**
 * The choice for a model that is open: prefixes are kept in the cache that it has, if `isWorth` of the tokens both ways
 * says so. Throws UserError where they must be kept and it has too little.
 */
export async function keepWithin(
  { model, limits }: LoadedModel,
  packed: PackedQuestions,
  { prefixes = 'auto' }: Pick<ScoreRequest, 'prefixes'>,
  isWorth: (inTrees: number, kept: number) => boolean = isWorthKeeping,
): Promise<PackedQuestions> {
  if (prefixes === 'keep' && packed.sharing !== 'tree')
    throw new UsageError(
      `score: prefixes 'keep': with sharing '${packed.sharing}', trees have no beginning in common`,
      'leave out one',
    );
  const cacheTokens = cacheTokensOf(model);
  const oversized = oversizedOf(packed);
  const isChoice = prefixes === 'auto' && oversized === undefined;
  if (prefixes === 'repeat' || packed.sharing !== 'tree' || (isChoice && cacheTokens === undefined)) return packed;
  const { trees, kept, least } = await countBothWays(packed, limits);
  if (cacheTokens === undefined || cacheTokens < least) {
    if (isChoice) return packed;
    const why =
      oversized === undefined
        ? "prefixes 'keep'"
        : `${oversized.name} has ${count(oversized.tokens)} tokens, more than a call of ${limits.maxTokens}`;
    throw new UsageError(
      `score: ${why}: the model has memory for the keys and values of ${count(cacheTokens ?? 0)} tokens, ` +
        `and these questions need ${count(least)}`,
      `give it more: --cache-tokens ${least}, or openModel({ …, cacheTokens: ${least} })` +
        (oversized === undefined ? '' : '; or larger calls: --batch-tokens, or batchTokens of openModel'),
    );
  }
  return isChoice && !isWorth(trees, costOf(kept, stateShapeOf(model.plan) !== undefined))
    ? packed
    : { ...packed, cacheTokens };
}

/** Counts tokens both ways, chooses, and compiles the model for the choice. */
export async function packWithPrefixes(
  loading: ModelLoading,
  request: ScoreRequest,
  loaded: LoadedQuestions,
  { isFirst = false, ahead }: PackingOptions = {},
): Promise<PackedWithCache> {
  requireTree(request);
  const { prefixes = 'auto', sharing } = request;
  const { opened: compiled } = ahead ?? (await compileAhead(loading, request, loaded.questions, isFirst));
  const limits = limitsOf(loading.checkpoint, compiled.model);
  const packed = await inParts(packQuestions(loaded, request, limits, mayCutPaths(request)));
  const oversized = oversizedOf(packed);
  const { trees, kept: shared, longest, least } = await countBothWays(packed, limits);
  const inTrees = `${count(trees)} tokens in trees that each compute their own`;
  const expected = isFirst ? foreseenOf(longest, limits) : longest;
  const wanted = request.cacheTokens ?? cacheFor(expected, limits.maxTokens);
  const repeated = {
    ...packed,
    opened: compiled,
    longest,
    note: `prefixes: ${inTrees}; kept, they would take ${count(shared)}`,
  };
  const isChoice = prefixes === 'auto' && oversized === undefined;
  if (prefixes === 'repeat' || sharing !== 'tree') return repeated;
  // Where more questions follow, memory is there in any case.
  const isEnoughSaved = isFirst ? isWorthKeepingWithin : isWorthKeeping;
  const isWorth = !isChoice || isEnoughSaved(trees, costOf(shared, loading.checkpoint.model.states !== undefined));
  if (!isWorth && !isFirst) return repeated;
  if (prefixes === 'keep' && wanted < least)
    throw new UsageError(
      `--cache-tokens ${wanted}: --prefixes keep needs room for the keys and values of ${count(least)} tokens`,
      `use --cache-tokens ${roundUp(least, PAGE_TOKENS)}, or leave it out`,
    );
  const isEnough = isFirst && (cacheTokensOf(compiled.model) ?? 0) >= least;
  if (!isEnough) await ahead?.release?.();
  const opened = isEnough ? compiled : await compileWithRoom(loading, request, { wanted, least });
  if (opened === undefined) {
    const missing = `no room for the keys and values of ${count(least)} tokens beside weights and activations`;
    if (prefixes === 'keep')
      throw new UserError(
        `--prefixes keep: ${missing}`,
        'leave out --prefixes; or use a smaller --batch-tokens, more devices, or an artifact with more --cache-tokens',
      );
    // Throws: paths may not be cut now, and this one fits no micro-batch.
    if (oversized !== undefined) await inParts(packQuestions(loaded, request, limits));
    const without = await loading.compile();
    return {
      ...repeated,
      opened: without,
      note: `${repeated.note}, but there is ${missing}`,
      lacksRoom: true,
    };
  }
  if (!isWorth) return { ...repeated, opened };
  const cacheTokens = cacheTokensOf(opened.model)!;
  const calls = `calls of up to ${count(limits.maxTokens)}`;
  const why =
    oversized === undefined
      ? `instead of ${inTrees}`
      : `in ${calls}, since ${oversized.name} has ${count(oversized.tokens)}`;
  const note =
    `prefixes: kept, ${count(shared)} tokens ${why}; ` +
    `keys and values: room for ${count(cacheTokens)} tokens, ${bytes(cacheBytesOf(opened.model))}`;
  return { ...repeated, opened, cacheTokens, note };
}

/** `--sharing kv`: memory for the keys and values of contexts, on which choices are computed in later calls. */

/** The largest call of a model that keeps keys and values, and its cache; undefined if it keeps none. */
export function cacheLimits(model: CompiledModel): WalkLimits | undefined {
  const cacheRows = cacheTokensOf(model);
  const step = model.plan.functions.find((each) => each.interface.name === STEP);
  if (cacheRows === undefined || step === undefined) return undefined;
  return { ...stepSize(step.capacity.extents), cacheRows, ...defined({ states: stateShapeOf(model.plan)?.rows }) };
}

/** Tokens of both phases. Throws UserError if a choice fits no call, or a context no cache. */
function countTwoPhase({ loaded: { tokenized } }: PackedQuestions, paths: readonly Path[], limits: WalkLimits): number {
  const groups = groupContexts(paths, { limits }, (question) => questionName(tokenized[question]!));
  return groups.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Counts tokens, decides what is kept between calls, and compiles the model for it. */
export const packWithCache = (
  loading: ModelLoading,
  request: ScoreRequest,
  loaded: LoadedQuestions,
  options?: PackingOptions,
): Promise<PackedWithCache> =>
  (request.sharing === 'kv' ? packWithContexts : packWithPrefixes)(loading, request, loaded, options);

/** Compiles the model with a cache for contexts. Throws UserError where there is no room for it. */
async function packWithContexts(
  loading: ModelLoading,
  request: ScoreRequest,
  loaded: LoadedQuestions,
): Promise<PackedWithCache> {
  const { maxTokens, ...limits } = limitsOf(loading.checkpoint, (await loading.compile()).model);
  const packed = await inParts(packQuestions(loaded, request, { ...limits, maxTokens }, mayCutPaths(request)));
  const own = new Set(packed.plan.questions);
  const paths = pathsOf(packed.loaded.tokenized).filter(({ question }) => own.has(question));
  const longest = paths.reduce((most, each) => Math.max(most, pathLength(each)), 0);
  // One half is for contexts, the other for a call of choices.
  const least = roundUp(2 * Math.max(longest, Math.min(maxTokens, MIN_CALL)), PAGE_TOKENS);
  const { cacheTokens: asked } = request;
  if (asked !== undefined && asked < least)
    throw new UsageError(
      `--cache-tokens ${asked}: --sharing kv keeps contexts beside a call of choices, ${count(least)} tokens here`,
      `use --cache-tokens ${least}, or more, or leave it out`,
    );
  // A power of two, since each size has kernels of its own to compile.
  const opened = await compileWithRoom(loading, request, {
    wanted: asked ?? 2 ** Math.ceil(Math.log2(Math.max(2 * maxTokens, least))),
    least,
  });
  if (opened === undefined)
    throw new UserError(
      `--sharing kv: no room for the keys and values of ${count(least)} tokens beside weights and activations`,
      'use --sharing tree, a smaller --batch-tokens, more devices, or an artifact with more --cache-tokens',
    );
  const cache = cacheLimits(opened.model)!;
  const tokens = countTwoPhase(packed, paths, cache);
  return {
    ...packed,
    opened,
    longest,
    cacheTokens: cache.cacheRows,
    note:
      `sharing kv: ${count(tokens)} tokens, contexts before choices; ` +
      `keys and values: room for ${count(cache.cacheRows)} tokens, ${bytes(cacheBytesOf(opened.model))}`,
  };
}

/** The same for a model that is open already. Throws UsageError if it keeps no keys and values. */
export function withContexts(packed: PackedQuestions, model: CompiledModel): PackedQuestions {
  const cache = cacheLimits(model);
  if (cache === undefined)
    throw new UsageError(
      'score: sharing kv keeps the keys and values of contexts, and this model has no memory for them',
      "open it with some, openModel({ …, cacheTokens: 16384 }), or use sharing: 'tree'",
    );
  countTwoPhase(packed, pathsOf(packed.loaded.tokenized), cache);
  return { ...packed, cacheTokens: cache.cacheRows };
}
