/** The techniques that the benchmark of techniques compares, each as the calls that score a set of questions. */
import { scoredTokens } from '../eval/answers.js';
import { layBatch, packTrees, planTrees, type Path, type ScoredRows, type TreeSharing } from '../eval/index.js';
import { orderPaths } from '../eval/pathOrder.js';
import { fits, type Capacity } from '../eval/packing.js';
import type { PathLane, PathScorer, Scorer } from '../eval/scorer.js';
import { pathsOf } from '../eval/tokenCounts.js';
import type { TokenisedQuestion } from '../eval/tokenise.js';
import { measureTree, type ScoredToken } from '../eval/tree.js';
import { walk, type WalkedBatch } from '../eval/walk.js';
import { twoPhase, type TwoPhaseOptions } from '../eval/twoPhase.js';

export interface Engine {
  /** Trees, in which keys and values last for a call. */
  readonly scorer: Scorer;
  /** Paths over cached keys and values. */
  readonly lane: PathLane;
  readonly limits: PathScorer['limits'];
}

/** A call that waits to be made. */
export interface Call {
  readonly tokens: number;
  readonly scored: readonly ScoredToken[];
  score(): Promise<ScoredRows>;
}

export interface Technique {
  readonly name: string;
  calls(): Iterable<Call>;
}

export interface TechniqueOptions {
  /** Sequences of a fixed batch. */
  readonly sequences: number;
  /** Tokens of a call of contexts, where they are computed in small calls. */
  readonly prefillTokens: number;
}

/** What other systems do that is no choice here, and why. */
export const NOT_MEASURED: readonly (readonly [name: string, reason: string])[] = [
  ['no activity label', 'a shorter prompt is another question, with other answers'],
  ['last layer for scored rows only', 'every row has it: the pass pruneDeadRows is part of compiling'],
  ['pages not allocated before', 'memory is part of the plan: nothing is allocated between calls'],
  ['padding', 'there is none: a batch is as many tokens as its sequences have'],
];

/** The first one is what the others are compared with. */
export function techniquesOf(
  engine: Engine,
  questions: readonly TokenisedQuestion[],
  { sequences, prefillTokens }: TechniqueOptions,
): readonly Technique[] {
  const paths = pathsOf(questions);
  const { limits } = engine;
  const inPhases = (name: string, options: Omit<TwoPhaseOptions, 'limits'>): Technique => ({
    name,
    calls: () => stepCalls(engine, twoPhase(paths, { limits, ...options })),
  });
  return [
    { name: 'one forward over trees', calls: () => packedCalls(engine, questions, 'tree') },
    { name: `sequence per choice, ${sequences} a call`, calls: () => fixedCalls(engine, paths, sequences) },
    { name: 'sequence per choice, calls filled', calls: () => packedCalls(engine, questions, 'none') },
    inPhases(`contexts, then choices, ${sequences} a call`, { sequences }),
    inPhases('contexts, then choices, calls filled', {}),
    inPhases(`contexts in calls of ${prefillTokens} tokens, then choices`, { prefillTokens }),
    { name: 'one forward over shared contexts', calls: () => packedCalls(engine, questions, 'context') },
    { name: 'trees whose beginnings are kept', calls: () => stepCalls(engine, walk(orderPaths(paths).paths, limits)) },
  ];
}

/** Micro-batches as `run` packs them. */
function* packedCalls(engine: Engine, questions: readonly TokenisedQuestion[], sharing: TreeSharing): Generator<Call> {
  const { trees } = planTrees(questions, sharing, engine.scorer);
  for (const { items } of packTrees(trees, engine.scorer))
    yield scoreCall(
      engine.scorer,
      items.map(({ paths }) => paths),
      sharing,
    );
}

/** Choices one after another, each a sequence of its own, as many as a batch has or as fit. */
function* fixedCalls(engine: Engine, paths: readonly Path[], sequences: number): Generator<Call> {
  const capacity: Capacity = engine.scorer;
  for (let from = 0; from < paths.length;) {
    let end = from + 1;
    while (
      end < Math.min(from + sequences, paths.length) &&
      fits(measureTree(paths.slice(from, end + 1), 'none'), capacity)
    )
      end++;
    yield scoreCall(
      engine.scorer,
      paths.slice(from, end).map((path) => [path]),
      'none',
    );
    from = end;
  }
}

function scoreCall(scorer: Scorer, groups: readonly (readonly Path[])[], sharing: TreeSharing): Call {
  const { batch, answers } = layBatch(groups, sharing);
  return { tokens: batch.tokens.length, scored: scoredTokens(answers), score: () => scorer.score(batch) };
}

function* stepCalls({ lane }: Engine, walked: Iterable<WalkedBatch>): Generator<Call> {
  for (const { batch, scored } of walked) yield { tokens: batch.tokens.length, scored, score: () => lane.score(batch) };
}
