/** Which user interface a command gets. */
import { UsageError } from '../errors.js';
import type { Io } from './io.js';
import type { LiveUi } from './liveUi.js';
import { isSet, type Flags } from './options.js';
import { PlainUi } from './plainUi.js';
import { printableLine } from './report.js';
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
  detail(): void {}
  warn(line: string): void {
    if (this.#hasWarnings) this.#io.stderr.write(`warning: ${line}\n`);
  }
  close(): void {}
}

export interface Face {
  readonly isJson: boolean;
  readonly isQuiet: boolean;
  /** Details are shown. */
  readonly isVerbose?: boolean;
}

/** The face that flags ask for. Throws UsageError for flags that exclude one another. */
export function faceOf(flags: Flags): Required<Face> {
  const [isJson, isQuiet, isVerbose] = [isSet(flags, 'json'), isSet(flags, 'quiet'), isSet(flags, 'verbose')];
  if (isQuiet && isVerbose) throw new UsageError('--quiet and --verbose exclude each other', 'drop one of them');
  return { isJson, isQuiet, isVerbose };
}

/** Names of files, tasks and models are in what is shown. `isVerbose`: details are notes. */
const printing = (ui: LiveUi, isVerbose = false): LiveUi => {
  const shown = <T>(text: T): T | string => (typeof text === 'string' ? printableLine(text) : text);
  return {
    phase: (name, detail) => ui.phase(shown(name), shown(detail)),
    step: (fraction, detail) => ui.step(fraction, shown(detail)),
    run: (progress) => ui.run(progress),
    table: (lines) => ui.table(lines.map(printableLine)),
    note: (line) => ui.note(printableLine(line)),
    detail: (line) => {
      if (isVerbose) ui.detail(printableLine(line));
    },
    warn: (line) => ui.warn(printableLine(line)),
    close: () => ui.close(),
  };
};

/** --json and --quiet: silent. On a terminal that can redraw lines: drawn in place. Otherwise: lines. */
export function makeUi(io: Io, { isJson, isQuiet, isVerbose }: Face): LiveUi {
  if (isJson || isQuiet) return printing(new SilentUi(io, !isQuiet));
  return printing(io.stderr.isTTY === true && !io.colour.isDumb ? new TerminalUi(io) : new PlainUi(io), isVerbose);
}
