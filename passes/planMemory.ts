import { extentIn, type Extents } from '../ir/extents.js';
import type { BufferDecl, KernelModule } from '../ir/kernel.js';
import { mayTouch } from '../ir/kernelAccess.js';
import { ROW_PAD, rowStride, type Placement } from '../ir/plan.js';
import { DTYPE_BYTES, roundUp } from '../ir/types.js';

/** The offset of every buffer in one arena, for micro-batches up to a capacity. */
export interface MemoryPlan {
  readonly arenaBytes: number;
  readonly placements: readonly Placement[];
  /** Bytes that all buffers would take without reuse. */
  readonly withoutReuseBytes: number;
}

/** Buffers start on a page: no two share a cache line, and huge pages can be used. */
const ALIGNMENT = 4096;

/** First and last kernel (inclusive) that uses a buffer. */
interface Lifetime {
  readonly buffer: BufferDecl;
  readonly first: number;
  readonly last: number;
  readonly sizeBytes: number;
}

/**
 * Bytes of a buffer in a call of `size`. Rows are padded so that a register tile may read past the last one. The stride
 * is that of the function's `capacity`.
 */
export function bufferBytes(buffer: BufferDecl, size: Extents, capacity: Extents = size): number {
  const rows = extentIn(buffer.rows, size);
  const elementBytes = DTYPE_BYTES[buffer.dtype];
  return roundUp(rows, ROW_PAD) * rowStride(buffer, capacity, elementBytes) * elementBytes;
}

/**
 * Liveness analysis, then greedy placement: buffers by decreasing size, each at the lowest offset that is free for its
 * whole lifetime (Pisarchyk & Lee, arXiv:2001.03288, greedy by size). Inputs and outputs live from start to end.
 * States outlive the arena's contents and have memory of their own.
 */
export function planMemory(module: KernelModule, capacity: Extents): MemoryPlan {
  const lifetimes = findLifetimes(module, capacity);
  const placed: (Lifetime & { readonly offset: number })[] = [];
  for (const life of [...lifetimes].sort((a, b) => b.sizeBytes - a.sizeBytes || a.first - b.first)) {
    const busy = placed.filter((p) => p.first <= life.last && life.first <= p.last).sort((a, b) => a.offset - b.offset);
    let offset = 0;
    for (const other of busy) {
      if (other.offset - offset >= life.sizeBytes) break;
      offset = Math.max(offset, roundUp(other.offset + other.sizeBytes, ALIGNMENT));
    }
    placed.push({ ...life, offset });
  }
  return {
    arenaBytes: placed.reduce((end, p) => Math.max(end, roundUp(p.offset + p.sizeBytes, ALIGNMENT)), 0),
    placements: placed
      .sort((a, b) => a.first - b.first || a.offset - b.offset)
      .map((p) => ({ buffer: p.buffer.name, offset: p.offset, sizeBytes: p.sizeBytes })),
    withoutReuseBytes: lifetimes.reduce((sum, l) => sum + l.sizeBytes, 0),
  };
}

function findLifetimes(module: KernelModule, capacity: Extents): readonly Lifetime[] {
  const end = Math.max(0, module.kernels.length - 1);
  const range = new Map<string, [number, number]>();
  module.kernels.forEach((kernel, at) => {
    for (const name of mayTouch(kernel)) {
      const known = range.get(name);
      if (known === undefined) range.set(name, [at, at]);
      else known[1] = at;
    }
  });
  return module.buffers
    .filter((b) => b.space !== 'weight' && b.space !== 'state')
    .map((buffer) => {
      const isExternal = buffer.space !== 'arena';
      const [first, last] = isExternal ? [0, end] : (range.get(buffer.name) ?? [0, end]);
      return { buffer, first, last, sizeBytes: bufferBytes(buffer, capacity) };
    });
}
