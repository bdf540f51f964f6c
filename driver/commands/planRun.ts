/** `run --dry-run`: what each way of computing would take, counted without loading weights. */
import {
  countTokens,
  pathsOf,
  planWalks,
  twoPhase,
  type Path,
  type QuestionPlan,
  type Sharing,
} from '../../eval/index.js';
import type { WalkLimits } from '../../eval/walk.js';
import { scoreOf } from '../../ir/plan.js';
import { rowsIn, tokensIn } from '../../ir/scoring.js';
import { MOST_KEYS } from '../../ir/stepping.js';
import { count, counted } from '../../system/format.js';
import { parallelismFor } from '../devices/openDevices.js';
import type { RunResult, ScoreRequest, Ui } from '../requests.js';
import type { ModelLoading } from './loadModel.js';
import { cacheLimits, packWithCache } from './cachedContexts.js';
import type { PreparedQuestions } from './prepareRun.js';
import { tokenise, type PackedQuestions } from './questionSet.js';

/** Throws UserError where the run would be refused. */
export async function planRun(
  request: ScoreRequest,
  { dataset, source, prefixToken }: PreparedQuestions,
  loading: ModelLoading,
  ui: Ui,
): Promise<RunResult> {
  ui.phase('tokenise', source);
  const chosen = await packWithCache(loading, request, await tokenise(dataset, loading, prefixToken));
  ui.phase('count');
  const { plan, loaded, longest, sharing } = chosen;
  const own = new Set(plan.questions);
  const paths = pathsOf(loaded.tokenised).filter(({ question }) => own.has(question));
  const counts = countTokens(paths);
  const opened = await loading.compile(chosen.cacheTokens);
  const { capacity } = scoreOf(opened.model.plan);
  const limits: WalkLimits = {
    tokens: tokensIn(capacity),
    keys: MOST_KEYS,
    rows: rowsIn(capacity),
    cacheRows: chosen.cacheTokens ?? longest + tokensIn(capacity),
  };
  const kept = planWalks(paths, limits, parallelismFor(opened, request).replicas);
  const repeated = repeatedOf(chosen, paths, cacheLimits(opened.model));
  const results = {
    questions: own.size,
    choices: paths.length,
    longest,
    tokensWithoutSharing: counts.alone,
    tokensGrouped: counts.grouped,
    tokensRepeated: repeated?.tokens ?? null,
    microBatches: repeated?.calls ?? null,
    tokensKept: kept.tokens.reduce((sum, tokens) => sum + tokens, 0),
    tokensKeptByDevice: kept.tokens,
    calls: kept.calls,
    tokensShared: counts.shared,
    sharing,
    prefixes: sharing === 'kv' || chosen.cacheTokens === undefined ? 'repeat' : 'keep',
  };
  return {
    results,
    table: printPlan(results, limits.tokens, chosen.note),
    resultsPath: undefined,
    samplesPath: undefined,
  };
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
  calls: packs.length,
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
  const rows: readonly (readonly [what: string, tokens: number | null, more: string])[] = [
    ['a sequence for each choice', plan.tokensWithoutSharing, ''],
    ['a sequence for choices of equal inputs', plan.tokensGrouped, ''],
    [
      plan.sharing === 'tree' ? '--prefixes repeat' : `--sharing ${plan.sharing}`,
      plan.tokensRepeated,
      plan.microBatches === null
        ? `cannot be: a question is longer than ${most} tokens`
        : `${count(plan.microBatches)} ${plan.sharing === 'kv' ? 'calls' : 'micro-batches'} of up to ${most} tokens`,
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
    `${counted(plan.questions, 'question')}, ${counted(plan.choices, 'choice')}, at most ${count(plan.longest)} tokens`,
    ...rows.map(([what, tokens, more]) => {
      const times = tokens === null ? '' : `${(tokens / tokensShared).toFixed(3)}×`;
      return `${what.padEnd(width)}  ${printed(tokens).padStart(tokensWidth)} ${times.padStart(9)}  ${more}`.trimEnd();
    }),
    note,
  ].join('\n');
}
