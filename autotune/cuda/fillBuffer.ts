/** Random contents of a buffer that a kernel reads, as the kernel expects them. */
import { extentIn } from '../../ir/extents.js';
import type { BufferDecl, Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { DTYPE_BYTES, type Dim } from '../../ir/types.js';
import type { CudaMemory } from '../../runtime/cuda/addon.js';
import { biasFor, bucketTrees, integersFor, type Roles } from '../randomInputs.js';
import { strideOf, type DeviceFill } from './fill.js';

/** Rows or columns in a micro-batch of the bucket's size. */
export const extentOf = (dim: Dim, bucket: Bucket): number => extentIn(dim, bucket.extents);

export interface BufferContents {
  readonly memory: CudaMemory;
  /** Of `memory`, those of the buffer. */
  readonly bytes: number;
  readonly buffer: BufferDecl;
  /** Who reads it, and what its buffers mean to it. */
  readonly kernel: Kernel;
  readonly roles: Roles;
  readonly bucket: Bucket;
  /** Largest micro-batch of the plan: fixes strides. */
  readonly capacity: Bucket;
  /** What all numbers are where they must not be negative; random without. */
  readonly constant: number | undefined;
  readonly seed: number;
}

export async function fillBuffer(
  fill: DeviceFill,
  { memory, bytes, buffer, kernel, roles, bucket, capacity, constant, seed }: BufferContents,
): Promise<void> {
  const { name, dtype } = buffer;
  const rows = extentOf(buffer.rows, bucket);
  if (dtype === 'i32') {
    memory.fill(0);
    memory.write(
      0,
      integersFor(
        roles.integers.get(name) ?? { kind: 'position' },
        bucketTrees(bucket),
        Math.min(rows, bytes / 4),
        seed,
      ),
    );
    return;
  }
  if (dtype === 'bool' || dtype === 'u8') {
    // Small bytes make every number longer, zero too: 128 and more count back from what was rounded up.
    memory.fill(1);
    return;
  }
  const stride = strideOf(buffer, capacity);
  if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias' && kernel.mask.buffer === name) {
    memory.write(0, biasFor(bucketTrees(bucket), stride));
    return;
  }
  // Rows beyond the micro-batch's stay NaN: no kernel may let them reach its results.
  memory.fill(0xff);
  const filled = Math.min(Math.max(1, rows), Math.floor(bytes / (stride * DTYPE_BYTES[dtype])));
  await fill.matrix(
    memory,
    dtype,
    filled,
    stride,
    constant === undefined ? { kind: 'random', seed, scale: 1 } : { kind: 'constant', value: constant },
  );
}
