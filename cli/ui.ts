/** Progress on a terminal: finished phases scroll by as lines, the running one is redrawn in place below them. */
import { createRequire } from 'node:module';
import type CliProgress from 'cli-progress';
import type { Amount, RunProgress } from '../driver/requests.js';
import { UsageError } from '../errors.js';
import { cut, duration, percent } from '../system/text.js';
import { type Io, type Style, styleFor } from './io.js';
import { type Flags, isSet } from './options.js';
import { describeRun, fractionOf, type LiveUi, PlainUi, StepText } from './plainUi.js';
import { label, printableLine } from './print.js';

const require = createRequire(import.meta.url);

/** The bar takes the room that the words leave, within these. */
const BAR = { least: 5, most: 24 } as const;
const REDRAW_MS = 100;
/** Full and empty cells of a bar. */
const CELLS = ['█', '░'] as const;

/** `score  43 % ██████░░░░░░░░  4,321/10,042 · …` in at most `width` columns; a bar too short to read is left out. */
export function progressLine(
  name: string,
  fraction: number,
  text: string,
  width: number,
  paint: (bar: string) => string = (bar) => bar,
): string {
  const head = `${name} ${percent(fraction, 0).padStart(5)}`;
  const tail = text === '' ? '' : `  ${text}`;
  const room = Math.min(BAR.most, width - head.length - tail.length - 1);
  if (room < BAR.least) return cut(head + tail, width);
  const full = Math.round(room * Math.min(1, Math.max(0, fraction)));
  return `${head} ${paint(`${CELLS[0].repeat(full)}${CELLS[1].repeat(room - full)}`)}${tail}`;
}

/** Cursor up `lines` lines, to the first column, and everything from there on is cleared. */
const eraseLines = (lines: number): string => `\x1b[${lines}A\r\x1b[J`;

interface Payload {
  /** The line for a terminal of `width` columns. */
  readonly line: (width: number) => string;
}

export class TerminalUi implements LiveUi {
  readonly #io: Io;
  readonly #style: Style;
  #phase: { readonly name: string; readonly detail: string | undefined; readonly started: number } | undefined;
  #stepText: StepText;
  #bar: CliProgress.SingleBar | undefined;
  #lastRun: string | undefined;
  #tableLines: readonly string[] = [];
  /** The progress of the phase as a line, for below a table. */
  #status: Payload['line'] | undefined;
  /** Lines of the table on the screen. */
  #drawnLines = 0;
  #drawnAt = -Infinity;
  #isClosed = false;

  constructor(io: Io) {
    this.#io = io;
    this.#style = styleFor(io, 'stderr');
    this.#stepText = new StepText(io.now());
  }

  phase(name: string, detail?: string): void {
    if (this.#isClosed) return;
    this.#endPhase();
    this.#phase = { name, detail, started: this.#io.now() };
    this.#stepText = new StepText(this.#phase.started);
    this.#show(0, (width) => cut(`${name}${detail === undefined ? '' : `  ${detail}`}`, width));
  }

  step(fraction: number, detail?: string | Amount): void {
    if (this.#isClosed) return;
    const name = this.#name();
    const text = this.#stepText.describe(detail, this.#io.now()) ?? this.#phase?.detail ?? '';
    this.#status = (width) => progressLine(name, fraction, text, width, this.#style.cyan);
    if (this.#tableLines.length > 0) {
      this.#redrawTable();
      return;
    }
    this.#show(fraction, (width) => progressLine(name, fraction, text, width, this.#style.cyan));
  }

  run(progress: RunProgress): void {
    if (this.#isClosed) return;
    const fraction = fractionOf(progress);
    const name = this.#name();
    this.#lastRun = describeRun(progress);
    this.#show(fraction, (width) => progressLine(name, fraction, describeRun(progress, true), width, this.#style.cyan));
  }

  table(lines: readonly string[]): void {
    if (this.#isClosed) return;
    this.#tableLines = lines;
    this.#redrawTable();
  }

  note(line: string): void {
    this.#above(line);
  }

  detail(line: string): void {
    this.note(line);
  }

  warn(line: string): void {
    this.#above(`${label('warning', this.#style)} ${line}`);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#endPhase();
    this.#isClosed = true;
  }

  #name(): string {
    return this.#phase?.name ?? 'working';
  }

  /** Draws the running line. The bar of cli-progress throttles, keeps lines from wrapping and hides the cursor. */
  #show(fraction: number, line: Payload['line']): void {
    const payload: Payload = { line };
    if (this.#bar === undefined) {
      const { SingleBar } = require('cli-progress') as typeof CliProgress;
      this.#bar = new SingleBar({
        stream: this.#io.stderr,
        format: (_options, params, payload: Payload) => payload.line(params.maxWidth - 1),
        clearOnComplete: true,
        hideCursor: true,
        linewrap: false,
        gracefulExit: false,
        fps: 1000 / REDRAW_MS,
      });
      this.#bar.start(1, fraction, payload);
    } else {
      this.#bar.update(fraction, payload);
    }
  }

  #hideBar(): void {
    this.#bar?.stop();
    this.#bar = undefined;
  }

  #redrawTable(): void {
    if (this.#io.now() - this.#drawnAt < REDRAW_MS) return;
    this.#hideBar();
    this.#drawTable();
  }

  /** The whole table over the one drawn before, progress below it; what does not fit the screen is counted. */
  #drawTable(): void {
    const { stderr } = this.#io;
    const [width, height] = [stderr.columns ?? 80, stderr.rows ?? 24];
    const status = this.#status === undefined ? [] : [this.#status(width - 1)];
    const room = Math.max(1, height - 2 - status.length);
    const shown =
      this.#tableLines.length <= room
        ? this.#tableLines
        : [...this.#tableLines.slice(0, room - 1), `… ${this.#tableLines.length - room + 1} more`];
    const lines = [...shown, ...status];
    stderr.write(
      `${this.#drawnLines > 0 ? eraseLines(this.#drawnLines) : ''}` +
        `${lines.map((line) => `${cut(line, width - 1)}\n`).join('')}`,
    );
    this.#drawnLines = lines.length;
    this.#drawnAt = this.#io.now();
  }

  #eraseTable(): void {
    if (this.#drawnLines > 0) this.#io.stderr.write(eraseLines(this.#drawnLines));
    this.#drawnLines = 0;
  }

  /** A line that stays, above what is redrawn. */
  #above(line: string): void {
    if (this.#isClosed) return;
    const hasTable = this.#drawnLines > 0;
    this.#hideBar();
    this.#eraseTable();
    this.#io.stderr.write(`${line}\n`);
    if (hasTable) this.#drawTable();
  }

  /** The running line becomes one that says how long the phase took. */
  #endPhase(): void {
    this.#hideBar();
    this.#eraseTable();
    this.#tableLines = [];
    this.#status = undefined;
    if (this.#phase === undefined) return;
    const { name, detail, started } = this.#phase;
    const summary = this.#lastRun ?? detail;
    const took = duration((this.#io.now() - started) / 1000);
    const { bold, dim } = this.#style;
    this.#io.stderr.write(`${bold(name)}  ${dim(took)}${summary === undefined ? '' : `  ${summary}`}\n`);
    this.#phase = undefined;
    this.#lastRun = undefined;
  }
}

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
