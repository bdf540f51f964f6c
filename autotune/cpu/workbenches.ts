/** Memory of the kernels that may be measured again, by signature. */
import { kernelSignature } from '../../codegen/cpu/index.js';
import { everyExtent } from '../../ir/function.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket } from '../../ir/plan.js';
import type { Addon } from '../../runtime/addon.js';
import type { NativePool } from '../../runtime/nativeObjects.js';
import { kernelWork } from '../work.js';
import { Workbench } from './workbench.js';

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

/** Workbenches that make room for each other, those used least recently first. */
export class Workbenches {
  private readonly options: BenchOptions;
  private readonly addon: Addon;
  private readonly pool: NativePool;
  /** By signature, least recently used first. */
  private readonly benches = new Map<string, Workbench>();
  private readonly counts = new Map<KernelModule, ReadonlyMap<string, number>>();

  constructor(options: BenchOptions, addon: Addon, pool: NativePool) {
    this.options = options;
    this.addon = addon;
    this.pool = pool;
  }

  release(): void {
    for (const bench of this.benches.values()) bench.release();
    this.benches.clear();
  }

  /** One copy of the weights for each layer that shares the kernel, up to what exceeds the shared cache. */
  get(kernel: Kernel, module: KernelModule, signature: string): Workbench {
    const known = this.benches.get(signature);
    if (known !== undefined) {
      this.benches.delete(signature);
      this.benches.set(signature, known);
      return known;
    }
    const layers = this.countOf(module, signature);
    const weights = Math.max(
      1,
      kernelWork(kernel, module, { extents: everyExtent(module.interface, 0), longest: 0 }).bytes,
    );
    const outOfCache = Math.ceil((2 * (this.options.l3Bytes ?? 0)) / weights);
    const copies = Math.max(1, Math.min(layers, outOfCache, Math.floor(MAX_COPY_BYTES / weights), MAX_COPIES));
    const bench = new Workbench(kernel, module, this.options.capacity, copies, this.addon, this.pool);
    this.benches.set(signature, bench);
    let total = [...this.benches.values()].reduce((sum, b) => sum + b.bytes, 0);
    for (const [key, old] of this.benches) {
      if (total <= (this.options.memoryBytes ?? KEPT_BYTES) || old === bench) break;
      total -= old.bytes;
      old.release();
      this.benches.delete(key);
    }
    return bench;
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
