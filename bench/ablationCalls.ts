/** Calls of the benchmark of techniques: over trees, over cached keys and values, and with memory of their own. */
import { scoredTokens } from '../evaluate/answers.js';
import {
  groupCalls,
  groupContexts,
  layBatch,
  packTrees,
  type Path,
  planTrees,
  type ScoredRows,
  type TokenizedQuestion,
  type TreeSharing,
} from '../evaluate/index.js';
import { fits } from '../evaluate/packing.js';
import type { PathBatch, PathLane, PathScorer, Scorer, WalkedBatch } from '../evaluate/scorer.js';
import { measureTree, type ScoredToken } from '../evaluate/tree.js';

/** A launch of a kernel and how long it took. */
export interface TimedLaunch {
  /** Model path of the kernel, such as `layers.3.attention.qkv`. */
  readonly path: string;
  readonly nanoseconds: number;
}

export interface Engine {
  /** Trees, in which keys and values last for a call. */
  readonly scorer: Scorer;
  /** Paths over cached keys and values. */
  readonly lane: PathLane;
  readonly limits: PathScorer['limits'];
  /** Makes a call of the lane and times each launch. */
  profile(batch: PathBatch): Promise<readonly TimedLaunch[]>;
  /** Memory on the device for the keys and values of so many tokens, ready to be written. */
  allocate(tokens: number): { release(): void };
}

/** A call that waits to be made. */
export interface Call {
  readonly tokens: number;
  readonly scored: readonly ScoredToken[];
  score(): Promise<ScoredRows>;
  /** Makes the call and times each launch. */
  profile?(): Promise<readonly TimedLaunch[]>;
}

/** Micro-batches as `run` packs them. */
export function* packedCalls(
  { scorer }: Engine,
  questions: readonly TokenizedQuestion[],
  sharing: TreeSharing,
): Generator<Call> {
  const { trees } = planTrees(questions, sharing, scorer);
  for (const { items } of packTrees(trees, scorer))
    yield scoreCall(
      scorer,
      items.map(({ paths }) => paths),
      sharing,
    );
}

/** Choices one after another, each a sequence of its own, as many as a batch has or as fit. */
export function* fixedCalls({ scorer }: Engine, paths: readonly Path[], sequences: number): Generator<Call> {
  for (let from = 0; from < paths.length;) {
    let end = from + 1;
    while (
      end < Math.min(from + sequences, paths.length) &&
      fits(measureTree(paths.slice(from, end + 1), 'none'), scorer)
    )
      end++;
    yield scoreCall(
      scorer,
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

const stepCall = ({ lane, profile }: Engine, { batch, scored }: WalkedBatch): Call => ({
  tokens: batch.tokens.length,
  scored,
  score: () => lane.score(batch),
  profile: () => profile(batch),
});

export function* stepCalls(engine: Engine, walked: Iterable<WalkedBatch>): Generator<Call> {
  for (const each of walked) yield stepCall(engine, each);
}

/** Two phases whose groups allocate memory, each at its first call, and free that of the group before. */
export function* allocatingCalls(engine: Engine, paths: readonly Path[]): Generator<Call> {
  const { limits } = engine;
  const groups = groupContexts(paths, { limits });
  let held: { release(): void } | undefined;
  for (const [g, { paths: own, tokens }] of groups.entries()) {
    const calls = [...groupCalls(own, { limits })].map((each) => stepCall(engine, each));
    for (const [c, call] of calls.entries()) {
      const isFirst = c === 0;
      const isLast = g === groups.length - 1 && c === calls.length - 1;
      const score = async (): Promise<ScoredRows> => {
        if (isFirst) {
          held?.release();
          held = engine.allocate(tokens);
        }
        const rows = await call.score();
        if (isLast) held?.release();
        return rows;
      };
      yield { ...call, score };
    }
  }
}

/**
 * How much longer calls would take if the last layer's kernels took as long as those of the layer before. Each launch
 * counts with its fastest time of all measurements, because a busy machine disturbs some of them.
 */
export class UnprunedTime {
  /** By call and launch. */
  private readonly least: number[][] = [];

  /** Makes the calls, the same ones each time. Seconds, by all measurements so far. */
  async measure(calls: Iterable<Call>): Promise<number> {
    let [nanoseconds, index] = [0, 0];
    for (const { profile } of calls) {
      const least = (this.least[index++] ??= []);
      const byLayer: number[] = [];
      const launches = (await profile?.()) ?? [];
      launches.forEach(({ path, nanoseconds: time }, i) => {
        least[i] = Math.min(least[i] ?? Infinity, time);
        const layer = Number(/^layers\.(\d+)\./.exec(path)?.[1] ?? NaN);
        if (!Number.isNaN(layer)) byLayer[layer] = (byLayer[layer] ?? 0) + least[i];
      });
      nanoseconds += (byLayer.at(-2) ?? NaN) - (byLayer.at(-1) ?? NaN);
    }
    return nanoseconds / 1e9;
  }
}
