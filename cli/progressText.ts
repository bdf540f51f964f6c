/** One line about a scoring run, for both user interfaces. */
import type { Amount, RunProgress } from '../driver/requests.js';
import { bytes, clock, count, percent, si } from '../system/text.js';

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
