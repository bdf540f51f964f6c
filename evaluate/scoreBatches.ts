/** Scores trees in micro-batches, enough of them in flight to keep the scorer busy. */
import { isAborted } from '../system/abort.js';
import type { Parts } from '../system/parts.js';
import { checkedRows, scoredTokens } from './answers.js';
import { BatchQueue } from './batchQueue.js';
import type { Computation, Sink } from './computation.js';
import { layBatch } from './microBatch.js';
import type { Pack } from './packing.js';
import { type PackedTree, planBatches, type QuestionPlan } from './questionPlan.js';
import type { ScoredRows, Scorer } from './scorer.js';
import type { TreeSharing } from './tree.js';

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
