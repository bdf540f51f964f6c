/** The shared objects of a plan's kernels, each loaded when it is first needed. */
import { loadAddon } from '../addon.js';
import type { NativeLibrary } from '../nativeObjects.js';
import { nameOf, type RuntimeFunction } from '../runtimePlan.js';
import type { PlanSymbols } from './bindPlan.js';

export interface CompileHow {
  /** When aborted, compilers end at once, and its reason is thrown. */
  readonly signal: AbortSignal;
  /** Nobody waits for the library: its compiler takes the processor time that others leave. */
  readonly isBackground: boolean;
}

/** Compiles the library of a name that symbols have, or finds it in the cache. Resolves with its full path. */
export type CompileLibrary = (name: string, how: CompileHow) => Promise<string>;

export class Libraries {
  /** Those that are loaded. */
  readonly loaded = new Map<string, NativeLibrary>();
  private readonly symbols: PlanSymbols;
  private readonly compile: CompileLibrary;
  private readonly loading = new Map<string, Promise<void>>();
  private readonly end = new AbortController();

  /** Without `compile`, the names that symbols give libraries are full paths. */
  constructor(symbols: PlanSymbols, compile: CompileLibrary = (path) => Promise.resolve(path)) {
    this.symbols = symbols;
    this.compile = compile;
  }

  /** Names of the libraries that a bucket runs. */
  of(fn: RuntimeFunction, bucket: number): ReadonlySet<string> {
    return new Set(this.symbols[nameOf(fn)]![bucket]!.map(({ library }) => library));
  }

  /** Loads those of a bucket, side by side where somebody waits for them. Rejects with the reason of stop(). */
  async load(fn: RuntimeFunction, bucket: number, isBackground: boolean): Promise<void> {
    const names = [...this.of(fn, bucket)];
    if (isBackground) for (const name of names) await this.get(name, true);
    else await Promise.all(names.map((name) => this.get(name, false)));
    this.end.signal.throwIfAborted();
  }

  /** Begins to load those of a bucket. What fails is thrown to whoever loads it later. */
  begin(fn: RuntimeFunction, bucket: number): void {
    void this.load(fn, bucket, false).catch(() => undefined);
  }

  /** Ends compilers and rejects whoever waits. */
  stop(): void {
    this.end.abort(new Error('This executor was closed.'));
  }

  get isStopped(): boolean {
    return this.end.signal.aborted;
  }

  /** Stops, waits until no compiler writes to the cache, and gives everything back. */
  async release(): Promise<void> {
    this.stop();
    await Promise.allSettled(this.loading.values());
    for (const library of this.loaded.values()) library.release();
    this.loaded.clear();
  }

  private get(name: string, isBackground: boolean): Promise<void> {
    let loading = this.loading.get(name);
    if (loading === undefined) {
      loading = this.open(name, isBackground);
      this.loading.set(name, loading);
    }
    return loading;
  }

  private async open(name: string, isBackground: boolean): Promise<void> {
    const { signal } = this.end;
    signal.throwIfAborted();
    const path = await this.compile(name, { signal, isBackground });
    signal.throwIfAborted();
    this.loaded.set(name, new (loadAddon().Library)(path));
  }
}
