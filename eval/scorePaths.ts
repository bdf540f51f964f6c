/**
 * Scores questions by walks over all their paths. Every device walks through subtrees that it takes from a common
 * queue. Its cache holds the path on which it stands, so common beginnings within a subtree are computed once.
 */
import { setImmediate } from 'node:timers/promises';
import { UserError } from '../errors.js';
import { checkedRows } from './answers.js';
import { isAborted, type Computation, type Sink } from './computation.js';
import type { PathLane, PathScorer, ScoredRows } from './scorer.js';
import { cutSubtrees, type Subtree } from './subtrees.js';
import type { TokenisedQuestion } from './tokenise.js';
import { pathsOf } from './tokenCounts.js';
import { Walk, type WalkedBatch } from './walk.js';

export interface WalkOptions {
  readonly scorer: PathScorer;
  readonly tokenised: readonly TokenisedQuestion[];
}

/** `isLeft`: which questions are to be scored. */
export function pathComputation({ scorer, tokenised }: WalkOptions, isLeft: readonly boolean[]): Computation {
  const paths = pathsOf(tokenised).filter(({ question }) => isLeft[question]);
  const subtrees = cutSubtrees(paths, scorer.lanes);
  return {
    tokensTotal: subtrees.reduce((sum, { tokens }) => sum + tokens, 0),
    estimateTotal: 0,
    compute: (sink) => new Walkers(scorer, subtrees, sink).run(),
  };
}

interface Flight {
  readonly walked: WalkedBatch;
  readonly rows: Promise<ScoredRows>;
}

/** One walker for each device. */
class Walkers {
  private readonly scorer: PathScorer;
  private readonly sink: Sink;
  /** The next one last. */
  private readonly left: Subtree[];
  /** Why devices are lost, by their number. */
  private readonly lost = new Map<number, unknown>();
  private failure: { readonly error: unknown } | undefined;

  constructor(scorer: PathScorer, subtrees: readonly Subtree[], sink: Sink) {
    this.scorer = scorer;
    this.sink = sink;
    this.left = [...subtrees].reverse();
  }

  async run(): Promise<void> {
    // A device that is lost puts back what it had taken, perhaps after all others were done.
    while (this.left.length > 0 && !this.isStopped) {
      const lanes = Array.from({ length: this.scorer.lanes }, (_, lane) => lane).filter((lane) => !this.lost.has(lane));
      if (lanes.length === 0) throw [...this.lost.values()][0];
      await Promise.all(lanes.map((lane) => this.runLane(lane)));
    }
    if (this.failure !== undefined) throw this.failure.error;
  }

  private get isStopped(): boolean {
    return this.failure !== undefined || isAborted(this.sink.signal);
  }

  /** Never rejects. */
  private async runLane(index: number): Promise<void> {
    while (this.left.length > 0 && !this.isStopped) {
      let lane: PathLane;
      try {
        lane = await this.scorer.open(index);
      } catch (error) {
        this.lost.set(index, error);
        return;
      }
      try {
        await this.walk(lane);
      } catch (error) {
        if (!(error instanceof Error && error.name === 'ProcessEnded')) this.failure ??= { error };
      }
    }
  }

  /** Walks until no subtree is left. */
  private async walk(lane: PathLane): Promise<void> {
    const taken: Subtree[] = [];
    const flights: Flight[] = [];
    const landFirst = async (): Promise<void> => {
      const { walked, rows } = flights.shift()!;
      this.land(walked, await rows);
    };
    try {
      for (const walked of this.calls(taken)) {
        if (this.isStopped) break;
        flights.push(this.launch(lane, walked));
        if (flights.length >= lane.inFlight) await landFirst();
        // The event loop turns once per call, so that Ctrl-C works even if scoring never waits.
        await setImmediate();
      }
      while (flights.length > 0) await landFirst();
    } catch (error) {
      this.left.push(...taken.filter(({ paths }) => paths.some((path) => !this.isFinished(path))).reverse());
      throw error;
    } finally {
      // After an error the device may still be at work on memory that the caller is about to release.
      for (const { walked, rows } of flights) {
        const found = await rows.catch(() => undefined);
        if (found !== undefined) this.land(walked, found);
      }
    }
  }

  private land({ scored, batch }: WalkedBatch, rows: ScoredRows): void {
    this.sink.land({ scored, rows, tokens: batch.tokens.length, seconds: 0 });
  }

  private isFinished({ question }: { readonly question: number }): boolean {
    return this.sink.collector.isFinished(question);
  }

  /** The calls of a walk through subtrees, each taken from the queue when the walk comes to it. */
  private *calls(taken: Subtree[]): Generator<WalkedBatch> {
    const walk = new Walk(this.scorer.limits);
    for (let next = this.left.pop(); next !== undefined; next = this.left.pop()) {
      taken.push(next);
      for (const path of next.paths) if (!this.isFinished(path)) yield* walk.take(path);
    }
    const last = walk.end();
    if (last !== undefined) yield last;
  }

  private launch(lane: PathLane, walked: WalkedBatch): Flight {
    const { collector, journal } = this.sink;
    const { nonFiniteAdvice } = this.scorer;
    const { scored, batch } = walked;
    const rows = checkedRows(lane.score(batch).catch(outOfMemory(batch.tokens.length)), {
      collector,
      scored,
      rows: batch.row.length,
      journal,
      nonFiniteAdvice,
    });
    // It is awaited when its turn comes; calls before it may fail first.
    rows.catch(() => undefined);
    return { walked, rows };
  }
}

/** Calls of a walk cannot be halved once they are made, because later ones read what they leave. */
const outOfMemory =
  (tokens: number) =>
  (error: unknown): never => {
    if (!(error instanceof Error) || error.name !== 'OutOfDeviceMemory') throw error;
    throw new UserError(
      `the device ran out of memory in a call of ${tokens} tokens`,
      'stop other processes on the device (nvidia-smi lists them), or give --max-tokens with a smaller number, or ' +
        '--prefixes repeat; with --out and --resume, finished questions are kept',
      { cause: error },
    );
  };
