/** Ctrl-C: the first asks the work to stop, the second stops the process. */
import { constants } from 'node:os';
import type { Io, StopSignal } from './io.js';

export interface Stop {
  readonly signal: AbortSignal;
  /** What stopped it, if anything did. */
  received(): StopSignal | undefined;
  /** No longer listen. */
  end(): void;
}

/** As shells count: 130 for SIGINT. */
export const exitStatus = (signal: StopSignal): number => 128 + constants.signals[signal];

/** `beforeDeath` puts the terminal right before the process goes. */
export function listenForStop(io: Io, onFirst: () => void, beforeDeath: () => void): Stop {
  const controller = new AbortController();
  let received: StopSignal | undefined;
  const end = io.onStop((signal) => {
    if (received !== undefined) {
      beforeDeath();
      io.die(signal);
      return;
    }
    received = signal;
    onFirst();
    controller.abort();
  });
  return { signal: controller.signal, received: () => received, end };
}
