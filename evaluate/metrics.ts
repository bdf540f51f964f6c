/** Accuracy as the public harness defines it. */
import { codePointLength } from '../python/value.js';
import type { Question } from './question.js';

/** Log-likelihoods of a question's choices. */
export interface Scores {
  readonly docId: number;
  /** Natural log, a sum over the choice's tokens in order, in float64. */
  readonly ll: readonly number[];
  /** Whether every token of the choice is the most likely one. */
  readonly greedy: readonly boolean[];
  /** Natural logs of the tokens of each choice, where they are kept. */
  readonly tokens?: readonly (readonly number[])[] | undefined;
}

/** 1 if the question is answered correctly, 0 otherwise. */
export interface QuestionMetrics {
  /** By the most likely choice. */
  readonly acc: 0 | 1;
  /** By the most likely choice per character. */
  readonly accNorm: 0 | 1;
}

/** Index of the first maximum. */
export function argmax(values: readonly number[]): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if ((values[i] ?? -Infinity) > (values[best] ?? -Infinity)) best = i;
  return best;
}

export function measure(question: Pick<Question, 'choices' | 'gold'>, scores: Pick<Scores, 'll'>): QuestionMetrics {
  const isRight = (length: (choice: string) => number): 0 | 1 =>
    argmax(scores.ll.map((ll, i) => ll / length(question.choices[i] ?? ''))) === question.gold ? 1 : 0;
  return {
    acc: isRight(() => 1),
    accNorm: isRight(codePointLength),
  };
}

/**
 * Mean of numbers that are 0 or 1, and its standard error from the sample deviation (null for fewer than two numbers).
 */
export function meanAndError(values: readonly number[]): { mean: number; stderr: number | null } {
  const n = values.length;
  if (n === 0) return { mean: 0, stderr: null };
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  if (n === 1) return { mean, stderr: null };
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, stderr: Math.sqrt(squares / (n - 1)) / Math.sqrt(n) };
}
