/** Checks a kernel that chooses tokens from logits. */
import { isWithin } from './extents.js';
import type { SampleKernel } from './kernel.js';
import type { KernelCheck } from './kernelCheck.js';
import { MAX_SAMPLE_VOCAB, MAX_TOP_TOKENS, SAMPLE_INPUT_NAMES, SAMPLE_INPUTS } from './sampleInputs.js';
import type { BufferDType } from './types.js';

export function verifySample(kernel: SampleKernel, check: KernelCheck): void {
  const { rows, vocab, best, totals, inputs } = kernel;
  /** A vector of which the kernel reads the first elements, one for each of its rows. */
  const vector = (name: string, dtype: BufferDType, role: string): void => {
    const buffer = check.read(name);
    check.is(buffer, [dtype], isWithin(rows, buffer.rows, check.extents) ? buffer.rows : rows, 1, role);
  };
  if (!Number.isInteger(vocab) || vocab < 1 || vocab >= MAX_SAMPLE_VOCAB)
    check.fail(`${vocab} tokens: it takes at least 1 and fewer than ${MAX_SAMPLE_VOCAB}.`);
  if (!Number.isInteger(best.most) || best.most < 1 || best.most > MAX_TOP_TOKENS)
    check.fail(`${best.most} best tokens: it finds 1 to ${MAX_TOP_TOKENS}.`);
  check.is(check.read(kernel.logits), ['f32'], rows, vocab, 'logits');
  for (const name of [totals.top, totals.sum]) vector(name, 'f32', 'totals');
  const listed = check.read(inputs.entryToken).rows;
  for (const name of SAMPLE_INPUT_NAMES) {
    const { dtype, per } = SAMPLE_INPUTS[name];
    const buffer = check.read(inputs[name]);
    if (per === 'row') vector(inputs[name], dtype, name);
    else check.is(buffer, [dtype], per === 'token' ? buffer.rows : listed, 1, name);
  }
  vector(best.count, 'i32', 'numbers of best tokens');
  check.is(check.write(kernel.saved), ['f32'], listed, 1, 'kept logits');
  check.is(check.write(kernel.token), ['i32'], rows, 1, 'chosen tokens');
  check.is(check.write(kernel.logProb), ['f32'], rows, 1, 'log-probabilities');
  check.is(check.write(best.tokens), ['i32'], rows, best.most, 'best tokens');
  check.is(check.write(best.logProbs), ['f32'], rows, best.most, 'log-probabilities of best tokens');
}
