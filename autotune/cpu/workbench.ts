/** The memory of one kernel being measured: its buffers filled with random numbers, its weights packed. */
import { createHash } from 'node:crypto';
import { kernelSignature } from '../../codegen/cpu/index.js';
import { extentIn } from '../../ir/extents.js';
import { everyExtent, type FunctionInterface } from '../../ir/function.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { kernelReads } from '../../ir/kernelAccess.js';
import { physicalToLogical, sourceRows } from '../../ir/packing.js';
import { type Bucket, ROW_PAD } from '../../ir/plan.js';
import { FORMATS } from '../../ir/storage.js';
import { type Dim, DTYPE_BYTES, type FloatType, isFloat, roundUp } from '../../ir/types.js';
import { bufferBytes } from '../../passes/planMemory.js';
import type { Addon } from '../../runtime/addon.js';
import type { NativeMemory, NativePool, PackSource, Slot } from '../../runtime/native.js';
import { biasFor, bucketTrees, type BufferRoles, integersFor, resultRows, rolesOf } from '../randomInputs.js';
import { kernelWork } from '../work.js';
import { KeptBenches, KernelOperands, type PlacedOperand, rowsWithin, weightBytes } from '../workbench.js';

type HostOperand = PlacedOperand<NativeMemory>;

/**
 * Buffers and weights of one kernel. Weights exist in several copies, because in a model the next layer's weights are
 * elsewhere: a kernel that finds its own still in the cache would be measured too fast.
 */
export class CpuWorkbench {
  readonly bytes: number;
  private readonly kernel: Kernel;
  /** The extents that kernels take. */
  readonly interface: FunctionInterface;
  private readonly capacity: Bucket;
  private readonly addon: Addon;
  private readonly pool: NativePool;
  private readonly operands: KernelOperands;
  private readonly roles: BufferRoles;
  /** copies[i]: memory of every parameter for the i-th launch. All copies share the buffers. */
  private readonly copies: readonly (readonly HostOperand[])[];
  private filledFor = '';

  /** Allocates `copies` sets of weights; pages are committed when touched. Call `fill` before use. */
  constructor(kernel: Kernel, module: KernelModule, capacity: Bucket, copies: number, addon: Addon, pool: NativePool) {
    this.kernel = kernel;
    this.interface = module.interface;
    this.capacity = capacity;
    this.addon = addon;
    this.pool = pool;
    this.operands = new KernelOperands(kernel, module, capacity);
    this.roles = rolesOf(kernel, module, (name) => this.tableRows(name));
    let total = 0;
    const place = (name: string): HostOperand => {
      const bytes = this.sizeOf(name);
      total += bytes;
      return { name, bytes, memory: new addon.Memory(bytes) };
    };
    const shared = new Map(
      this.operands.names.filter((name) => !this.isPacked(name)).map((name) => [name, place(name)]),
    );
    this.copies = Array.from({ length: copies }, () =>
      this.operands.names.map((name) => shared.get(name) ?? place(name)),
    );
    this.bytes = total;
  }

  /** slots[copy][parameter] */
  slots(): readonly (readonly Slot[])[] {
    return this.copies.map((copy) => copy.map(({ memory, bytes }) => ({ memory, offset: 0, bytes })));
  }

  release(): void {
    for (const { memory } of new Set(this.copies.flat())) memory.release();
  }

  /** Fills the weights (once) and everything that the kernel reads, for micro-batches of `bucket`. */
  async fill(bucket: Bucket): Promise<void> {
    const wanted = JSON.stringify(bucket);
    if (this.filledFor === wanted) return;
    const isFirst = this.filledFor === '';
    this.filledFor = '';
    const seen = new Set<HostOperand>();
    for (const placed of this.copies.flat()) {
      if (seen.has(placed)) continue;
      seen.add(placed);
      if (this.operands.weights.has(placed.name)) {
        if (isFirst) await this.fillWeight(placed, seen.size);
      } else if (kernelReads(this.kernel).has(placed.name)) {
        await this.fillBuffer(placed, bucket, seen.size);
      }
    }
    this.filledFor = wanted;
  }

  /** Prepares a checked run: buffers that are only written become NaN; those that are also read are filled again. */
  async prepareCheck(bucket: Bucket): Promise<void> {
    const reads = kernelReads(this.kernel);
    for (const [seed, placed] of this.written().entries()) {
      if (reads.has(placed.name)) await this.fillBuffer(placed, bucket, seed + 1);
      else placed.memory.write(0, Buffer.alloc(this.checkedBytes(placed, bucket), 0xff));
    }
  }

  /** Hash of every valid element that the kernel wrote for `bucket`. */
  digest(bucket: Bucket): string {
    const hash = createHash('sha256');
    for (const { name, memory } of this.written()) {
      const buffer = this.operands.buffer(name);
      const width = DTYPE_BYTES[buffer.dtype];
      const stride = this.operands.stride(buffer) * width;
      const rows = resultRows(this.kernel, buffer, bucket),
        rowBytes = extentOf(buffer.columns, bucket) * width;
      if (rows === 0) continue;
      const bytes = Buffer.from(memory.read(0, (rows - 1) * stride + rowBytes));
      if (stride === rowBytes) hash.update(bytes);
      else for (let r = 0; r < rows; r++) hash.update(bytes.subarray(r * stride, r * stride + rowBytes));
    }
    return hash.digest('hex');
  }

  /** Bytes of a buffer up to the last row that `digest` reads. */
  private checkedBytes({ name, bytes }: HostOperand, bucket: Bucket): number {
    const buffer = this.operands.buffer(name);
    const rows = Math.max(1, resultRows(this.kernel, buffer, bucket));
    return Math.min(bytes, rows * this.operands.stride(buffer) * DTYPE_BYTES[buffer.dtype]);
  }

  private written(): readonly HostOperand[] {
    return this.operands.written(this.copies[0]);
  }

  private isPacked(name: string): boolean {
    const weight = this.operands.weights.get(name);
    return weight !== undefined && weight.layout !== 'rows';
  }

  /** Rows of a table that are allocated; undefined for buffers over tokens or scored rows. */
  private tableRows(name: string): number | undefined {
    const rows = this.operands.buffers.get(name)?.rows;
    if (typeof rows !== 'number') return undefined;
    const weight = this.operands.weights.get(name);
    if (weight !== undefined) return rowsWithin(rows, FORMATS[weight.format].bytes(1, weight.k));
    const buffer = this.operands.buffer(name);
    const most = rowsWithin(rows, this.operands.stride(buffer) * DTYPE_BYTES[buffer.dtype]);
    return Math.min(rows, Math.max(most, extentIn(this.kernel.rows, this.capacity.extents)));
  }

  private sizeOf(name: string): number {
    const weight = this.operands.weights.get(name);
    if (weight === undefined) {
      const buffer = this.operands.buffer(name);
      return bufferBytes({ ...buffer, rows: this.tableRows(name) ?? buffer.rows }, this.capacity.extents);
    }
    return weightBytes(weight, this.tableRows(name));
  }

  private async fillWeight({ name, memory, bytes }: HostOperand, seed: number): Promise<void> {
    const weight = this.operands.weights.get(name)!;
    const { layout } = weight;
    if (layout === 'kmajor' || layout === 'groups' || layout === 'microscaled')
      throw new Error(`Weight ${name} is packed for a GPU and cannot be measured on a CPU.`);
    if (layout === 'quads') {
      // Codes and scales of ordinary size.
      memory.write(0, new Uint8Array(bytes).fill(0x35));
      return;
    }
    const isRows = layout === 'rows';
    const rows = isRows ? (this.tableRows(name) ?? sourceRows(weight)) : sourceRows(weight);
    // Scaled so that sums of k products of unit normals have variance near one.
    const scale = 1 / Math.sqrt(Math.max(1, weight.k));
    const rowMap = isRows ? Int32Array.from({ length: rows }, (_, i) => i) : physicalToLogical(weight);
    const source: PackSource = {
      kind: 'random',
      format: FORMATS[weight.format].code,
      rows,
      seed: BigInt(seed),
      scale: isRows ? 1 : scale,
    };
    await this.addon.pack(this.pool, {
      layout,
      format: FORMATS[weight.format].code,
      k: weight.k,
      rowMap,
      sources: [source],
      target: { memory, offset: 0, bytes: bytes / (weight.slots?.count ?? 1) },
    });
  }

  private async fillBuffer({ name, memory, bytes }: HostOperand, bucket: Bucket, seed: number): Promise<void> {
    const buffer = this.operands.buffer(name);
    const { dtype } = buffer;
    const valid = extentOf(buffer.rows, bucket);
    const role = this.roles.integers.get(name);
    if (dtype === 'i32') {
      memory.write(0, integersFor(role ?? { kind: 'position' }, bucket, Math.min(valid, bytes / 4), seed));
      return;
    }
    if (!isFloat(dtype)) {
      memory.write(0, new Uint8Array(bytes).fill(1));
      return;
    }
    const stride = this.operands.stride(buffer);
    if (this.kernel.anchor === 'attention' && this.kernel.mask.kind === 'bias' && this.kernel.mask.buffer === name) {
      memory.write(0, biasFor(bucketTrees(bucket), stride));
      return;
    }
    const rows = Math.min(roundUp(Math.max(1, valid), ROW_PAD), Math.floor(bytes / (stride * DTYPE_BYTES[dtype])));
    await this.addon.pack(this.pool, {
      layout: 'rows',
      format: FORMATS[dtype].code,
      k: stride,
      rowMap: Int32Array.from({ length: rows }, (_, i) => i),
      sources: [randomSource(dtype, rows, seed, this.roles.positive.has(name))],
      target: { memory, offset: 0, bytes },
    });
  }
}

const randomSource = (dtype: FloatType, rows: number, seed: number, isPositive: boolean): PackSource => {
  const format = FORMATS[dtype].code;
  return isPositive
    ? { kind: 'constant', format, rows, value: 1 }
    : { kind: 'random', format, rows, seed: BigInt(seed), scale: 1 };
};

const extentOf = (dim: Dim, bucket: Bucket): number => extentIn(dim, bucket.extents);

/** How large workbenches are, and how many are kept. */
export interface BenchOptions {
  /** Largest micro-batch of the plan. It fixes strides. */
  readonly capacity: Bucket;
  /** Bytes of the shared cache, which decide how many copies of weights exceed it. 0: unknown. */
  readonly l3Bytes?: number;
  /** Limit on the bytes of weights and buffers kept between measurements. */
  readonly memoryBytes?: number;
}

/** Limit on the bytes of weights, all copies together. */
const MAX_COPY_BYTES = 160 << 20;
const MAX_COPIES = 8;
const KEPT_BYTES = 768 << 20;

/** Benches by signature of their kernel. */
export class CpuWorkbenches {
  private readonly options: BenchOptions;
  private readonly addon: Addon;
  private readonly pool: NativePool;
  private readonly kept: KeptBenches<CpuWorkbench>;
  private readonly counts = new Map<KernelModule, ReadonlyMap<string, number>>();

  constructor(options: BenchOptions, addon: Addon, pool: NativePool) {
    this.options = options;
    this.addon = addon;
    this.pool = pool;
    this.kept = new KeptBenches(options.memoryBytes ?? KEPT_BYTES);
  }

  release(): void {
    this.kept.release();
  }

  get(kernel: Kernel, module: KernelModule, signature: string): CpuWorkbench {
    return this.kept.find(signature) ?? this.kept.keep(signature, this.make(kernel, module, signature));
  }

  /** One copy of the weights for each layer that shares the kernel, up to what exceeds the shared cache. */
  private make(kernel: Kernel, module: KernelModule, signature: string): CpuWorkbench {
    const { capacity, l3Bytes = 0 } = this.options;
    const layers = this.countOf(module, signature);
    const weights = Math.max(
      1,
      kernelWork(kernel, module, { extents: everyExtent(module.interface, 0), longest: 0 }).bytes,
    );
    const outOfCache = Math.ceil((2 * l3Bytes) / weights);
    const copies = Math.max(1, Math.min(layers, outOfCache, Math.floor(MAX_COPY_BYTES / weights), MAX_COPIES));
    return new CpuWorkbench(kernel, module, capacity, copies, this.addon, this.pool);
  }

  private countOf(module: KernelModule, signature: string): number {
    let counts = this.counts.get(module);
    if (counts === undefined) {
      const made = new Map<string, number>();
      for (const kernel of module.kernels) {
        const key = kernelSignature(kernel, module, this.options.capacity.extents);
        made.set(key, (made.get(key) ?? 0) + 1);
      }
      this.counts.set(module, made);
      counts = made;
    }
    return counts.get(signature) ?? 1;
  }
}
