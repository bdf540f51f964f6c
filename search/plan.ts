/** Options with their defaults, once it is known that they fit together and fit the verifier. */
import { UsageError } from '../errors.js';
import type { Aggregate, Method, SearchOptions } from './options.js';
import type { PathJudge } from './ports.js';

export interface SearchPlan {
  readonly method: Method;
  readonly n: number;
  readonly width: number;
  readonly iterations: number;
  readonly temperature: number;
  readonly seed: number;
  readonly maxStepTokens: number;
  readonly aggregate: Aggregate;
  readonly every: number;
  readonly lookahead: number;
  readonly filterDuplicates: boolean;
  readonly sortCompleted: boolean;
  readonly rebaseTemperature: number;
  readonly earlyStop: boolean;
  /** To the letter of search-and-learn. */
  readonly isSal: boolean;
  readonly speculate: 'auto' | 'on' | 'off';
}

/** Methods that draw a text at once. The others choose among its beginnings. */
export const isSampled = (method: Method): boolean =>
  method === 'best-of-n' || method === 'weighted' || method === 'majority';

const DEFAULT_MAX_STEP_TOKENS = 2048;

/** Most tokens of a step, or of a text that is drawn at once. search-and-learn's DVTS does not ask. */
export const maxStepTokensOf = ({
  method,
  compat,
  maxStepTokens = DEFAULT_MAX_STEP_TOKENS,
}: Partial<Pick<SearchOptions, 'method' | 'compat' | 'maxStepTokens'>>): number =>
  compat === 'sal' && method === 'dvts' ? DEFAULT_MAX_STEP_TOKENS : maxStepTokens;

/**
 * @param judge the verifier's kind; undefined: there is none
 * @throws UsageError for options that exclude each other or ask of a verifier what it cannot say
 */
export function planSearch(options: SearchOptions, judge: PathJudge['kind'] | undefined): SearchPlan {
  const plan: SearchPlan = {
    method: options.method,
    n: options.n ?? 16,
    width: options.width ?? 4,
    iterations: options.iterations ?? 40,
    temperature: options.temperature ?? 0.8,
    seed: options.seed ?? 0,
    maxStepTokens: maxStepTokensOf(options),
    aggregate: options.aggregate ?? 'last',
    every: options.every ?? 1,
    lookahead: options.lookahead ?? 0,
    filterDuplicates: options.filterDuplicates ?? false,
    sortCompleted: options.sortCompleted ?? false,
    rebaseTemperature: options.rebaseTemperature ?? 0.2,
    earlyStop: options.earlyStop ?? false,
    isSal: options.compat === 'sal',
    speculate: options.speculate ?? 'auto',
  };
  refuseMisfits(options, plan);
  refuseJudge(plan, judge);
  return plan;
}

function refuseMisfits(options: SearchOptions, plan: SearchPlan): void {
  const { method, n, width, every, lookahead, filterDuplicates, sortCompleted, earlyStop, isSal } = plan;
  if (options.stepStop !== undefined && options.stepTokens !== undefined)
    throw new UsageError('A step ends at a text or has a fixed number of tokens, not both.', 'Leave one of them out.');
  if (method === 'dvts' && n % width !== 0)
    throw new UsageError(
      `dvts divides n into subtrees of width paths, and ${n} is not a multiple of ${width}.`,
      `Ask for n ${Math.ceil(n / width) * width}.`,
    );
  if (isSampled(method) && (every > 1 || lookahead > 0))
    throw new UsageError(
      `${method} draws whole texts: no steps to score in between or to look beyond.`,
      'Leave every and lookahead out, or choose beam, dvts or rebase.',
    );
  if (!isSampled(method) && earlyStop)
    throw new UsageError(
      `${method} has no vote that could be settled early.`,
      'Early stop is of best-of-n, weighted and majority.',
    );
  if (method !== 'beam' && method !== 'rebase' && (filterDuplicates || sortCompleted))
    throw new UsageError(
      `${method} has no list of paths in which duplicates are filtered or completed ones sorted.`,
      'Filtering and sorting are of beam and rebase.',
    );
  if (isSal && (method === 'rebase' || every > 1 || earlyStop))
    throw new UsageError(
      'search-and-learn has no rebase, scores every step and draws all samples.',
      'Leave compat out, or ask for best-of-n, beam or dvts without these options.',
    );
}

function refuseJudge({ method, earlyStop }: SearchPlan, judge: PathJudge['kind'] | undefined): void {
  if (judge === undefined && method !== 'majority')
    throw new UsageError(`${method} needs a verifier.`, 'Name one, or use the method majority.');
  if (judge !== 'outcome') return;
  if (!isSampled(method))
    throw new UsageError(
      `The verifier judges whole answers and cannot guide ${method}.`,
      'Use best-of-n or weighted, or a process reward model.',
    );
  if (earlyStop && method !== 'majority')
    throw new UsageError(
      'Scores of this verifier have no bound, so that no vote is settled early.',
      'Leave early stop out, or use a process reward model.',
    );
}
