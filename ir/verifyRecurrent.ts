/** Checks the kernels of recurrent layers. */
import type { LinksKernel, ScanKernel } from './kernel.js';
import { MAX_BACK } from './paths.js';
import { MAX_KEY_DIM } from './scan.js';
import type { BufferDType } from './types.js';
import { isExtent, type KernelCheck } from './verifyAnchors.js';

export function verifyLinks(kernel: LinksKernel, check: KernelCheck): void {
  const { rows, paths, before, end } = kernel;
  if (paths.kind === 'column') check.is(check.read(paths.subtreeEnd), ['i32'], rows, 1, 'ends of subtrees');
  else {
    check.is(check.read(paths.begin), ['i32'], rows, 1, 'beginnings of paths');
    check.is(check.read(paths.position), ['i32'], rows, 1, 'positions');
    const key = check.read(paths.key);
    check.is(key, ['i32'], key.rows, 1, 'rows of paths');
  }
  if (before.length > MAX_BACK + 1) check.fail(`it goes back by ${before.length} numbers of tokens.`);
  for (const { back, out } of before) {
    if (!Number.isInteger(back) || back < 0 || back > MAX_BACK)
      check.fail(`it goes back ${back} tokens: from 0 to ${MAX_BACK} can be.`);
    check.is(check.write(out), ['i32'], rows, 1, 'rows of tokens before');
  }
  if (end !== undefined && paths.kind === 'column') check.fail('ends of subtrees are an input.');
  if (end !== undefined) check.is(check.write(end), ['i32'], rows, 1, 'ends of subtrees');
}

export function verifyScan(kernel: ScanKernel, check: KernelCheck): void {
  const { rows, keyHeads, heads, keyDim, valueDim, scale, epsilon } = kernel;
  if (![keyHeads, heads, keyDim, valueDim].every(isExtent))
    check.fail('numbers of heads and their widths are whole numbers, at least 1.');
  if (heads % keyHeads !== 0) check.fail(`${heads} heads cannot share ${keyHeads} heads of keys evenly.`);
  if (keyDim > MAX_KEY_DIM) check.fail(`keys of ${keyDim} are wider than ${MAX_KEY_DIM}.`);
  for (const factor of [scale, epsilon])
    if (factor !== undefined && !(Number.isFinite(factor) && factor > 0))
      check.fail(`${factor} is not a positive number.`);
  const float: readonly BufferDType[] = ['f32', 'bf16', 'f16'];
  const q = check.read(kernel.q);
  check.is(q, float, rows, keyHeads * keyDim, 'queries');
  check.is(check.read(kernel.k), [q.dtype], rows, keyHeads * keyDim, 'keys');
  check.is(check.read(kernel.v), [q.dtype], rows, heads * valueDim, 'values');
  check.is(check.read(kernel.decay), ['f32'], rows, heads, 'decays');
  check.is(check.read(kernel.beta), ['f32'], rows, heads, 'betas');
  if (kernel.skip !== undefined) check.is(check.read(kernel.skip), float, heads, 1, 'factors of values');
  check.is(check.read(kernel.before), ['i32'], rows, 1, 'rows before');
  check.is(check.read(kernel.end), ['i32'], rows, 1, 'ends of subtrees');
  check.is(check.write(kernel.out), float, rows, heads * valueDim, 'the result');
  if (kernel.kept === undefined) return;
  const { state: name, from, to } = kernel.kept;
  const state = check.read(name);
  if (state.space !== 'state') check.fail(`'${name}' is an ${state.space}: states are kept in states.`);
  check.is(state, ['f32'], state.rows, heads * keyDim * valueDim, 'states');
  for (const each of [from, ...to]) check.is(check.read(each), ['i32'], rows, 1, 'rows of states');
}
