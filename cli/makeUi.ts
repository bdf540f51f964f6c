/** Which user interface a command gets. */
import type { Io } from './io.js';
import type { LiveUi } from './liveUi.js';
import { PlainUi } from './plainUi.js';
import { TerminalUi } from './terminalUi.js';

/** For --json: stdout belongs to the JSON, stderr to warnings and errors. */
class SilentUi implements LiveUi {
  readonly #io: Io;

  constructor(io: Io) {
    this.#io = io;
  }

  phase(): void {}
  step(): void {}
  run(): void {}
  table(): void {}
  note(): void {}
  warn(line: string): void {
    this.#io.stderr.write(`warning: ${line}\n`);
  }
  close(): void {}
}

/** --json: silent. On a terminal: drawn in place. Otherwise: lines. */
export function makeUi(io: Io, isJson: boolean): LiveUi {
  if (isJson) return new SilentUi(io);
  return io.stderr.isTTY === true ? new TerminalUi(io) : new PlainUi(io);
}
