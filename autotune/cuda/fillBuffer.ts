/** Random contents for a buffer that a kernel reads, in the form the kernel expects. */
import { extentIn } from '../../ir/extents.js';
import type { BufferDecl, Kernel } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import { DTYPE_BYTES, type Dim } from '../../ir/types.js';
import type { CudaMemory } from '../../runtime/cuda/nativeDevice.js';
import { biasFor, bucketTrees, integersFor, type Roles } from '../randomInputs.js';
import { strideOf, type DeviceFill } from './fill.js';

/** Rows or columns in a micro-batch of the bucket's size. */
export const extentOf = (dim: Dim, bucket: Bucket): number => extentIn(dim, bucket.extents);

export interface BufferContents {
  readonly memory: CudaMemory;
  /** Size of the buffer within `memory`. */
  readonly bytes: number;
  readonly buffer: BufferDecl;
  /** The kernel that reads it, which gives its values their meaning. */
  readonly kernel: Kernel;
  readonly roles: Roles;
  readonly bucket: Bucket;
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
  /** The value of every element where values must not be negative; undefined: random values. */
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
      integersFor(roles.integers.get(name) ?? { kind: 'position' }, bucket, Math.min(rows, bytes / 4), seed),
    );
    return;
  }
  if (dtype === 'i8') {
    memory.fill(0x38);
    return;
  }
  if (dtype === 'bool' || dtype === 'u8') {
    // The bytes extend bf16 numbers, which may be zero, so they must be small. 128 and more are negative.
    memory.fill(1);
    return;
  }
  const stride = strideOf(buffer, capacity);
  if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias' && kernel.mask.buffer === name) {
    memory.write(0, biasFor(bucketTrees(bucket), stride));
    return;
  }
  // Rows beyond the micro-batch stay NaN: no kernel may let them affect its results.
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
