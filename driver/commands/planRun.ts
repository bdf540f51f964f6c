/** `run --dry-run`: what each way of computing would take, counted without loading weights. */
import { countTokens, pathsOf, planWalks } from '../../eval/index.js';
import type { WalkLimits } from '../../eval/walk.js';
import { scoreOf } from '../../ir/plan.js';
import { rowsIn, tokensIn } from '../../ir/scoring.js';
import { MOST_KEYS } from '../../ir/stepping.js';
import { count, counted } from '../../system/format.js';
import { parallelismFor } from '../devices/openDevices.js';
import type { RunRequest, RunResult, Ui } from '../requests.js';
import type { ModelLoading } from './loadModel.js';
import type { PreparedRun } from './prepareRun.js';
import { packWithPrefixes } from './prefixes.js';
import { tokenise } from './questionSet.js';

/** Throws UserError where the run would be refused. */
export async function planRun(
  request: RunRequest,
  { dataset }: PreparedRun,
  loading: ModelLoading,
  ui: Ui,
): Promise<RunResult> {
  ui.phase('tokenise', request.data);
  const chosen = await packWithPrefixes(loading, request, await tokenise(dataset, loading));
  ui.phase('count');
  const { plan, loaded, longest } = chosen;
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
  const results = {
    questions: own.size,
    choices: paths.length,
    longest,
    tokensWithoutSharing: counts.alone,
    tokensGrouped: counts.grouped,
    tokensRepeated: plan.trees.reduce((sum, { tokens }) => sum + tokens, 0),
    microBatches: plan.packs.length,
    tokensKept: kept.tokens.reduce((sum, tokens) => sum + tokens, 0),
    tokensKeptByDevice: kept.tokens,
    calls: kept.calls,
    tokensShared: counts.shared,
    prefixes: chosen.cacheTokens === undefined ? 'repeat' : 'keep',
  };
  return {
    results,
    table: printPlan(results, limits.tokens, chosen.reason),
    resultsPath: undefined,
    samplesPath: undefined,
  };
}

interface Planned {
  readonly questions: number;
  readonly choices: number;
  readonly longest: number;
  readonly tokensWithoutSharing: number;
  readonly tokensGrouped: number;
  readonly tokensRepeated: number;
  readonly microBatches: number;
  readonly tokensKept: number;
  readonly tokensKeptByDevice: readonly number[];
  readonly calls: number;
  readonly tokensShared: number;
}

function printPlan(plan: Planned, callTokens: number, reason: string): string {
  const { tokensShared, tokensKeptByDevice: devices } = plan;
  const most = count(callTokens);
  const rows: readonly (readonly [what: string, tokens: number, more: string])[] = [
    ['a sequence for each choice', plan.tokensWithoutSharing, ''],
    ['a sequence for choices of equal inputs', plan.tokensGrouped, ''],
    ['--prefixes repeat', plan.tokensRepeated, `${count(plan.microBatches)} micro-batches of up to ${most} tokens`],
    [
      '--prefixes keep',
      plan.tokensKept,
      `${counted(plan.calls, 'call')} of up to ${most} tokens` +
        (devices.length > 1 ? `; by device ${devices.map(count).join(', ')}` : ''),
    ],
    ['every common beginning once', tokensShared, ''],
  ];
  const width = Math.max(...rows.map(([what]) => what.length));
  const tokensWidth = Math.max(...rows.map(([, tokens]) => count(tokens).length));
  return [
    `${counted(plan.questions, 'question')}, ${counted(plan.choices, 'choice')}, at most ${count(plan.longest)} tokens`,
    ...rows.map(([what, tokens, more]) => {
      const times = (tokens / tokensShared).toFixed(3).padStart(8);
      return `${what.padEnd(width)}  ${count(tokens).padStart(tokensWidth)} ${times}×  ${more}`.trimEnd();
    }),
    `prefixes: ${reason}`,
  ].join('\n');
}
