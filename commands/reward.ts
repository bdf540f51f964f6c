/** `reward`: reads and tokenizes solutions, then compiles and loads a verifier, then scores them. */
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { Phases } from '../driver/phases.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { type LoadRequest, stepTo, type Ui } from '../driver/requests.js';
import { FirstAnswer } from '../driver/startUp.js';
import type { Engine } from '../engine/engine.js';
import type { GeneratorCounts } from '../engine/modelStats.js';
import { STEP } from '../ir/function.js';
import { stepExtents } from '../ir/stepping.js';
import type { Score } from '../models/heads/head.js';
import { requireModelAt } from '../models/model/refusals.js';
import { createTokenizer } from '../models/tokenizer/tokenizer.js';
import type { Dict } from '../python/value.js';
import { defined } from '../system/defined.js';
import { compileWithCache } from './cacheSize.js';
import { engineOf } from './engineModel.js';
import { beginLoading, type LoadedModel } from './loadModel.js';
import { demandOf, type PromptWriter } from './promptTokens.js';
import { readRewardLines, type RewardId } from './rewardInput.js';
import { type SolutionWriter, tokenizeSolutions, type TokenizedSolution } from './rewardTexts.js';
import { openTemplate } from './templates.js';
import { describe, eachOf } from './textGenerator.js';
import { chooseVerifier, openVerifier, padTokenOf, type ScoreOptions, type Verifier } from './verifier.js';

export interface RewardRequest extends LoadRequest {
  /** JSON lines; `-`: the standard input. */
  readonly input: string;
  /** What a language model was trained as. Default: what the name of its folder says. */
  readonly verifier?: string;
  /** Variables of the chat template, for conversations that do not set them. */
  readonly templateVariables?: Dict;
}

interface OfSolution {
  readonly id: RewardId;
  /** `solutions.jsonl:17` */
  readonly where: string;
  readonly tokens: readonly number[];
  /** Positions of the tokens that the scores stand at, from 0. */
  readonly rows: readonly number[];
}

export interface ScoredSolution extends OfSolution {
  readonly scores: readonly Score[];
  /** What the verifier gives beside scores, by its name. */
  readonly beside?: { readonly name: string; readonly values: readonly number[] };
}

/** A value was not finite; others go on. */
export interface FailedSolution extends OfSolution {
  readonly error: string;
}

export type RewardResult = ScoredSolution | FailedSolution;

export interface RewardSummary {
  /** What a score is. */
  readonly is: string;
  readonly results: readonly RewardResult[];
  readonly counts: GeneratorCounts;
  /** From the first request to the last score. */
  readonly seconds: number;
}

/** How solutions are written for a verifier. */
export const solutionWriter = (
  { checkpoint, tokenizer: { bos } }: Pick<LoadedModel, 'checkpoint' | 'tokenizer'>,
  { layout, verdicts }: Verifier,
  prompts: PromptWriter,
): SolutionWriter => ({
  ...prompts,
  layout,
  verdicts,
  bos: bos?.id ?? checkpoint.config.bosTokenId,
  pad: padTokenOf(checkpoint),
});

/** Solutions that the engine has at a time; more than run together, so that it always finds one that fits. */
const MAX_AT_ONCE = 512;

/** `onResult`: told of each solution as soon as it is scored. Once its signal is aborted, what is not is left out. */
export async function reward(
  asked: WithTargetChoice<RewardRequest>,
  ui: Ui,
  onResult: (result: RewardResult, index: number) => void = () => undefined,
): Promise<RewardSummary> {
  requireModelAt(asked.model);
  const request = await settleTarget(asked, ui);
  const { signal } = request;
  const phases = new Phases();
  phases.begin('questions');
  const lines = await readRewardLines(request.input, signal);
  phases.begin('open');
  const loading = beginLoading(request, ui, phases);
  const { checkpoint } = loading;
  const { config } = checkpoint;
  const { language, note } = chooseVerifier(checkpoint, request.verifier);
  if (note !== undefined) ui.note(note);
  phases.end();
  const { verifier, solutions } = await phases.during('tokenize', async () => {
    const tokenizer = createTokenizer(loading.tokenizer.spec);
    const verifier = await openVerifier(checkpoint, language, tokenizer);
    const template = openTemplate(checkpoint.path);
    const prompts = { tokenizer, template, variables: request.templateVariables };
    const writer = solutionWriter(loading, verifier, prompts);
    const solutions = await tokenizeSolutions(lines, writer, config).finally(() => template?.close());
    return { verifier, solutions };
  });
  const demand = demandOf(solutions, 0, config);
  await compileWithCache(loading, request, demand, ui);
  const extents = stepExtents({ tokens: demand.prompt, rows: solutions.length, keys: demand.prompt });
  const loaded = await loading.finish({ first: [{ function: STEP, extents, run: demand.prompt }] });
  try {
    ui.phase('reward', `${solutions.length} solutions`);
    const engine = engineOf(loaded);
    const first = new FirstAnswer(phases, ui);
    first.begin('first score');
    const started = performance.now();
    const total = solutions.reduce((sum, { tokens }) => sum + tokens.length, 0);
    let done = 0;
    const results = await scoreSolutions(engine, verifier, solutions, { signal }, (result, index) => {
      if (done === 0) first.came(loaded.executor);
      done += result.tokens.length;
      stepTo(ui, { done, total, unit: 'tokens' });
      onResult(result, index);
    });
    return {
      is: verifier.is,
      results,
      counts: engine.countsOf(),
      seconds: (performance.now() - started) / 1000,
    };
  } finally {
    await loaded.close();
  }
}

/**
 * Scores of all solutions, in their order. Those that have not begun once the signal is aborted are left out. What
 * `onResult` returns is waited for before more solutions begin.
 */
export async function scoreSolutions(
  engine: Engine,
  verifier: Verifier,
  solutions: readonly TokenizedSolution[],
  options: ScoreOptions,
  onResult: (result: RewardResult, index: number) => Promise<void> | undefined | void,
): Promise<readonly RewardResult[]> {
  const results = await eachOf(solutions, MAX_AT_ONCE, async (solution, index): Promise<RewardResult | undefined> => {
    if (options.signal?.aborted === true) return undefined;
    const outcome = await scoreOne(engine, verifier, solution, options).catch((error: unknown) => ({
      error: describe(error instanceof Error ? error : new Error(String(error))),
    }));
    if (outcome === undefined) return undefined;
    const result = { ...solution, ...outcome };
    await onResult(result, index);
    return result;
  });
  return results.flatMap((result) => result ?? []);
}

/** Undefined where the signal was aborted before all rows were computed. */
async function scoreOne(
  engine: Engine,
  { scores, besideName: name }: Verifier,
  { tokens, rows }: TokenizedSolution,
  options: ScoreOptions,
): Promise<Pick<ScoredSolution, 'scores' | 'beside'> | undefined> {
  const found = await scores(engine, tokens, rows, options);
  if (found.length < rows.length) return undefined;
  const values = found.map(({ beside = NaN }) => beside);
  return {
    scores: found.map(({ score }) => score),
    ...defined({ beside: name === undefined ? undefined : { name, values } }),
  };
}
