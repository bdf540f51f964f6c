/** Attention of kernel IR in float64: keys that a query sees, their softmax, and the mean of their values. */
import type { AttentionKernel, Mask } from './kernel.js';
import { scaleBuffers } from './kernelAccess.js';
import type { KernelMemory } from './kernelMemory.js';
import { dot } from './interpretProducts.js';
import { softCap } from './softCap.js';

export function attention(memory: KernelMemory, kernel: AttentionKernel): void {
  const { heads, kvHeads, headDim, scale, mask } = kernel;
  const rows = memory.extent(kernel.rows);
  const q = memory.read(kernel.q);
  const k = memory.read(kernel.k);
  const tokens = k.rows;
  const v = memory.read(kernel.v);
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => memory.read(name));
  const out = memory.write(kernel.out);
  const visible = visibleKeys(memory, mask, tokens);
  for (let row = 0; row < rows; row++) {
    const query = kernel.queryRow === undefined ? row : memory.index(kernel.queryRow, row, q.rows);
    const keys = visible(query);
    if (keys.length === 0) throw new Error(`query ${query} sees no key, so its softmax has no value.`);
    const scores = new Float64Array(keys.length);
    for (let h = 0; h < heads; h++) {
      const kv = Math.floor((h * kvHeads) / heads);
      let max = -Infinity;
      keys.forEach(({ row: key, bias }, i) => {
        const product =
          scale * dot(q.data, query * q.columns + h * headDim, k.data, key * k.columns + kv * headDim, headDim);
        const scaled = product * (kScale?.data[key * kScale.columns + kv] ?? 1);
        scores[i] = softCap(scaled, kernel.cap) + bias;
        max = Math.max(max, scores[i]!);
      });
      let sum = 0;
      for (let i = 0; i < keys.length; i++) sum += scores[i] = Math.exp(scores[i]! - max);
      keys.forEach(({ row: key }, at) => {
        const p = scores[at]! / sum;
        if (p === 0) return;
        const weight = p * (vScale?.data[key * vScale.columns + kv] ?? 1);
        for (let i = 0; i < headDim; i++) {
          out.data[row * out.columns + h * headDim + i]! += weight * v.data[key * v.columns + kv * headDim + i]!;
        }
      });
    }
  }
  memory.finish(kernel.out);
}

/** A key that a query sees: its row among keys and values, and what is added to its score. */
interface VisibleKey {
  readonly row: number;
  readonly bias: number;
}

/** The keys that a query sees, in order. `rows`: rows of keys and values. */
function visibleKeys(memory: KernelMemory, mask: Mask, rows: number): (query: number) => readonly VisibleKey[] {
  const all = Array.from({ length: rows }, (_, row) => row);
  switch (mask.kind) {
    case 'column': {
      const end = memory.read(mask.subtreeEnd);
      const { window = Infinity } = mask;
      const position = mask.position === undefined ? undefined : memory.read(mask.position).data;
      const isNear = (query: number, key: number): boolean =>
        position === undefined || position[query]! - position[key]! < window;
      return (query) =>
        all
          .filter((key) => key <= query && query < end.data[key]! && isNear(query, key))
          .map((row) => ({ row, bias: 0 }));
    }
    case 'path': {
      const [position, key] = [memory.read(mask.position), memory.read(mask.key)];
      return (query) => {
        const first = memory.index(mask.begin, query, key.rows);
        const last = position.data[query]!;
        const begin = mask.window === undefined ? 0 : Math.max(0, last + 1 - mask.window);
        const count = Math.max(0, Math.min(last + 1, key.rows - first) - begin);
        return Array.from({ length: count }, (_, i) => ({
          row: memory.index(mask.key, first + begin + i, rows),
          bias: 0,
        }));
      };
    }
    case 'bias': {
      const bias = memory.read(mask.buffer);
      return (query) =>
        all.map((row) => ({ row, bias: bias.data[query * rows + row]! })).filter((key) => key.bias !== -Infinity);
    }
    default:
      return mask satisfies never;
  }
}
