/** What the workbenches of all targets share: the operands of a measured kernel, and how many benches are kept. */
import { parametersOf } from '../codegen/signature.js';
import type { BufferDecl, Kernel, KernelModule, WeightDecl } from '../ir/kernel.js';
import { kernelWrites } from '../ir/kernelAccess.js';
import { packedBytes, physicalToLogical, sourceRows } from '../ir/packing.js';
import { type Bucket, rowStride } from '../ir/plan.js';
import { FORMATS } from '../ir/storage.js';
import { DTYPE_BYTES } from '../ir/types.js';

/** Tables and states longer than this are allocated only in part; indices are kept inside the rows that exist. */
const MAX_TABLE_BYTES = 64 << 20;

/** Rows of a table that are allocated. */
export const rowsWithin = (rows: number, rowBytes: number): number =>
  Math.max(1, Math.min(rows, Math.floor(MAX_TABLE_BYTES / rowBytes)));

/** An operand in memory of the kind `M`. */
export interface PlacedOperand<M> {
  readonly name: string;
  readonly memory: M;
  readonly bytes: number;
}

/** The declarations of a kernel's operands. */
export class KernelOperands {
  /** Names, in the order of the kernel's parameters. */
  readonly names: readonly string[];
  readonly weights: ReadonlyMap<string, WeightDecl>;
  readonly buffers: ReadonlyMap<string, BufferDecl>;
  private readonly kernel: Kernel;
  private readonly capacity: Bucket;

  /** `capacity`: the plan's largest micro-batch. It fixes strides. */
  constructor(kernel: Kernel, module: KernelModule, capacity: Bucket) {
    this.kernel = kernel;
    this.capacity = capacity;
    this.names = parametersOf(kernel, module);
    this.buffers = new Map(module.buffers.map((buffer) => [buffer.name, buffer]));
    this.weights = new Map(module.weights.map((weight) => [weight.name, weight]));
  }

  /** Throws an Error if the module does not declare it. */
  buffer(name: string): BufferDecl {
    const buffer = this.buffers.get(name);
    if (buffer === undefined)
      throw new Error(`Kernel ${this.kernel.name} uses '${name}', which the module does not declare.`);
    return buffer;
  }

  /** Elements between the starts of a buffer's rows. */
  stride(buffer: BufferDecl): number {
    return rowStride(buffer, this.capacity.extents, DTYPE_BYTES[buffer.dtype]);
  }

  /** The operands that a launch writes, of its own copy. */
  written<M>(copy: readonly PlacedOperand<M>[] = []): readonly PlacedOperand<M>[] {
    const writes = kernelWrites(this.kernel);
    return copy.filter(({ name }) => writes.has(name));
  }
}

/** Bytes of a weight as kernels read it. `tableRows`: of a table, the rows that are allocated. */
export const weightBytes = (weight: WeightDecl, tableRows = sourceRows(weight)): number =>
  weight.layout === 'rows'
    ? FORMATS[weight.format].bytes(tableRows, weight.k) * (weight.slots?.count ?? 1)
    : packedBytes(weight, physicalToLogical(weight).length);

/** Workbenches that make room for each other, those used least recently first. */
export class KeptBenches<B extends { readonly bytes: number; release(): void }> {
  private readonly maxBytes: number;
  /** Least recently used first. */
  private readonly benches = new Map<string, B>();

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  find(key: string): B | undefined {
    const bench = this.benches.get(key);
    if (bench === undefined) return undefined;
    this.benches.delete(key);
    this.benches.set(key, bench);
    return bench;
  }

  /** Keeps a bench, which may exceed the limit by itself, and releases others. */
  keep(key: string, bench: B): B {
    this.benches.set(key, bench);
    let total = [...this.benches.values()].reduce((sum, { bytes }) => sum + bytes, 0);
    for (const [other, old] of this.benches) {
      if (total <= this.maxBytes || old === bench) break;
      total -= old.bytes;
      old.release();
      this.benches.delete(other);
    }
    return bench;
  }

  release(): void {
    for (const bench of this.benches.values()) bench.release();
    this.benches.clear();
  }
}
