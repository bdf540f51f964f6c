/** What `step` returns for filtered rows, by the reference, for models that are made up in tests. */
import { adjustLogits, chooseToken, largestTokens, logSumExp } from '../../ir/filters.js';
import { MAX_TOP_TOKENS, mapInputs, rowSampling } from '../../ir/sampleInputs.js';
import type { StepInputs } from '../../generate/stepArrays.js';
import type { FilteredOutputs } from '../../generate/stepper.js';

/** `logitsOf`: the logits after a token at a position. */
export function filteredRows(
  inputs: StepInputs,
  logitsOf: (token: number, position: number) => ArrayLike<number>,
): FilteredOutputs {
  const given: Readonly<Record<string, ArrayLike<number> | undefined>> = {
    ...inputs,
    low: inputs.keyLow,
    high: inputs.keyHigh,
    pathToken: inputs.tokens,
    pathRow: inputs.row,
  };
  const numbers = mapInputs((name) => given[name]!);
  const rows = Array.from(inputs.topK!, (_, row) => {
    const at = inputs.row[row]!;
    const z = logitsOf(inputs.tokens[at]!, inputs.position[at]!);
    const { filters, draw, entries } = rowSampling(numbers, row, z.length);
    const total = logSumExp(z);
    const token = chooseToken(adjustLogits(z, filters, entries), filters, draw);
    const top = largestTokens(z, inputs.topCount![row]!);
    const padded = <T>(values: readonly T[], by: T): T[] => [
      ...values,
      ...new Array<T>(MAX_TOP_TOKENS - values.length).fill(by),
    ];
    return {
      ...{ token, logProb: z[token]! - total, tokens: padded(top, 0) },
      logProbs: padded(
        top.map((each) => z[each]! - total),
        0,
      ),
    };
  });
  return {
    token: Int32Array.from(rows, ({ token }) => token),
    logProb: Float32Array.from(rows, ({ logProb }) => logProb),
    topTokens: Int32Array.from(rows.flatMap(({ tokens }) => tokens)),
    topLogProbs: Float32Array.from(rows.flatMap(({ logProbs }) => logProbs)),
  };
}
