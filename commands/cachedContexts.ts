/** `--sharing kv`: memory for the keys and values of contexts, on which choices are computed in later calls. */
import { cacheTokensOf } from '../driver/compile/functions.js';
import type { CompiledModel } from '../driver/targets/target.js';
import { UsageError, UserError } from '../errors.js';
import { groupContexts, type LoadedQuestions, type Path, pathLength, pathsOf } from '../evaluate/index.js';
import type { WalkLimits } from '../evaluate/scorer.js';
import { questionName } from '../evaluate/tokenize.js';
import { PAGE_TOKENS } from '../generate/pages.js';
import { STEP } from '../ir/function.js';
import { stepSize } from '../ir/stepping.js';
import { roundUp } from '../ir/types.js';
import { bytes, count, inParts } from '../system/text.js';
import { cacheBytesOf, compileWithRoom } from './cacheSize.js';
import type { ModelLoading } from './loadModel.js';
import { limitsOf } from './modelLimits.js';
import { mayCutPaths, MIN_CALL, type PackedWithCache, type PackingOptions, packWithPrefixes } from './prefixes.js';
import { type PackedQuestions, packQuestions } from './questionSet.js';
import type { ScoreRequest } from './runRequest.js';

/** The largest call of a model that keeps keys and values, and its cache; undefined if it keeps none. */
export function cacheLimits(model: CompiledModel): WalkLimits | undefined {
  const cacheRows = cacheTokensOf(model);
  const step = model.plan.functions.find((each) => each.interface.name === STEP);
  return cacheRows === undefined || step === undefined ? undefined : { ...stepSize(step.capacity.extents), cacheRows };
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
