/** Which user interface a command gets. */
import type { Io } from './io.js';
import type { LiveUi } from './liveUi.js';
import { PlainUi } from './plainUi.js';
import { TerminalUi } from './terminalUi.js';

/** For --json, where stderr is for warnings and errors; and for --quiet, where it is for errors alone. */
class SilentUi implements LiveUi {
  readonly #io: Io;
  readonly #hasWarnings: boolean;

  constructor(io: Io, hasWarnings: boolean) {
    this.#io = io;
    this.#hasWarnings = hasWarnings;
  }

  phase(): void {}
  step(): void {}
  run(): void {}
  table(): void {}
  note(): void {}
  warn(line: string): void {
    if (this.#hasWarnings) this.#io.stderr.write(`warning: ${line}\n`);
  }
  close(): void {}
}

export interface Face {
  readonly isJson: boolean;
  readonly isQuiet: boolean;
}

/** --json and --quiet: silent. On a terminal that can redraw lines: drawn in place. Otherwise: lines. */
export function makeUi(io: Io, { isJson, isQuiet }: Face): LiveUi {
  if (isJson || isQuiet) return new SilentUi(io, !isQuiet);
  return io.stderr.isTTY === true && !io.colour.isDumb ? new TerminalUi(io) : new PlainUi(io);
}
