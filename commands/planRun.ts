/** `run --dry-run`: what each way of computing would take, counted without loading weights. */
import type { OpenedModel } from '../driver/compile/open.js';
import { parallelismFor } from '../driver/devices/openDevices.js';
import type { Ui } from '../driver/requests.js';
import type { Dataset } from '../evaluate/dataset.js';
import type { LoadedQuestions } from '../evaluate/evaluate.js';
import { countOrdered, pathsOf } from '../evaluate/pathOrder.js';
import type { QuestionPlan } from '../evaluate/questionPlan.js';
import type { Sharing, WalkLimits } from '../evaluate/scorer.js';
import type { TokenizerThreads } from '../evaluate/tokenize.js';
import { type Path, pathLength } from '../evaluate/tree.js';
import { twoPhase } from '../evaluate/twoPhase.js';
import { planWalks } from '../evaluate/walk.js';
import { scoreOf } from '../ir/plan.js';
import { rowsIn, tokensIn } from '../ir/scoring.js';
import { FRESH_KEYS } from '../ir/stepping.js';
import { defined } from '../system/defined.js';
import { atOnce, count, counted, inParts } from '../system/text.js';
import type { ModelLoading } from './loadModel.js';
import type { PreparedQuestions } from './loadQuestions.js';
import { limitsOf, type ModelLimits } from './modelLimits.js';
import { cacheLimits, mayCutPaths, type PackedWithCache, packWithCache } from './prefixes.js';
import { openThreads, type PackedQuestions, packQuestions, tokenize } from './questionSet.js';
import type { RunResult, ScoreRequest } from './runRequest.js';

/** Questions that are planned together. */
export interface PlannedSet {
  readonly dataset: Dataset;
  /** No others follow. */
  readonly isLast: boolean;
}

/** Throws UserError where the run would be refused. `sets`: the windows of the run, or all there is. */
export async function planRun(
  request: ScoreRequest,
  { title, prefixToken }: Pick<PreparedQuestions, 'title' | 'prefixToken'>,
  sets: AsyncIterable<PlannedSet> | Iterable<PlannedSet>,
  loading: ModelLoading,
  ui: Ui,
): Promise<RunResult> {
  let planned: Planning | undefined;
  let threads: TokenizerThreads | undefined;
  try {
    for await (const { dataset, isLast } of sets) {
      // What only generates texts has nothing to plan.
      if (dataset.questions.length === 0) continue;
      if (planned === undefined) ui.phase('tokenize', title);
      threads ??= openThreads(loading, dataset.questions, !isLast);
      const tokens = await tokenize(dataset, loading, prefixToken, threads);
      planned ??= await Planning.open(loading, request, tokens, !isLast);
      await planned.add(tokens);
    }
  } finally {
    await threads?.close();
  }
  if (planned === undefined) {
    const table = `${title}: texts are generated, which a dry run does not count; no likelihood is asked for`;
    return { results: { questions: 0 }, table, resultsPath: undefined, samplesPath: undefined };
  }
  const { results } = planned;
  return {
    results,
    table: printPlan(results, planned.limits.tokens, planned.note),
    resultsPath: undefined,
    samplesPath: undefined,
  };
}

/** Counts what each way takes, of one set after another. */
class Planning {
  /** What the first set decided, for the model and for those that follow. */
  readonly note: string;
  readonly limits: WalkLimits;
  readonly #request: ScoreRequest;
  readonly #model: ModelLimits;
  readonly #cache: WalkLimits | undefined;
  readonly #keeps: boolean;
  readonly #sums = { questions: 0, choices: 0, longest: 0, alone: 0, grouped: 0, shared: 0, calls: 0 };
  #repeated: Counted | undefined = { tokens: 0, calls: 0 };
  readonly #kept: number[];

  private constructor(
    request: ScoreRequest,
    loading: ModelLoading,
    opened: OpenedModel,
    chosen: PackedWithCache,
    isFirst: boolean,
  ) {
    const { capacity } = scoreOf(opened.model.plan);
    this.#request = request;
    this.#model = limitsOf(loading.checkpoint, opened.model);
    this.#cache = cacheLimits(opened.model);
    this.#keeps = chosen.cacheTokens !== undefined;
    this.#kept = Array.from({ length: parallelismFor(opened, request).replicas }, () => 0);
    this.note = isFirst ? `windows of documents, the first: ${chosen.note}` : chosen.note;
    this.limits = {
      tokens: tokensIn(capacity),
      keys: FRESH_KEYS,
      rows: rowsIn(capacity),
      cacheRows: chosen.cacheTokens ?? chosen.longest + tokensIn(capacity),
      ...defined({ states: loading.checkpoint.model.states?.rows }),
    };
  }

  static async open(
    loading: ModelLoading,
    request: ScoreRequest,
    tokens: LoadedQuestions,
    isFirst: boolean,
  ): Promise<Planning> {
    const chosen = await packWithCache(loading, request, tokens, { isFirst });
    return new Planning(request, loading, await loading.compile(chosen.cacheTokens), chosen, isFirst);
  }

  async add(tokens: LoadedQuestions): Promise<void> {
    const packed = await inParts(packQuestions(tokens, this.#request, this.#model, mayCutPaths(this.#request)));
    const own = new Set(packed.plan.questions);
    const paths = pathsOf(packed.loaded.tokenized).filter(({ question }) => own.has(question));
    const longest = paths.reduce((most, path) => Math.max(most, pathLength(path)), 0);
    const ordered = await inParts(packed.plan.order());
    const { alone, grouped, shared } = countOrdered(ordered);
    const cacheRows = Math.max(this.limits.cacheRows, longest + this.limits.tokens);
    const kept = planWalks(ordered, { ...this.limits, cacheRows }, this.#kept.length);
    kept.tokens.forEach((count, device) => (this.#kept[device]! += count));
    const repeated = this.#repeated && repeatedOf(packed, paths, this.#cache);
    this.#repeated = repeated && {
      tokens: this.#repeated!.tokens + repeated.tokens,
      calls: this.#repeated!.calls + repeated.calls,
    };
    const sums = this.#sums;
    sums.questions += own.size;
    sums.choices += paths.length;
    sums.longest = Math.max(sums.longest, longest);
    sums.alone += alone;
    sums.grouped += grouped;
    sums.shared += shared;
    sums.calls += kept.calls;
  }

  get results(): Planned & Readonly<Record<string, unknown>> {
    const { questions, choices, longest, alone, grouped, shared, calls } = this.#sums;
    const { sharing } = this.#request;
    return {
      questions,
      choices,
      longest,
      tokensWithoutSharing: alone,
      tokensGrouped: grouped,
      tokensRepeated: this.#repeated?.tokens ?? null,
      microBatches: this.#repeated?.calls ?? null,
      tokensKept: this.#kept.reduce((sum, tokens) => sum + tokens, 0),
      tokensKeptByDevice: this.#kept,
      calls,
      tokensShared: shared,
      sharing,
      prefixes: sharing === 'kv' || !this.#keeps ? 'repeat' : 'keep',
    };
  }
}

interface Counted {
  readonly tokens: number;
  readonly calls: number;
}

/** Without prefixes that are kept; undefined where that cannot be, because a path fits no micro-batch. */
function repeatedOf(
  { sharing, plan }: PackedQuestions,
  paths: readonly Path[],
  cache: WalkLimits | undefined,
): Counted | undefined {
  if (sharing === 'kv') return countTwoPhase(paths, cache!);
  return plan.oversized.length > 0 ? undefined : countTrees(plan);
}

const countTrees = ({ trees, packs }: QuestionPlan): Counted => ({
  tokens: trees.reduce((sum, { tokens }) => sum + tokens, 0),
  calls: atOnce(packs()).length,
});

function countTwoPhase(paths: readonly Path[], limits: WalkLimits): Counted {
  let [tokens, calls] = [0, 0];
  for (const { batch } of twoPhase(paths, { limits })) {
    tokens += batch.tokens.length;
    calls++;
  }
  return { tokens, calls };
}

interface Planned {
  readonly questions: number;
  readonly choices: number;
  readonly longest: number;
  readonly tokensWithoutSharing: number;
  readonly tokensGrouped: number;
  readonly tokensRepeated: number | null;
  readonly microBatches: number | null;
  readonly tokensKept: number;
  readonly tokensKeptByDevice: readonly number[];
  readonly calls: number;
  readonly tokensShared: number;
  readonly sharing: Sharing;
}

function printPlan(plan: Planned, callTokens: number, note: string): string {
  const { tokensShared, tokensKeptByDevice: devices } = plan;
  const most = count(callTokens);
  const [batch, batches] = plan.sharing === 'kv' ? ['call', 'calls'] : ['micro-batch', 'micro-batches'];
  const rows: readonly (readonly [what: string, tokens: number | null, more: string])[] = [
    ['a sequence for each choice', plan.tokensWithoutSharing, ''],
    ['a sequence for choices of equal inputs', plan.tokensGrouped, ''],
    [
      plan.sharing === 'tree' ? '--prefixes repeat' : `--sharing ${plan.sharing}`,
      plan.tokensRepeated,
      plan.microBatches === null
        ? `cannot be: a question is longer than ${most} tokens`
        : `${counted(plan.microBatches, batch!, batches)} of up to ${most} tokens`,
    ],
    [
      '--prefixes keep',
      plan.tokensKept,
      `${counted(plan.calls, 'call')} of up to ${most} tokens` +
        (devices.length > 1 ? `; by device ${devices.map(count).join(', ')}` : ''),
    ],
    ['every common beginning once', tokensShared, ''],
  ];
  const width = Math.max(...rows.map(([what]) => what.length));
  const printed = (tokens: number | null): string => (tokens === null ? '–' : count(tokens));
  const tokensWidth = Math.max(...rows.map(([, tokens]) => printed(tokens).length));
  return [
    `${counted(plan.questions, 'question')}, ${counted(plan.choices, 'choice')}; ` +
      `the longest has ${counted(plan.longest, 'token')}`,
    ...rows.map(([what, tokens, more]) => {
      const times = tokens === null ? '' : `${(tokens / tokensShared).toFixed(3)}×`;
      return `${what.padEnd(width)}  ${printed(tokens).padStart(tokensWidth)} ${times.padStart(9)}  ${more}`.trimEnd();
    }),
    note,
  ].join('\n');
}
