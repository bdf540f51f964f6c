/** What every long command does around its call: a user interface, Ctrl-C, and a word on how to go on. */
import type { Ui } from '../driver/requests.js';
import { quoteForShell } from '../system/process.js';
import { type Io, listenForStop, type StopSignal } from './io.js';
import { type Face, makeUi } from './ui.js';

export interface Context {
  readonly io: Io;
  /** The arguments after the program's name, as typed. */
  readonly argv: readonly string[];
  /** A command did its work and found something amiss; its status, by default 1. */
  fail(status?: number): void;
}

/** The user stopped the command. */
export class Stopped extends Error {
  readonly signal: StopSignal;
  /** What was kept, and the command that goes on. */
  readonly advice: string;

  constructor(signal: StopSignal, advice: string, cause: unknown) {
    super(`stopped by ${signal}`, { cause });
    this.name = 'Stopped';
    this.signal = signal;
    this.advice = advice;
  }
}

/** The command line as typed, with `extra` appended where it is not there yet. */
export function sameCommand(context: Context, extra: readonly string[] = []): string {
  const added = extra.filter((flag) => !context.argv.includes(flag));
  return [context.io.invocation, ...[...context.argv, ...added].map(quoteForShell)].join(' ');
}

export interface WorkOptions extends Face {
  /** The phase in which results come; without it, a run's progress or a table is the first. */
  readonly resultsIn?: string;
  /** That phase writes to the terminal by itself: nothing is drawn there. */
  readonly isStreamed?: boolean;
  /** What was kept and how to go on, for a command that was stopped. */
  readonly advice: (error: unknown) => string;
}

/** What a command that was stopped before it had anything to keep rejects with. */
export class StoppedEarly extends Error {}

export interface Finished<T> {
  readonly value: T;
  /** The user asked to stop, and the work came to an end of its own: all of it, or as far as it had got. */
  readonly stoppedBy: StopSignal | undefined;
}

/**
 * Runs `work`; rejects with Stopped where it ended because the user asked. Once it has reported results (a run's
 * progress, a tuner's table) it is asked to stop and waited for; before that there is nothing to put right.
 */
export async function withUi<T>(
  context: Context,
  options: WorkOptions,
  work: (ui: Ui, signal: AbortSignal) => Promise<T>,
): Promise<Finished<T>> {
  const { io } = context;
  const ui = makeUi(io, options);
  let hasResults = false;
  const watched: Ui = {
    phase: (name, detail) => {
      const isResults = name === options.resultsIn;
      hasResults ||= isResults;
      if (isResults && options.isStreamed === true) ui.close();
      else ui.phase(name, detail);
    },
    step: (fraction, detail) => {
      ui.step(fraction, detail);
      io.observer?.step?.(fraction, detail);
    },
    run: (progress) => {
      hasResults = true;
      ui.run(progress);
      io.observer?.run?.(progress);
    },
    table: (lines) => {
      hasResults = true;
      ui.table(lines);
    },
    note: (line) => {
      ui.note(line);
    },
    detail: (line) => {
      ui.detail(line);
    },
    warn: (line) => {
      ui.warn(line);
    },
  };
  let stopEarly: (error: StoppedEarly) => void = () => undefined;
  const early = new Promise<never>((_, reject) => {
    stopEarly = reject;
  });
  const onFirst = (): void => {
    if (hasResults) ui.note('stopping after what is running; Ctrl-C again stops at once');
    else stopEarly(new StoppedEarly());
  };
  const stop = listenForStop(io, onFirst, () => {
    ui.close();
  });
  try {
    const value = await Promise.race([work(watched, stop.signal), early]);
    return { value, stoppedBy: stop.received() };
  } catch (error) {
    const signal = stop.received();
    if (signal === undefined) throw error;
    throw new Stopped(signal, options.advice(error), error);
  } finally {
    ui.close();
    stop.end();
  }
}

/**
 * Throws UserError where a model is named as the hub names it, before anything else that is missing is asked for. No
 * compiler is loaded before a command is called.
 */
export const refuseHubName = async (model: string): Promise<void> => {
  (await import('../models/model/refusals.js')).refuseHubName(model);
};

export const printJson = (io: Io, value: unknown): void => {
  io.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
};

/** One value of many, for JSON lines. */
export const printJsonLine = (io: Io, value: unknown): void => {
  io.stdout.write(`${JSON.stringify(value)}\n`);
};
