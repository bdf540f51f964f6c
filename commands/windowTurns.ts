/**
 * Windows of documents one behind another: while one is computed, the next is taken (read and tokenized, if it is not
 * yet), ordered and packed, and its calls follow those of the former without a gap. Answers are measured and written
 * while later windows are computed.
 */
import type { RunResult } from './runRequest.js';
import { Interrupted } from './runRequest.js';
import type { PackedWindow, TaskModel, TokenizedWindow } from './taskModel.js';
import type { ComputedWindow, TasksRun } from './tasksRun.js';
import type { WindowsAhead } from './windowsAhead.js';

export interface WindowTurns {
  /** Those after the first. */
  readonly windows: Pick<WindowsAhead<TokenizedWindow>, 'take'>;
  readonly model: Pick<TaskModel, 'prepare' | 'take'>;
  readonly run: Pick<TasksRun, 'compute' | 'report'>;
  /** Ends the reading and the calls; aborted by computeWindows when it ends. */
  readonly over: AbortController;
  /** That of `over`, and of the user. */
  readonly signal: AbortSignal;
}

/** A window whose calls are made, or will be as soon as those of the one before are. */
interface Running {
  readonly window: PackedWindow;
  readonly computed: Promise<ComputedWindow>;
  /** Settles with it, holds nothing of it, and never rejects. */
  readonly done: Promise<void>;
}

/** The result of all windows. No call is in flight when it settles. */
export async function computeWindows(
  first: PackedWindow,
  { windows, model, run, over, signal }: WindowTurns,
): Promise<RunResult> {
  /** At most two. */
  const running = new Set<Promise<ComputedWindow>>();
  const start = (window: PackedWindow, former?: Promise<void>): Running => {
    const computed = run.compute(window, former);
    running.add(computed);
    const done = computed.then(
      () => void running.delete(computed),
      // It is thrown where the window is awaited.
      () => undefined,
    );
    return { window, computed, done };
  };
  const follow = async ({ window, computed, done }: Running): Promise<Running> => {
    const waiting = await model.prepare(await windows.take());
    // A model that is opened again, or that generates texts, is at work for one window alone.
    if (waiting.questions === undefined || window.prompts !== undefined) await computed;
    if (signal.aborted) throw new Interrupted(0);
    return start(await model.take(waiting), done);
  };
  let reported: Promise<RunResult> | undefined;
  try {
    for (let current = start(first); ;) {
      const next = current.window.window.isLast ? undefined : follow(current);
      // It is awaited below; this window is finished first.
      next?.catch(() => undefined);
      const computed = await current.computed;
      await reported;
      reported = run.report(computed);
      if (next === undefined) return await reported;
      // It is awaited above, once the next window is computed, or below.
      reported.catch(() => undefined);
      current = await next;
    }
  } finally {
    over.abort();
    await reported?.catch(() => undefined);
    await Promise.allSettled(running);
  }
}
