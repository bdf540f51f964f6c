/**
 * Scores questions over kept keys and values: by walks over all their paths, or in two phases. A walk goes through
 * subtrees, and its cache holds the path on which it stands, so common beginnings within a subtree are computed once.
 * In two phases, the cache holds the contexts of a group of questions.
 */
import { setImmediate } from 'node:timers/promises';
import { UserError } from '../errors.js';
import { isAborted } from '../system/process.js';
import type { Parts } from '../system/text.js';
import { checkedRows, type Computation, type Sink } from './answers.js';
import { shuffled } from './packing.js';
import { keepPaths, pathsOf } from './pathOrder.js';
import type { QuestionPlan } from './questionPlan.js';
import type { PathLane, PathScorer, ScoredRows, WalkedBatch, WalkLimits } from './scorer.js';
import { questionName, type TokenizedQuestion } from './tokenize.js';
import type { Path } from './tree.js';
import { groupCalls, groupContexts } from './twoPhase.js';
import { cutSubtrees, Walk } from './walk.js';

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
    take: (paths) => walk.take([...paths]),
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

/**
 * Devices that keep keys and values share work out: each takes a part from a common queue and makes its calls. A device
 * that ends loses its cache, and puts back what is not finished.
 */

/** Paths that one device computes one after another. */
export interface Share {
  readonly paths: readonly Path[];
  /** Tokens that it takes to compute them. */
  readonly tokens: number;
}

/** Makes the calls of a device, for the shares that it takes one after another. */
export interface CallMaker {
  /** Yields calls as they are full. */
  take(paths: Iterable<Path>): Iterable<WalkedBatch>;
  /** The last call; undefined where nothing is left. */
  end(): WalkedBatch | undefined;
}

export interface SharedWork {
  /** In the order in which they are taken. */
  readonly shares: readonly Share[];
  /** For a device with an empty cache. */
  begin(): CallMaker;
  /** Flags of the way that needs less memory. */
  readonly otherWay: string;
}

export const laneComputation = (scorer: PathScorer, work: SharedWork): Computation => ({
  tokensTotal: work.shares.reduce((sum, { tokens }) => sum + tokens, 0),
  estimateTotal: 0,
  compute: (sink) => new Lanes(scorer, work, sink).run(),
});

interface Flight {
  readonly walked: WalkedBatch;
  readonly rows: Promise<ScoredRows>;
}

/** Computes shares on all devices. */
class Lanes {
  private readonly scorer: PathScorer;
  private readonly work: SharedWork;
  private readonly sink: Sink;
  /** The next one last. */
  private readonly left: Share[];
  /** Why devices are lost, by their number. */
  private readonly lost = new Map<number, unknown>();
  private failure: { readonly error: unknown } | undefined;

  constructor(scorer: PathScorer, work: SharedWork, sink: Sink) {
    this.scorer = scorer;
    this.work = work;
    this.sink = sink;
    this.left = [...work.shares].reverse();
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
      await this.sink.turn.enter(index);
      let lane: PathLane;
      try {
        lane = await this.scorer.open(index);
      } catch (error) {
        this.lost.set(index, error);
        break;
      }
      try {
        await this.compute(lane, index);
      } catch (error) {
        if (!(error instanceof Error && error.name === 'ProcessEnded')) this.failure ??= { error };
      }
    }
    this.sink.turn.leave(index);
  }

  /** Computes until no share is left. */
  private async compute(lane: PathLane, index: number): Promise<void> {
    const { turn } = this.sink;
    const taken: Share[] = [];
    const flights: Flight[] = [];
    const landFirst = async (): Promise<void> => {
      const { walked, rows } = flights.shift()!;
      this.land(walked, await rows);
    };
    try {
      for (const walked of this.calls(taken, index)) {
        // Calls of the set before may still be in flight.
        await turn.room(index, lane.inFlight);
        if (this.isStopped) break;
        const flight = this.launch(lane, walked);
        turn.made(index, flight.rows);
        flights.push(flight);
        if (flights.length >= lane.inFlight) await landFirst();
        // The event loop turns once per call, so that Ctrl-C works even if scoring never waits.
        await setImmediate();
      }
      turn.leave(index);
      while (flights.length > 0) await landFirst();
    } catch (error) {
      this.left.push(...taken.filter(({ paths }) => paths.some((path) => !this.isFinished(path))).reverse());
      throw error;
    } finally {
      turn.leave(index);
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

  /** The calls of shares, each taken from the queue when the device comes to it. */
  private *calls(taken: Share[], index: number): Generator<WalkedBatch> {
    const maker = this.work.begin();
    do {
      const next = this.left.pop();
      if (next === undefined) break;
      taken.push(next);
      yield* maker.take(this.unfinished(next));
    } while (!this.sink.turn.isAwaited(index));
    const last = maker.end();
    if (last !== undefined) yield last;
  }

  private *unfinished({ paths }: Share): Generator<Path> {
    for (const path of paths) if (!this.isFinished(path)) yield path;
  }

  private launch(lane: PathLane, walked: WalkedBatch): Flight {
    const { collector, journal } = this.sink;
    const { nonFiniteAdvice } = this.scorer;
    const { scored, batch } = walked;
    const rows = checkedRows(lane.score(batch).catch(outOfMemory(batch.tokens.length, this.work.otherWay)), {
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

/** Calls cannot be halved once they are made, because later ones read what they leave. */
const outOfMemory =
  (tokens: number, otherWay: string) =>
  (error: unknown): never => {
    if (!(error instanceof Error) || error.name !== 'OutOfDeviceMemory') throw error;
    throw new UserError(
      `the device ran out of memory in a call of ${tokens} tokens`,
      'stop other processes on the device (nvidia-smi lists them), or give --batch-tokens with a smaller number, or ' +
        `${otherWay}; with --out and --resume, finished questions are kept`,
      { cause: error },
    );
  };
