/**
 * What an epilogue reads of its product is rounded to 20 bits, so that a schedule whose epilogue runs in other threads
 * may hand it over in 20 bits and change no answer (codegen/cuda/wgmma/deferredEpilogue.ts). Kernels in, kernels out.
 *
 * The error is at most 2⁻¹² of a product, an eighth of what rounding its operands to bf16 brings.
 */
import type { Kernel } from '../ir/kernel.js';
import { mapScalar, type Scalar } from '../ir/scalar.js';

const rounded = (value: Scalar): Scalar => mapScalar(value, (s) => (s.op === 'acc' ? { op: 'roundF20', a: s } : s));

/** Rounds the products of all weight contractions but the vocabulary's, whose logits are never handed over. */
export function roundProducts<M extends { readonly kernels: readonly Kernel[] }>(module: M): M {
  return {
    ...module,
    kernels: module.kernels.map((kernel) =>
      kernel.anchor !== 'gemm'
        ? kernel
        : {
            ...kernel,
            segments: kernel.segments.map((segment) => ({
              ...segment,
              outputs: segment.outputs.map((output) => ({ ...output, value: rounded(output.value) })),
            })),
          },
    ),
  };
}
