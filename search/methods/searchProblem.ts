/** A search of one problem, by the method that is asked for. */
import { setMaxListeners } from 'node:events';
import type { SearchOptions } from '../options.js';
import type { Problem } from '../path.js';
import { isSampled, planSearch, type SearchPlan } from '../plan.js';
import type { PathJudge, StepWriter } from '../ports.js';
import type { ProblemResult } from '../result.js';
import { beamRule, salBeamRule } from './beam.js';
import { Drawing } from './drawing.js';
import type { Drawn, TreeRule } from './drawn.js';
import { dvtsRule } from './dvts.js';
import { rebaseRule } from './rebase.js';
import { searchSamples } from './sampled.js';
import { searchTree } from './treeSearch.js';

export interface Searching {
  readonly writer: StepWriter;
  /** Absent: of `majority` alone. */
  readonly judge?: PathJudge | undefined;
  readonly options: SearchOptions;
  /** Ends the search; it then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Of `speculate: 'auto'`: whether devices have time to spare for steps that may not be needed. Default: no. */
  readonly hasSpareTime?: (() => boolean) | undefined;
  /** Called after each iteration. It changes nothing. */
  readonly onIteration?: ((done: IterationDone) => void) | undefined;
}

export interface IterationDone {
  /** Steps and tokens of this iteration. */
  readonly steps: number;
  readonly tokens: number;
  /** Paths that completed in it. */
  readonly completed: number;
}

/**
 * The result depends on the options, the problem's text and the models alone. Rejects with UsageError for options that
 * do not fit; with the signal's reason; with what a model rejects with, but for PathFailed.
 */
export async function searchProblem(problem: Problem, searching: Searching): Promise<ProblemResult> {
  const { writer, judge, options, signal, hasSpareTime, onIteration } = searching;
  const plan = planSearch(options, judge?.kind);
  signal?.throwIfAborted();
  const drawing = new Drawing(problem, plan, { writer, judge: plan.method === 'majority' ? undefined : judge });
  const stop = (): void => drawing.stop(signal?.reason);
  if (signal !== undefined) {
    // One signal may end any number of searches.
    setMaxListeners(0, signal);
    signal.addEventListener('abort', stop, { once: true });
  }
  const onRound = (drawn: readonly Drawn[]): void => onIteration?.(iterationDone(drawn));
  const speculates = (): boolean => plan.speculate === 'on' || (plan.speculate === 'auto' && hasSpareTime?.() === true);
  try {
    if (isSampled(plan.method)) return await searchSamples(drawing, plan, onRound);
    return await searchTree(drawing, plan, ruleOf(plan), { speculates, onRound });
  } finally {
    signal?.removeEventListener('abort', stop);
    drawing.stop(new Error('the search is over'));
    drawing.keepOnly([]);
  }
}

export type SearchProblem = typeof searchProblem;

function ruleOf(plan: SearchPlan): TreeRule {
  switch (plan.method) {
    case 'beam':
      return plan.isSal ? salBeamRule(plan) : beamRule(plan);
    case 'dvts':
      return dvtsRule(plan);
    case 'rebase':
      return rebaseRule(plan);
    case 'best-of-n':
    case 'weighted':
    case 'majority':
      throw new Error(`${plan.method} does not search in iterations`);
    default:
      return plan.method satisfies never;
  }
}

function iterationDone(drawn: readonly Drawn[]): IterationDone {
  const steps = drawn.flatMap(({ path, isStepDrawn }) => (isStepDrawn ? [path.step!] : []));
  return {
    steps: steps.length,
    tokens: steps.reduce((sum, { tokens }) => sum + tokens.length, 0),
    completed: drawn.filter(({ state }) => state === 'completed').length,
  };
}
