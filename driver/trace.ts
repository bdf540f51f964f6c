/** `--trace FILE`: one micro-batch, launch by launch, in Chrome's trace format (opens in Perfetto). */
import { writeAtomically, layBatch, packTrees, planTrees, type LoadedQuestions, type Scorer, type Sharing } from '../eval/index.js';
import type { Executor } from './scorer.js';

/** Microseconds, as the format wants them. */
interface TraceEvent {
  readonly name: string;
  readonly cat: string;
  readonly ph: 'X';
  readonly ts: number;
  readonly dur: number;
  readonly pid: number;
  readonly tid: number;
  readonly args: Readonly<Record<string, number>>;
}

/** Micro-batches of the run that are profiled: enough to see past the first, cold one. */
const TRACED_BATCHES = 3;

/** Runs a few micro-batches of the question set again, timing each launch. */
export async function traceOf(executor: Executor, loaded: LoadedQuestions, sharing: Sharing, scorer: Scorer): Promise<readonly TraceEvent[]> {
  const forest = planTrees(loaded.tokenised, sharing, { maxTokens: scorer.maxTokens, maxRows: scorer.maxRows });
  const packs = packTrees(forest.trees.map((tree) => ({ ...tree, orderLength: tree.longest })), scorer).slice(0, TRACED_BATCHES);
  const events: TraceEvent[] = [];
  let now = 0;
  for (const pack of packs) {
    const { batch } = layBatch(pack.items.map(({ paths }) => paths), sharing);
    const { launches } = await executor.profile(batch);
    for (const launch of launches) {
      const dur = launch.nanoseconds / 1000;
      events.push({ name: launch.path, cat: 'kernel', ph: 'X', ts: now, dur, pid: 1, tid: 1, args: { tokens: batch.tokens.length, rows: batch.row.length } });
      now += dur;
    }
  }
  return events;
}

export const writeTrace = (path: string, events: readonly TraceEvent[]): void =>
  writeAtomically(path, [`${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: events })}\n`]);
