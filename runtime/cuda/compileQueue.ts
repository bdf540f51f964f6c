/** Compiles what the cache lacks on several lanes, together with other processes that lack the same. */
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../../errors.js';
import type { Header } from '../../ir/unit.js';
import type { CachedCubin, CompileClaims } from './cubinCache.js';
import type { CompilerLane } from './nvrtc.js';

/** More processes than this would only compete for memory. */
const MAX_LANES = 16;
/** Milliseconds between checks for a kernel that another process compiles. */
const POLL_MS = 50;

/** A unit that is missing from the cache. */
export interface MissingUnit {
  readonly symbol: string;
  readonly source: string;
  readonly headers: readonly Header[];
  /** Key of its cache entry. */
  readonly key: string;
  /** Those of lower rank come first, and those above 0 only once nobody waits any more. */
  readonly rank: number;
}

export interface CompileQueueOptions {
  readonly claims: CompileClaims;
  /** The cache entry, which another process may have made meanwhile. */
  readonly read: (unit: MissingUnit) => Promise<CachedCubin | undefined>;
  readonly openLane: () => CompilerLane;
  readonly compile: (lane: CompilerLane, unit: MissingUnit) => Promise<CachedCubin>;
  /** If true, a unit that does not compile is reported as its error. Otherwise the first one ends the queue. */
  readonly keepsGoing: boolean;
  readonly onCompiled: (unit: MissingUnit, made: CachedCubin | UserError) => Promise<void>;
  readonly onFound: (unit: MissingUnit, entry: CachedCubin) => void;
}

const lengthOf = ({ source, headers }: MissingUnit): number =>
  headers.reduce((sum, { text }) => sum + text.length, source.length);

/**
 * Compiles units on as many lanes as there are processors: by rank, and of equals the longest text first, so that no
 * lane ends late. What another process has claimed is left to it, and compiled here after all where that process ends
 * without a result.
 */
export class CompileQueue {
  private waiting: MissingUnit[];
  private readonly options: CompileQueueOptions;
  private readonly lanes = new Set<CompilerLane>();
  private lowest = 0;
  private hasFailed = false;
  private isStopped = false;
  private isLow = false;

  constructor(units: readonly MissingUnit[], options: CompileQueueOptions) {
    this.options = options;
    this.waiting = [...units];
    this.sort();
  }

  /** Resolves when all is done or stopped. All lanes have ended before anything is thrown: no process outlives it. */
  async run(): Promise<void> {
    const lanes = Math.min(this.waiting.length, availableParallelism(), MAX_LANES);
    const ended = await Promise.allSettled(Array.from({ length: lanes }, () => this.work()));
    const failed = ended.find((each) => each.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  /** These come before all others that wait. */
  prefer(symbols: ReadonlySet<string>): void {
    const rank = --this.lowest;
    this.waiting = this.waiting.map((unit) => (symbols.has(unit.symbol) ? { ...unit, rank } : unit));
    this.sort();
  }

  /** From now on all units are compiled, behind other processes; before, only those of rank 0 and what is preferred. */
  lower(): void {
    this.isLow = true;
    for (const lane of this.lanes) lane.lower?.();
  }

  /** Nothing more is started, and running compilations end at once without a result. */
  stop(): void {
    this.isStopped = true;
    for (const lane of this.lanes) lane.close();
  }

  private sort(): void {
    // What is not urgent need not be printed to be sorted.
    this.waiting.sort((a, b) => a.rank - b.rank || (a.rank > 0 ? 0 : lengthOf(b) - lengthOf(a)));
  }

  /** The next unit that is this process's to compile; undefined once all are found, or one has failed. */
  private async next(): Promise<MissingUnit | undefined> {
    const { claims, read, onFound } = this.options;
    /** Units that another process has claimed, since the last that was found. */
    const passed = new Set<string>();
    for (;;) {
      if (this.hasFailed || this.isStopped) return undefined;
      const at = this.waiting.findIndex(({ symbol, rank }) => !passed.has(symbol) && (this.isLow || rank <= 0));
      if (at < 0) {
        if (this.waiting.length === 0) return undefined;
        await sleep(POLL_MS);
        passed.clear();
        continue;
      }
      const [unit] = this.waiting.splice(at, 1) as [MissingUnit];
      const isOurs = await claims.acquire(unit.key);
      const entry = await read(unit);
      if (isOurs && entry === undefined) return unit;
      if (isOurs) await claims.release(unit.key);
      if (entry === undefined) {
        passed.add(unit.symbol);
        this.waiting.push(unit);
        this.sort();
        continue;
      }
      onFound(unit, entry);
      passed.clear();
    }
  }

  private open(): CompilerLane {
    const lane = this.options.openLane();
    this.lanes.add(lane);
    if (this.isLow) lane.lower?.();
    return lane;
  }

  private close(lane: CompilerLane | undefined): void {
    if (lane === undefined) return;
    this.lanes.delete(lane);
    lane.close();
  }

  private async work(): Promise<void> {
    const { claims, compile, onCompiled, keepsGoing } = this.options;
    let lane: CompilerLane | undefined;
    try {
      for (let unit = await this.next(); unit !== undefined; unit = await this.next()) {
        try {
          if (this.isStopped) return;
          lane ??= this.open();
          await onCompiled(unit, await compile(lane, unit));
        } catch (error) {
          if (this.isStopped) return;
          if (!(error instanceof UserError && keepsGoing)) {
            this.hasFailed = true;
            throw error;
          }
          // The text may have crashed the lane's process.
          this.close(lane);
          lane = undefined;
          await onCompiled(unit, error);
        } finally {
          await claims.release(unit.key);
        }
      }
    } finally {
      this.close(lane);
    }
  }
}

// Machine code of kernels by their symbols, some of which may still be on its way.

export interface Cubins {
  /** The code of a kernel where it is there already. */
  known(symbol: string): Uint8Array | undefined;
  /** Resolves when it is there. Rejects where there is no such kernel, where one does not compile, and after stop(). */
  get(symbol: string): Promise<Uint8Array>;
  /** These come before all others that are still on their way. */
  prefer(symbols: Iterable<string>): void;
  /** Lowers the priority of compilers from now on. */
  lower(): void;
  /** Ends what is under way, compilers at once. Resolves when nothing is left of it. */
  stop(): Promise<void>;
}

const noCode = (symbol: string): Error => new Error(`There is no machine code of ${symbol}.`);

/** Code that is all there. */
export const knownCubins = (cubins: ReadonlyMap<string, Uint8Array>): Cubins => ({
  known: (symbol) => cubins.get(symbol),
  get: (symbol) => {
    const cubin = cubins.get(symbol);
    return cubin === undefined ? Promise.reject(noCode(symbol)) : Promise.resolve(cubin);
  },
  prefer: () => {},
  lower: () => {},
  stop: () => Promise.resolve(),
});

/** Kernels whose code will come, each waited for by any number. */
export class ExpectedCubins {
  private readonly known = new Map<string, Uint8Array>();
  private readonly waiting = new Map<string, { resolve(cubin: Uint8Array): void; reject(error: unknown): void }>();
  private readonly promises = new Map<string, Promise<Uint8Array>>();

  constructor(symbols: Iterable<string>) {
    for (const symbol of symbols) {
      const promise = new Promise<Uint8Array>((resolve, reject) => this.waiting.set(symbol, { resolve, reject }));
      // Not everybody who could ask does.
      promise.catch(() => undefined);
      this.promises.set(symbol, promise);
    }
  }

  at(symbol: string): Uint8Array | undefined {
    return this.known.get(symbol);
  }

  get(symbol: string): Promise<Uint8Array> {
    return this.promises.get(symbol) ?? Promise.reject(noCode(symbol));
  }

  resolve(symbol: string, cubin: Uint8Array): void {
    this.known.set(symbol, cubin);
    this.waiting.get(symbol)?.resolve(cubin);
  }

  reject(symbol: string, error: unknown): void {
    this.waiting.get(symbol)?.reject(error);
  }

  /** All that has not come will not. */
  end(error: unknown): void {
    for (const { reject } of this.waiting.values()) reject(error);
  }
}
