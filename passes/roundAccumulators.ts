/**
 * Rounds the product that an epilogue reads to 20 bits. A schedule whose epilogue runs in other threads may then hand
 * the product over in 20 bits without changing the result (codegen/cuda/wgmma/deferredEpilogue.ts). Kernels in, kernels
 * out.
 *
 * The error is at most 2⁻¹² of a product, an eighth of the error of rounding its operands to bf16.
 */
import type { Kernel, Output } from '../ir/kernel.js';
import { mapOutputs } from '../ir/kernelAccess.js';
import { mapScalar, type Scalar } from '../ir/scalar.js';

const rounded = (value: Scalar): Scalar => mapScalar(value, (s) => (s.op === 'acc' ? { op: 'roundF20', a: s } : s));

/** Rounds the products of all weight contractions except the vocabulary's, whose logits are never handed over. */
export function roundAccumulators<M extends { readonly kernels: readonly Kernel[] }>(module: M): M {
  const outputs = (all: readonly Output[]): readonly Output[] =>
    all.map((output) => ({ ...output, value: rounded(output.value) }));
  const kernels = module.kernels.map((kernel) => (kernel.anchor === 'gemm' ? mapOutputs(kernel, outputs) : kernel));
  return { ...module, kernels };
}
