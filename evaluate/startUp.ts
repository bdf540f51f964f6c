/**
 * How a command came to its first answer, as results and traces keep it and pages show it. Seconds are since the
 * command began. Pages import this file: it imports none.
 */
export interface StartUp {
  readonly seconds: number;
  /** What was waited for, from the command on; the steps follow one another and add up to `seconds`. */
  readonly criticalPath: readonly StartStep[];
  /** In order of their begin. They overlap. */
  readonly phases: readonly StartPhase[];
}

export interface StartStep {
  /** `command`, `device process`, `device process 3`; null where no phase that was recorded explains the time. */
  readonly process: string | null;
  readonly phase: string | null;
  readonly begin: number;
  readonly seconds: number;
}

export interface StartPhase {
  readonly process: string;
  readonly phase: string;
  readonly begin: number;
  readonly end: number;
  /** By how much later it could have ended without delaying the answer; absent where nothing waited for it. */
  readonly spareSeconds?: number;
  /** What it moved, and the seconds in which it did. */
  readonly bytes?: number;
  readonly movingSeconds?: number;
}
