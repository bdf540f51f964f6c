/** Scores trees in micro-batches, enough of them in flight to keep the scorer busy. */
import { UserError } from '../errors.js';
import { isAborted } from '../system/process.js';
import type { Parts } from '../system/text.js';
import { checkedRows, type Computation, scoredTokens, type Sink } from './answers.js';
import { halvePack, type Pack, type Packable } from './packing.js';
import { type PackedTree, planBatches, type QuestionPlan } from './questionPlan.js';
import type { MicroBatch, ScoredRows, Scorer } from './scorer.js';
import { type Answer, buildTree, type Path, type TreeSharing } from './tree.js';

export interface BatchOptions {
  readonly plan: QuestionPlan;
  readonly scorer: Scorer;
  readonly sharing: TreeSharing;
}

/** A micro-batch that is being computed. `ended` never rejects; errors come from `rows`. */
interface Flight {
  readonly rows: Promise<ScoredRows>;
  readonly ended: Promise<Flight>;
  readonly pack: Pack<PackedTree>;
  land(rows: ScoredRows): void;
}

/** `isLeft`: which questions have no answer yet. */
export function* batchComputation(options: BatchOptions, isLeft: readonly boolean[]): Parts<Computation> {
  const { plan, scorer } = options;
  const trees = plan.trees.filter(({ paths }) => paths.some(({ question }) => isLeft[question]));
  const packs = yield* trees.length === plan.trees.length ? plan.packs() : planBatches(trees, scorer);
  return {
    tokensTotal: trees.reduce((sum, { tokens }) => sum + tokens, 0),
    estimateTotal: packs.reduce((sum, { seconds }) => sum + seconds, 0),
    compute: (sink) => computeBatches(packs, options, sink),
  };
}

function launch(pack: Pack<PackedTree>, { scorer, sharing }: BatchOptions, sink: Sink): Flight {
  const { batch, answers } = layBatch(
    pack.items.map(({ paths }) => paths),
    sharing,
  );
  const scored = scoredTokens(answers);
  const { collector, journal } = sink;
  const { nonFiniteAdvice } = scorer;
  const rows = checkedRows(scorer.score(batch), {
    collector,
    scored,
    rows: batch.row.length,
    journal,
    nonFiniteAdvice,
  });
  const { tokens, seconds } = pack;
  const land = (found: ScoredRows): void => sink.land({ scored, rows: found, tokens, seconds });
  const flight: Flight = {
    pack,
    rows,
    land,
    ended: rows.then(
      () => flight,
      () => flight,
    ),
  };
  return flight;
}

async function computeBatches(packs: readonly Pack<PackedTree>[], options: BatchOptions, sink: Sink): Promise<void> {
  const { scorer } = options;
  const { turn } = sink;
  const queue = new BatchQueue(packs, scorer, sink.onWarning);
  const flights = new Set<Flight>();
  /** If the device ran out of memory, there is no result and halves are put back into the queue. */
  const rowsOf = async ({ pack, rows }: Flight): Promise<ScoredRows | undefined> => {
    try {
      return await rows;
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'OutOfDeviceMemory') throw error;
      queue.returnHalved(pack, error);
      return undefined;
    }
  };
  /** Whether nothing is left to launch. */
  const fill = (): boolean => {
    while (!isAborted(sink.signal) && turn.hasRoom('all', Math.max(1, scorer.inFlight))) {
      const pack = queue.take();
      if (pack === undefined) break;
      const flight = launch(pack, options, sink);
      turn.made('all', flight.ended);
      flights.add(flight);
    }
    const isOver = queue.isEmpty || isAborted(sink.signal);
    if (isOver) turn.leave('all');
    return isOver;
  };
  try {
    await turn.enter('all');
    for (let isOver = fill(); !isOver || flights.size > 0;) {
      const ended = [...flights].map((flight) => flight.ended);
      // Calls of the set before may still be in flight.
      const flight = await Promise.race(isOver ? ended : [...ended, turn.change()]);
      if (flight === undefined) {
        isOver = fill();
        continue;
      }
      flights.delete(flight);
      const rows = await rowsOf(flight);
      // The event loop turns once per micro-batch, so that Ctrl-C works even if scoring never waits.
      await new Promise((resolve) => setImmediate(resolve));
      isOver = fill();
      if (rows !== undefined) flight.land(rows);
    }
  } finally {
    // After an error the scorer may still be at work on memory that the caller is about to release. What other devices
    // have finished is kept.
    for (const flight of flights) {
      const rows = await flight.rows.catch(() => undefined);
      if (rows !== undefined) flight.land(rows);
    }
  }
}

/** The micro-batches that are still to be computed, in the order in which devices take them. */

/** The smallest micro-batch that a model is compiled for, in tokens. */
const FEWEST_TOKENS = 32;

/**
 * Halves at the end are at least about this fraction of the largest micro-batch: reading the weights takes the same
 * time for less.
 */
const TAIL_PART = 1 / 32;
/** Limit on the time of two halves relative to the whole, by the scorer's own estimate. */
const TAIL_LOSS = 1.25;

/**
 * A single device takes micro-batches in the given order. Replicas take the largest first and, towards the end, halves,
 * so that all finish together: none gets a micro-batch that is longer than an even share of what is left. A pipeline
 * needs (stages − 1) times one stage's part of its largest micro-batch to fill and drain, wherever that micro-batch
 * comes, so halves at its end gain nothing. If there are fewer micro-batches than devices, all are halved.
 */
export class BatchQueue<T extends Packable> {
  readonly #scorer: Scorer;
  readonly #warn: ((line: string) => void) | undefined;
  /** In reverse order: the next one is the last. */
  readonly #left: Pack<T>[];
  /** Estimated seconds of all micro-batches, and of those that are left. */
  readonly #seconds: number;
  #secondsLeft: number;
  #isByLength = false;
  /** Micro-batches of a size that ran out of device memory are not tried again. */
  #tokensLimit = Infinity;

  constructor(packs: readonly Pack<T>[], scorer: Scorer, onWarning?: (line: string) => void) {
    this.#scorer = scorer;
    this.#warn = onWarning;
    this.#left = [...packs].reverse();
    this.#seconds = packs.reduce((sum, { seconds }) => sum + seconds, 0);
    this.#secondsLeft = this.#seconds;
  }

  get isEmpty(): boolean {
    return this.#left.length === 0;
  }

  /** The next micro-batch; undefined if none is left. */
  take(): Pack<T> | undefined {
    if (this.#scorer.replicas > 1 && !this.#isByLength) {
      // The sort is stable: micro-batches of equal cost stay shuffled.
      this.#left.sort((a, b) => a.seconds - b.seconds);
      this.#isByLength = true;
    }
    for (;;) {
      const pack = this.#left.pop();
      if (pack === undefined) return undefined;
      const halves = this.#halves(pack);
      this.#secondsLeft -= pack.seconds;
      if (halves === undefined) return pack;
      halves.forEach((half) => this.#put(half));
    }
  }

  /** Takes back a micro-batch that ran out of device memory, as halves. Throws UserError if it has no halves. */
  returnHalved(pack: Pack<T>, cause: unknown): void {
    if (pack.items.length < 2) {
      throw new UserError(
        `the device ran out of memory in a micro-batch of ${pack.tokens} tokens, ` +
          'which is a single tree and cannot be halved',
        'stop other processes on the device (nvidia-smi lists them), or make trees smaller: ' +
          `--batch-tokens ${Math.max(FEWEST_TOKENS, Math.floor(pack.tokens / 2))}, or --sharing context; ` +
          'with --out and --resume, finished questions are kept',
        { cause },
      );
    }
    if (pack.tokens / 2 < this.#tokensLimit) {
      this.#tokensLimit = pack.tokens / 2;
      this.#warn?.(`the device ran out of memory in a micro-batch of ${pack.tokens} tokens: continuing with halves`);
    }
    halvePack(pack, this.#scorer).forEach((half) => this.#put(half));
  }

  /**
   * Two micro-batches for one that is too large for the device's memory or, with several devices, for the time left.
   */
  #halves(pack: Pack<T>): readonly Pack<T>[] | undefined {
    if (pack.items.length < 2) return undefined;
    if (pack.tokens > this.#tokensLimit) return halvePack(pack, this.#scorer);
    const { replicas, devices, maxTokens } = this.#scorer;
    // A small tolerance, because sums of seconds are not exact.
    const share = Math.min(
      replicas > 1 ? this.#secondsLeft / replicas : Infinity,
      devices > 1 ? this.#seconds / devices : Infinity,
    );
    if (pack.seconds <= share * (1 + 1e-9)) return undefined;
    if (pack.tokens < Math.max(2 * FEWEST_TOKENS, 2 * maxTokens * TAIL_PART)) return undefined;
    const halves = halvePack(pack, this.#scorer);
    return halves.reduce((sum, { seconds }) => sum + seconds, 0) > pack.seconds * TAIL_LOSS ? undefined : halves;
  }

  #put(pack: Pack<T>): void {
    this.#secondsLeft += pack.seconds;
    let at = this.#left.length;
    if (this.#isByLength) while (at > 0 && this.#left[at - 1]!.seconds > pack.seconds) at--;
    this.#left.splice(at, 0, pack);
  }
}

/** Lays the trees of one micro-batch end to end. */

export interface LaidBatch {
  readonly batch: MicroBatch;
  /** `scored` holds row numbers of the whole micro-batch. */
  readonly answers: readonly Answer[];
}

/** Each element of groups is the paths of one tree. */
export function layBatch(groups: readonly (readonly Path[])[], sharing: TreeSharing): LaidBatch {
  const trees = groups.map((paths) => buildTree(paths, sharing));
  const tokenCount = trees.reduce((sum, tree) => sum + tree.tokens.length, 0);
  const rowCount = trees.reduce((sum, tree) => sum + tree.row.length, 0);
  const batch = {
    tokens: new Int32Array(tokenCount),
    position: new Int32Array(tokenCount),
    subtreeEnd: new Int32Array(tokenCount),
    row: new Int32Array(rowCount),
    target: new Int32Array(rowCount),
  };
  const answers: Answer[] = [];
  let token = 0,
    firstRow = 0;
  for (const tree of trees) {
    batch.tokens.set(tree.tokens, token);
    batch.position.set(tree.position, token);
    for (let i = 0; i < tree.subtreeEnd.length; i++) batch.subtreeEnd[token + i] = (tree.subtreeEnd[i] ?? 0) + token;
    for (let i = 0; i < tree.row.length; i++) batch.row[firstRow + i] = (tree.row[i] ?? 0) + token;
    batch.target.set(tree.target, firstRow);
    for (const { question, choice, scored } of tree.answers) {
      answers.push({ question, choice, scored: scored.map((index) => index + firstRow) });
    }
    token += tree.tokens.length;
    firstRow += tree.row.length;
  }
  return { batch, answers };
}
