/** Checks what a contraction multiplies. */
import type { BufferDecl, Pairing } from './kernel.js';
import type { KernelCheck } from './kernelCheck.js';
import { sourceRows } from './packing.js';
import { FORMATS } from './storage.js';

/** How a kernel reads a weight. */
export interface Multiplied {
  readonly k: number;
  /** Rows of a matrix. */
  readonly each: number;
  readonly pairing: Pairing;
  readonly a: BufferDecl;
  readonly experts?: number | undefined;
}

const samePairing = (a: Pairing, b: Pairing): boolean =>
  a.kind === b.kind &&
  (a.kind === 'none' || b.kind === 'none' || a.width === b.width) &&
  (a.kind !== 'rotate' || b.kind !== 'rotate' || a.headDim === b.headDim);

/** Checks the weight called `name`, which a kernel multiplies with `a`: `each` rows of depth `k`, of each expert. */
export function verifyContraction(
  name: string,
  { k, each, pairing, a, experts }: Multiplied,
  check: KernelCheck,
): void {
  const rows = each * (experts ?? 1);
  const weight = check.weight(name);
  if (weight === undefined) return check.fail(`weight '${name}' is not declared.`);
  if (weight.layout === 'rows')
    check.fail(`weight '${name}' is in layout rows; a contraction reads panels, vnni or kmajor.`);
  if (weight.k !== k) check.fail(`weight '${name}' has k ${weight.k}, the kernel ${k}.`);
  if (sourceRows(weight) !== rows)
    check.fail(`weight '${name}' has ${sourceRows(weight)} rows, the kernel needs ${rows}.`);
  if (weight.experts !== experts)
    check.fail(`weight '${name}' has ${weight.experts ?? 1} matrices, the kernel reads ${experts ?? 1}.`);
  if (!samePairing(weight.pairing, pairing))
    check.fail(`weight '${name}' is packed with another pairing than the kernel reads.`);
  const { element } = FORMATS[weight.format];
  if (weight.layout === 'kmajor' && a.dtype !== element)
    check.fail(`weight '${name}' is ${weight.format}, '${a.name}' is ${a.dtype}: tensor cores multiply equal types.`);
  if (weight.layout === 'groups' && a.dtype !== 'bf16' && a.dtype !== 'f16')
    check.fail(`weight '${name}' is in groups, but '${a.name}' is ${a.dtype}: tensor cores multiply 16-bit numbers.`);
  if (weight.layout === 'vnni' && a.dtype !== element)
    check.fail(`weight '${name}' is in layout vnni, but '${a.name}' is ${a.dtype}.`);
}
