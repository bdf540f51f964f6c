/**
 * Scores questions over kept keys and values: by walks over all their paths, or in two phases. A walk goes through
 * subtrees, and its cache holds the path on which it stands, so common beginnings within a subtree are computed once.
 * In two phases, the cache holds the contexts of a group of questions.
 */
import type { Parts } from '../system/parts.js';
import type { Computation } from './computation.js';
import { questionName } from './naming.js';
import { shuffled } from './pack.js';
import { type CallMaker, laneComputation } from './pathLanes.js';
import { keepPaths } from './pathOrder.js';
import type { QuestionPlan } from './questionPlan.js';
import type { PathScorer } from './scorer.js';
import { cutSubtrees } from './subtrees.js';
import { pathsOf } from './tokenCounts.js';
import type { TokenizedQuestion } from './tokenize.js';
import type { Path } from './tree.js';
import { groupCalls, groupContexts } from './twoPhase.js';
import { Walk, type WalkLimits } from './walk.js';

export interface PathOptions {
  readonly scorer: PathScorer;
  readonly tokenized: readonly TokenizedQuestion[];
  readonly plan: Pick<QuestionPlan, 'order'>;
}

/** Devices finish together if there are a few groups for each. */
const GROUPS_PER_LANE = 4;

/** By walks. `isLeft`: which questions are to be scored. */
export function* walkComputation({ scorer, plan }: PathOptions, isLeft: readonly boolean[]): Parts<Computation> {
  const ordered = keepPaths(yield* plan.order(), ({ question }) => isLeft[question] === true);
  return laneComputation(scorer, {
    shares: cutSubtrees(ordered, scorer.lanes),
    begin: () => walkCalls(scorer.limits),
    otherWay: '--prefixes repeat',
  });
}

function walkCalls(limits: WalkLimits): CallMaker {
  const walk = new Walk(limits);
  return {
    *take(paths) {
      for (const path of paths) yield* walk.take(path);
    },
    end: () => walk.end(),
  };
}

/** In two phases. Throws UserError where groupContexts does. */
export function twoPhaseComputation(
  { scorer, tokenized }: Pick<PathOptions, 'scorer' | 'tokenized'>,
  isLeft: readonly boolean[],
): Computation {
  const { limits, lanes } = scorer;
  const paths: readonly Path[] = pathsOf(tokenized).filter(({ question }) => isLeft[question]);
  const contextTokens = paths.reduce((sum, path) => sum + (path.choice === 0 ? path.context.length : 0), 0);
  const groupTokens = lanes === 1 ? Infinity : Math.ceil(contextTokens / (lanes * GROUPS_PER_LANE));
  return laneComputation(scorer, {
    // Shuffled, so that running accuracy describes all questions.
    shares: shuffled(groupContexts(paths, { limits, groupTokens }, (question) => questionName(tokenized[question]!))),
    begin: () => ({ take: (own) => groupCalls([...own], { limits }), end: () => undefined }),
    otherWay: '--sharing tree',
  });
}
