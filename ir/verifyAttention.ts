/** Checks an attention kernel and its mask. */
import { CACHE_FORMATS } from './cacheFormat.js';
import type { AttentionKernel, Mask } from './kernel.js';
import { windowOfMask } from './kernel.js';
import { scaleBuffers } from './kernelAccess.js';
import type { KernelCheck } from './kernelCheck.js';
import type { BufferDType, Dim } from './types.js';
import { isExtent } from './verifyWeight.js';

export function verifyAttention(kernel: AttentionKernel, check: KernelCheck): void {
  const { heads, kvHeads, headDim, scale, mask } = kernel;
  if (![heads, kvHeads, headDim].every(isExtent))
    check.fail('heads, kvHeads and headDim are whole numbers, at least 1.');
  if (heads % kvHeads !== 0) check.fail(`${heads} heads are not a multiple of ${kvHeads} key-value heads.`);
  if (!(Number.isFinite(scale) && scale > 0)) check.fail(`scale ${scale} is not a positive number.`);
  verifyCap(kernel.cap, check);
  const float: readonly BufferDType[] = ['f32', 'bf16', 'f16'];
  const k = check.read(kernel.k);
  const keys = k.rows;
  const q = check.read(kernel.q);
  const queries = mask.kind === 'path' ? q.rows : keys;
  check.is(q, float, queries, heads * headDim, 'queries');
  const stored = kernel.scales === undefined ? float : CACHE_FORMATS;
  check.is(k, stored, keys, kvHeads * headDim, 'keys');
  check.is(check.read(kernel.v), [k.dtype], keys, kvHeads * headDim, 'values');
  for (const name of scaleBuffers(kernel)) check.is(check.read(name), ['f32'], keys, kvHeads, 'scales');
  verifyMask(mask, queries, keys, check);
  if (kernel.queryRow !== undefined) check.is(check.read(kernel.queryRow), ['i32'], kernel.rows, 1, 'rows of queries');
  if (kernel.queryRow === undefined && kernel.rows !== queries)
    check.fail(`its rows are ${kernel.rows}, those of its queries ${queries}: it needs a queryRow.`);
  check.is(check.write(kernel.out), float, kernel.rows, heads * headDim, 'the result');
}

/** The limit of a soft cap, if there is one. */
export function verifyCap(cap: number | undefined, check: KernelCheck): void {
  if (cap !== undefined && !(Number.isFinite(cap) && cap > 0)) check.fail(`cap ${cap} is not a positive number.`);
}

function verifyMask(mask: Mask, queries: Dim, keys: Dim, check: KernelCheck): void {
  const window = windowOfMask(mask);
  if (window !== undefined && !isExtent(window)) check.fail(`a window of ${window} keys is no whole number above 0.`);
  switch (mask.kind) {
    case 'column':
      if ((mask.position === undefined) !== (window === undefined))
        check.fail('trees need positions for a window, and only for one.');
      if (mask.position !== undefined) check.is(check.read(mask.position), ['i32'], keys, 1, 'positions');
      return check.is(check.read(mask.subtreeEnd), ['i32'], keys, 1, 'ends of subtrees');
    case 'path': {
      check.is(check.read(mask.begin), ['i32'], queries, 1, 'beginnings of paths');
      check.is(check.read(mask.position), ['i32'], queries, 1, 'positions of queries');
      const key = check.read(mask.key);
      return check.is(key, ['i32'], key.rows, 1, 'rows of keys');
    }
    case 'bias':
      return check.is(check.read(mask.buffer), ['f32'], keys, keys, 'an attention bias');
    default:
      return mask satisfies never;
  }
}
