/** What kernel IR does with logits, in float64: log-probabilities by blocks, their sum, and the choice of a token. */
import type { Draw, LogProbKernel, LogProbReduceKernel, SampleKernel } from './kernel.js';
import { LOGPROB_BLOCK, partWidth } from './kernel.js';
import { evaluateScalar } from './evaluateScalar.js';
import { adjustLogits, chooseToken, largestTokens } from './filters.js';
import { drawScore, type NoiseKey } from './gumbel.js';
import { dots, leftOperand, programContext } from './interpretProducts.js';
import type { KernelMemory } from './kernelMemory.js';
import { rowSampling, mapInputs } from './sampleInputs.js';
import { softCap } from './softCap.js';

export function logProb(memory: KernelMemory, kernel: LogProbKernel): void {
  const rows = memory.extent(kernel.rows);
  const a = leftOperand(memory, kernel, rows);
  const weight = memory.weight(kernel.weight, kernel.k);
  if (weight.rows !== kernel.vocab)
    throw new Error(`weight '${kernel.weight}' has ${weight.rows} rows, vocab is ${kernel.vocab}.`);
  const parts = memory.write(kernel.parts);
  const logits = kernel.logits === undefined ? undefined : memory.write(kernel.logits);
  const context = programContext(memory, {});
  for (let row = 0; row < rows; row++) {
    context.row = row;
    const scale = evaluateScalar(kernel.rowScale, context);
    const target = memory.index(kernel.target, row, kernel.vocab);
    const key = kernel.draw === undefined ? undefined : drawKey(memory, kernel.draw, row);
    for (let start = 0; start < kernel.vocab; start += LOGPROB_BLOCK) {
      const z = new Float64Array(Math.min(LOGPROB_BLOCK, kernel.vocab - start));
      dots(a.data, row * a.columns, weight.data, start * kernel.k, kernel.k, z);
      z.forEach((product, j) => {
        z[j] = softCap(scale * product, kernel.cap);
      });
      if (logits !== undefined && row < logits.rows) logits.data.set(z, row * kernel.vocab + start);
      const max = z.reduce((most, value) => Math.max(most, value), -Infinity);
      const part = [
        max,
        z.reduce((sum, value) => sum + Math.exp(value - max), 0),
        start + z.indexOf(max),
        z[target - start] ?? -Infinity,
      ];
      if (key !== undefined) {
        const scores = z.map((value, j) => drawScore(value, key.inverseTemperature, key, start + j));
        const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
        const drawn = Math.max(0, scores.indexOf(most));
        part.push(most, start + drawn, z[drawn]!, 0);
      }
      parts.data.set(part, row * parts.columns + (partWidth(kernel) * start) / LOGPROB_BLOCK);
    }
  }
  memory.finish(kernel.parts);
  if (kernel.logits !== undefined) memory.finish(kernel.logits);
}

const drawKey = (
  memory: KernelMemory,
  draw: Draw,
  row: number,
): NoiseKey & { readonly inverseTemperature: number } => ({
  inverseTemperature: memory.read(draw.inverseTemperature).data[row]!,
  low: memory.read(draw.low).data[row]!,
  high: memory.read(draw.high).data[row]!,
});

export function logProbReduce(memory: KernelMemory, kernel: LogProbReduceKernel): void {
  const parts = memory.read(kernel.parts);
  const logProb = memory.write(kernel.logProb);
  const isArgmax = memory.write(kernel.isArgmax);
  const drawn =
    kernel.draw === undefined
      ? undefined
      : { token: memory.write(kernel.draw.token), logProb: memory.write(kernel.draw.logProb) };
  const totals =
    kernel.totals === undefined
      ? undefined
      : { top: memory.write(kernel.totals.top), sum: memory.write(kernel.totals.sum) };
  for (let row = 0; row < parts.rows; row++) {
    let max = -Infinity;
    let sum = 0;
    let argmax = -1;
    let z = -Infinity;
    let [score, token, zDrawn] = [-Infinity, 0, NaN];
    for (let at = row * parts.columns; at < (row + 1) * parts.columns; at += partWidth(kernel)) {
      const blockMax = parts.data[at]!;
      if (blockMax > max) argmax = parts.data[at + 2]!;
      const next = Math.max(max, blockMax);
      sum = (max === -Infinity ? 0 : sum * Math.exp(max - next)) + parts.data[at + 1]! * Math.exp(blockMax - next);
      max = next;
      z = Math.max(z, parts.data[at + 3]!);
      if (drawn !== undefined && parts.data[at + 4]! > score)
        [score, token, zDrawn] = [parts.data[at + 4]!, parts.data[at + 5]!, parts.data[at + 6]!];
    }
    if (drawn !== undefined) {
      drawn.token.data[row] = token;
      drawn.logProb.data[row] = zDrawn - (max + Math.log(sum));
    }
    if (totals !== undefined) [totals.top.data[row], totals.sum.data[row]] = [max, sum];
    logProb.data[row] = z - (max + Math.log(sum));
    isArgmax.data[row] = argmax === memory.index(kernel.target, row, kernel.vocab) ? 1 : 0;
  }
  for (const name of Object.values<string>({ ...kernel.draw, ...kernel.totals })) memory.finish(name);
  memory.finish(kernel.logProb);
  memory.finish(kernel.isArgmax);
}

export function sample(memory: KernelMemory, kernel: SampleKernel): void {
  const { vocab, logits, totals, inputs, saved, token, logProb, best } = kernel;
  const z = memory.read(logits);
  const [top, sum] = [memory.read(totals.top), memory.read(totals.sum)];
  const numbers = mapInputs((name) => memory.read(inputs[name]).data);
  const written = {
    token: memory.write(token),
    logProb: memory.write(logProb),
    tokens: memory.write(best.tokens),
    logProbs: memory.write(best.logProbs),
  };
  for (let row = 0; row < z.rows; row++) {
    const own = z.data.subarray(row * vocab, (row + 1) * vocab);
    const logProbOf = (at: number): number => own[at]! - (top.data[row]! + Math.log(sum.data[row]!));
    const { filters, draw, entries } = rowSampling(numbers, row, vocab);
    const chosen = chooseToken(adjustLogits(own, filters, entries), filters, draw);
    written.token.data[row] = chosen;
    written.logProb.data[row] = logProbOf(chosen);
    const most = largestTokens(own, Math.min(best.most, memory.read(best.count).data[row]!));
    written.tokens.data.set(most, row * best.most);
    written.logProbs.data.set(most.map(logProbOf), row * best.most);
  }
  memory.write(saved);
  for (const name of [token, logProb, best.tokens, best.logProbs]) memory.finish(name);
}
