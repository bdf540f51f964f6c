/** One line about a scoring run, for both user interfaces. */
import type { RunProgress } from '../driver/requests.js';
import { clock, count, percent } from '../system/format.js';

/** `4,321/10,042 questions · 18,300 tokens/s · acc 28.8 %, acc_norm 28.9 % · 0:41 left`; the short form names less. */
export function describeRun(progress: RunProgress, isShort = false): string {
  const { questionsDone, questionsTotal, tokensPerSecond, accuracy, accuracyNorm, secondsLeft } = progress;
  const parts = [`${count(questionsDone)}/${count(questionsTotal)}${isShort ? '' : ' questions'}`];
  if (tokensPerSecond > 0) parts.push(`${count(tokensPerSecond)} tokens/s`);
  if (accuracy !== undefined && accuracyNorm !== undefined)
    parts.push(`acc ${percent(accuracy)}, ${isShort ? 'norm' : 'acc_norm'} ${percent(accuracyNorm)}`);
  if (secondsLeft !== undefined && questionsDone < questionsTotal) parts.push(`${clock(secondsLeft)} left`);
  return parts.join(' · ');
}

/** 0 to 1. Tokens measure the work better than questions; a resumed run without work is done. */
export function fractionOf({ questionsDone, questionsTotal, tokensDone, tokensTotal }: RunProgress): number {
  if (questionsDone >= questionsTotal) return 1;
  return Math.min(1, tokensTotal > 0 ? tokensDone / tokensTotal : questionsDone / questionsTotal);
}
