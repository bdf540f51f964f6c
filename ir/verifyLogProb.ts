/** Checks the two kernels that make log-probabilities: parts of a log-sum-exp, and what they amount to. */
import { isWithin } from './extents.js';
import type { BufferDecl, LogProbKernel, LogProbReduceKernel } from './kernel.js';
import { LOGPROB_BLOCK, partWidth } from './kernel.js';
import type { KernelCheck } from './kernelCheck.js';
import { verifyCap } from './verifyAttention.js';
import { verifyContraction } from './verifyContraction.js';
import { isRowInvariant } from './rowInvariant.js';
import { verifyProgram } from './verifyProgram.js';
import { isExtent } from './verifyWeight.js';

export function verifyLogProb(kernel: LogProbKernel, check: KernelCheck): void {
  if (!isExtent(kernel.k) || !isExtent(kernel.vocab)) check.fail('k and vocab are whole numbers, at least 1.');
  const a = check.read(kernel.a);
  check.is(a, ['f32', 'bf16', 'f16'], kernel.rows, kernel.k, 'the left operand');
  verifyContraction(kernel.weight, { k: kernel.k, each: kernel.vocab, pairing: { kind: 'none' }, a }, check);
  if (!isRowInvariant(kernel.rowScale)) check.fail('rowScale differs between columns of a row.');
  verifyCap(kernel.cap, check);
  verifyProgram(
    kernel.rowScale,
    { rows: kernel.rows, columns: kernel.vocab, accumulators: 0, headDim: undefined },
    check,
  );
  check.is(check.read(kernel.target), ['i32'], kernel.rows, 1, 'target tokens');
  if (kernel.draw !== undefined) {
    const { inverseTemperature, low, high } = kernel.draw;
    check.is(check.read(inverseTemperature), ['f32'], kernel.rows, 1, 'inverse temperatures');
    for (const half of [low, high]) check.is(check.read(half), ['i32'], kernel.rows, 1, 'keys of noise');
  }
  if (kernel.logits !== undefined) {
    const logits = check.write(kernel.logits);
    if (logits.space !== 'arena') check.fail(`'${logits.name}' is an ${logits.space}: logits stay in the arena.`);
    if (!isWithin(logits.rows, kernel.rows, check.extents))
      check.fail(`'${logits.name}' has ${logits.rows} rows, which are not the first of ${kernel.rows}.`);
    check.is(logits, ['f32'], logits.rows, kernel.vocab, 'logits');
  }
  verifyParts(check.write(kernel.parts), kernel, check);
}

function verifyParts(parts: BufferDecl, kernel: LogProbKernel | LogProbReduceKernel, check: KernelCheck): void {
  const columns = partWidth(kernel) * Math.ceil(kernel.vocab / LOGPROB_BLOCK);
  check.is(parts, ['f32'], kernel.rows, columns, 'parts of a log-sum-exp');
}

export function verifyLogProbReduce(kernel: LogProbReduceKernel, check: KernelCheck): void {
  if (!isExtent(kernel.vocab)) check.fail('vocab is a whole number, at least 1.');
  verifyParts(check.read(kernel.parts), kernel, check);
  check.is(check.read(kernel.target), ['i32'], kernel.rows, 1, 'target tokens');
  check.is(check.write(kernel.logProb), ['f32'], kernel.rows, 1, 'log-probabilities');
  check.is(check.write(kernel.isArgmax), ['i32'], kernel.rows, 1, 'argmax flags');
  if (kernel.totals !== undefined)
    for (const name of Object.values<string>({ ...kernel.totals }))
      check.is(check.write(name), ['f32'], kernel.rows, 1, 'totals');
  if (kernel.draw === undefined) return;
  check.is(check.write(kernel.draw.token), ['i32'], kernel.rows, 1, 'drawn tokens');
  check.is(check.write(kernel.draw.logProb), ['f32'], kernel.rows, 1, 'log-probabilities of the drawn tokens');
}
