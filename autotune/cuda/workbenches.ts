/** Device memory for the operands of kernels that may be measured again, and of the last sequence of a final. */
import type { SequenceBench } from './sequence.js';
import type { CudaWorkbench } from './workbench.js';

export class Workbenches {
  private readonly memoryBytes: number;
  /** Least recently used first. */
  private readonly benches = new Map<string, CudaWorkbench>();
  private sequence: { readonly key: string; readonly bench: SequenceBench } | undefined;

  /** `memoryBytes`: most for single kernels. */
  constructor(memoryBytes: number) {
    this.memoryBytes = memoryBytes;
  }

  release(): void {
    this.releaseBenches();
    this.releaseSequence();
  }

  private releaseBenches(): void {
    for (const bench of this.benches.values()) bench.release();
    this.benches.clear();
  }

  private releaseSequence(): void {
    this.sequence?.bench.release();
    this.sequence = undefined;
  }

  /** The workbench with this key, made and prepared if there is none. Those used least make room for it. */
  async get(
    key: string,
    make: () => CudaWorkbench,
    prepare: (fresh: CudaWorkbench) => Promise<void>,
  ): Promise<CudaWorkbench> {
    const known = this.benches.get(key);
    this.benches.delete(key);
    const bench = known ?? (await prepared(make(), prepare));
    this.benches.set(key, bench);
    this.trim(bench);
    return bench;
  }

  private trim(kept: CudaWorkbench): void {
    let total = [...this.benches.values()].reduce((sum, b) => sum + b.bytes, 0);
    for (const [key, old] of this.benches) {
      if (total <= this.memoryBytes || old === kept) break;
      total -= old.bytes;
      old.release();
      this.benches.delete(key);
    }
  }

  /** The same for a sequence. It takes the place of all others: a final is held when the search is over, or nearly. */
  async getSequence(
    key: string,
    make: () => SequenceBench,
    prepare: (fresh: SequenceBench) => Promise<void>,
  ): Promise<SequenceBench> {
    if (this.sequence?.key === key) return this.sequence.bench;
    this.releaseSequence();
    this.releaseBenches();
    const bench = await prepared(make(), prepare);
    this.sequence = { key, bench };
    return bench;
  }
}

async function prepared<B extends { release(): void }>(fresh: B, prepare: (fresh: B) => Promise<void>): Promise<B> {
  try {
    await prepare(fresh);
    return fresh;
  } catch (error) {
    fresh.release();
    throw error;
  }
}
