/** Progress as lines, for logs and pipes: each phase, and in a long one a line now and then. */
import type { Amount, RunProgress, Ui } from '../driver/requests.js';
import { bytes, clock, count, duration, percent, si } from '../system/text.js';
import { type Io, styleFor } from './io.js';
import { label } from './print.js';

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

export interface LiveUi extends Ui {
  /** Ends the current phase and leaves the terminal as it was found. Nothing is drawn afterwards. */
  close(): void;
}

/** `4,321/10,042 questions · 18,300 tokens/s · acc 28.8 %, acc_norm 28.9 % · 0:41 left`; the short form names less. */
export function describeRun(progress: RunProgress, isShort = false): string {
  const { questionsDone, questionsTotal, tokensPerSecond, accuracy, accuracyNorm, secondsLeft } = progress;
  const unit = isShort ? '' : questionsTotal === 1 ? ' question' : ' questions';
  const parts = [`${count(questionsDone)}/${count(questionsTotal)}${unit}`];
  if (tokensPerSecond > 0) parts.push(`${count(tokensPerSecond)} tokens/s`);
  if (accuracy !== undefined && accuracyNorm !== undefined)
    parts.push(`acc ${percent(accuracy)}, acc_norm ${percent(accuracyNorm)}`);
  if (secondsLeft !== undefined && questionsDone < questionsTotal) parts.push(`${clock(secondsLeft)} left`);
  return parts.join(' · ');
}

/** 0 to 1. Tokens measure the work better than questions; a resumed run without work is done. */
export function fractionOf({ questionsDone, questionsTotal, tokensDone, tokensTotal }: RunProgress): number {
  if (questionsDone >= questionsTotal) return 1;
  return Math.min(1, tokensTotal > 0 ? tokensDone / tokensTotal : questionsDone / questionsTotal);
}

/** What is reported this soon after a step began was found and not made: a rate would count it. */
const FOUND_MS = 500;
/** A rate over less time says little. */
const MIN_SECONDS = 1;

/** Words beside the bar of one step: what is done, how fast, and the time left. */
export class StepText {
  readonly #began: number;
  /** From where on the rate counts. */
  #base: { readonly at: number; readonly done: number };

  /** `now`: milliseconds when the step began. */
  constructor(now: number) {
    this.#began = now;
    this.#base = { at: now, done: 0 };
  }

  /** `12 of 40 kernels · 3.2/s · 0:09 left`; words as they are. */
  describe(detail: string | Amount | undefined, now: number): string | undefined {
    if (typeof detail !== 'object') return detail;
    const { done, total, unit } = detail;
    if (now - this.#began <= FOUND_MS) this.#base = { at: now, done };
    const seconds = (now - this.#base.at) / 1000;
    const rate = (done - this.#base.done) / seconds;
    const isBytes = unit === 'bytes';
    const parts = [isBytes ? `${bytes(done)} of ${bytes(total)}` : `${count(done)} of ${count(total)} ${unit}`];
    if (seconds >= MIN_SECONDS && rate > 0) {
      const speed = unit === 'tokens' ? si(rate, ' tokens/s') : si(rate, '/s').replace(' /', '/');
      parts.push(isBytes ? `${bytes(rate)}/s` : speed.replace(/ {2,}/, ' '));
      if (done < total) parts.push(`${clock((total - done) / rate)} left`);
    }
    return parts.join(' · ');
  }
}
