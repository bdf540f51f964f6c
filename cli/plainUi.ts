/** Progress as lines, for logs and pipes: each phase, and in a long one a line now and then. */
import type { Amount, RunProgress } from '../driver/requests.js';
import { duration, percent } from '../system/text.js';
import { type Io, styleFor } from './io.js';
import type { LiveUi } from './liveUi.js';
import { describeRun, fractionOf, StepText } from './progressText.js';
import { label } from './report.js';

/** A line after 5 s if 5 % were done since the last, and after a minute whatever was done. */
const PACE = { seconds: 5, share: 0.05, longestSeconds: 60 } as const;

export class PlainUi implements LiveUi {
  readonly #io: Io;
  readonly #started: number;
  #phase = '';
  #stepText: StepText;
  #lastTime: number;
  #lastShare = 0;
  #table: readonly string[] = [];
  #tableTime: number;
  #isClosed = false;

  constructor(io: Io) {
    this.#io = io;
    this.#started = io.now();
    this.#lastTime = this.#tableTime = this.#started;
    this.#stepText = new StepText(this.#started);
  }

  phase(name: string, detail?: string): void {
    this.#phase = name;
    this.#lastTime = this.#io.now();
    this.#stepText = new StepText(this.#lastTime);
    this.#lastShare = 0;
    this.#line(detail === undefined ? name : `${name}: ${detail}`);
  }

  step(fraction: number, detail?: string | Amount): void {
    const text = this.#stepText.describe(detail, this.#io.now());
    if (this.#isDue(fraction))
      this.#line(`${this.#phase}: ${percent(fraction, 0)}${text === undefined ? '' : `, ${text}`}`);
  }

  run(progress: RunProgress): void {
    const fraction = fractionOf(progress);
    if (this.#isDue(fraction) || (fraction === 1 && this.#lastShare < 1)) {
      this.#lastShare = fraction;
      this.#line(`${this.#phase}: ${percent(fraction, 0)}, ${describeRun(progress)}`);
    }
  }

  /** The table as it stands, once a minute. The command prints the last one itself. */
  table(lines: readonly string[]): void {
    this.#table = lines;
    if (this.#io.now() - this.#tableTime < PACE.longestSeconds * 1000) return;
    this.#tableTime = this.#io.now();
    for (const line of this.#table) this.#line(line);
  }

  note(line: string): void {
    this.#line(line);
  }

  detail(line: string): void {
    this.note(line);
  }

  warn(line: string): void {
    this.#line(`${label('warning', styleFor(this.#io, 'stderr'))} ${line}`);
  }

  close(): void {
    this.#isClosed = true;
  }

  #isDue(fraction: number): boolean {
    const passed = (this.#io.now() - this.#lastTime) / 1000;
    if (passed < PACE.seconds || (fraction - this.#lastShare < PACE.share && passed < PACE.longestSeconds))
      return false;
    this.#lastTime = this.#io.now();
    this.#lastShare = fraction;
    return true;
  }

  #line(text: string): void {
    if (this.#isClosed) return;
    const time = duration((this.#io.now() - this.#started) / 1000);
    for (const line of text.split('\n')) this.#io.stderr.write(`[${time}] ${line}\n`);
  }
}
