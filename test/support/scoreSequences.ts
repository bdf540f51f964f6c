/** Sequences by the function score, one call each. */
import type { LoadedModel } from '../../commands/loadModel.js';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { SCORE } from '../../ir/function.js';

/** Log-probabilities of every token but the first. */
export async function scoreSequence({ executor }: LoadedModel, tokens: readonly number[]): Promise<number[]> {
  const all = Int32Array.from(tokens, (_, i) => i);
  const batch = {
    tokens: Int32Array.from(tokens),
    position: all,
    subtreeEnd: all.map(() => tokens.length),
    row: all.slice(0, -1),
    target: Int32Array.from(tokens.slice(1)),
  };
  return Array.from(scoredRows(await executor.call(SCORE, scoreInputs(batch, executor))).logProb);
}

export const scoreSequences = (model: LoadedModel, sequences: readonly (readonly number[])[]): Promise<number[][]> =>
  Promise.all(sequences.map((tokens) => scoreSequence(model, tokens)));
