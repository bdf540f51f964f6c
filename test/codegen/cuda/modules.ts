/** Kernel modules in the arithmetic of GPUs: 16-bit operands, K-major weights, products of 20 bits. */
import type { KernelModule } from '../../../ir/kernel.js';
import { roundAccumulators } from '../../../passes/roundAccumulators.js';
import { layerCase, type LayerCase, type LayerShape } from '../modules.js';

/** A layer with embedding and head (see layerCase). The operands of its contractions are in `dtype`. */
export function cudaLayer(
  shape: Omit<LayerShape, 'mode'>,
  sizes: { T: number; R: number },
  seed: number,
  dtype: 'bf16' | 'f16' = 'bf16',
): LayerCase {
  const { module, tensors, inputs } = layerCase({ ...shape, mode: 'amx' }, sizes, seed);
  const to = (each: KernelModule['weights'][number]): KernelModule['weights'][number] =>
    each.layout === 'vnni' ? { ...each, layout: 'kmajor', format: dtype } : each;
  const buffers = module.buffers.map((buffer) => (buffer.dtype === 'bf16' ? { ...buffer, dtype } : buffer));
  return { module: roundAccumulators({ ...module, buffers, weights: module.weights.map(to) }), tensors, inputs };
}
