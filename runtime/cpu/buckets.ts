/** Binds the launches of a function to memory: one program for each bucket. */
import type { Stage } from '../../ir/plan.js';
import { defined } from '../../system/defined.js';
import { loadAddon } from '../addon.js';
import { portOf, programExtents, Slots, stageInputs, stageOutputs } from '../bindPorts.js';
import { BACKGROUND_PROCESSES } from '../compilers.js';
import type { LaunchBinding, NativeLibrary, NativePool, ProgramBinding, Slot } from '../native.js';
import { floatWrites, isForAdapters, kernelOf, nameOf, type RuntimeFunction } from '../runtimePlan.js';
import type { Readiness } from '../stageRunner.js';

/** What code generation says about one launch of one bucket. */
export interface LaunchSymbol {
  /** Full path of the shared object that holds it, or the name by which that is compiled (libraries.ts). */
  readonly library: string;
  readonly symbol: string;
  /** Bytes of scratch memory that each worker needs. */
  readonly scratchBytes: number;
}

/** symbols[bucket][launch] of each function, by its name. */
export type PlanSymbols = Readonly<Record<string, readonly (readonly LaunchSymbol[])[]>>;

export interface BindRequest {
  readonly fn: RuntimeFunction;
  /** The launches of this stage. The stage with the last launch returns the outputs. */
  readonly range: Stage;
  readonly bucket: number;
  /** Symbols of all launches of the function. */
  readonly symbols: readonly LaunchSymbol[];
  readonly pool: NativePool;
  readonly libraries: ReadonlyMap<string, NativeLibrary>;
  /** Weights and states. */
  readonly shared: readonly ReadonlyMap<string, Slot>[];
  readonly arena: Slot['memory'];
  readonly scratch: Slot | undefined;
  readonly scratchBytes: number;
}

/** Scratch memory of one worker for all launches, in whole pages so that workers share none. */
export const scratchOf = (symbols: PlanSymbols): number =>
  Math.ceil(
    Math.max(
      0,
      ...Object.values(symbols)
        .flat(2)
        .map((symbol) => symbol.scratchBytes),
    ) / 4096,
  ) * 4096;

/** Binds one bucket. Throws if the plan is inconsistent; the addon checks every range again. */
export function bindBucket(request: BindRequest): ProgramBinding {
  const { fn, range } = request;
  if (request.symbols.length !== fn.launches.length)
    throw new Error(
      `${nameOf(fn)}, bucket ${request.bucket}: ${request.symbols.length} symbols for ${fn.launches.length} launches.`,
    );
  const bucket = fn.buckets[request.bucket];
  if (bucket === undefined) throw new Error(`${nameOf(fn)} has no bucket ${request.bucket}.`);
  const slots = new Slots(fn, request.arena, request.shared, 1);
  const writes = floatWrites(fn);
  const launches = fn.launches.slice(range.first, range.end).map(({ parameters }, at): LaunchBinding => {
    const i = range.first + at;
    const { library: named, symbol } = request.symbols[i]!;
    const library = request.libraries.get(named);
    if (library === undefined) throw new Error(`Launch ${i} of ${nameOf(fn)} has no library.`);
    return {
      name: kernelOf(fn, i).path,
      library,
      symbol,
      slots: parameters.map((name) => slots.of(name)),
      writes: writes[i]!.map(({ buffer, ...write }) => ({ slot: slots.of(buffer), ...write })),
      isForAdapters: isForAdapters(fn, i),
    };
  });
  return {
    pool: request.pool,
    extents: programExtents(fn.interface, bucket.extents),
    scratchBytes: request.scratchBytes,
    ...defined({ scratch: request.scratch }),
    slots: slots.list,
    launches,
    inputs: stageInputs(fn, range).map((input) => portOf(fn, input, slots.of(input.buffer))),
    outputs: stageOutputs(fn, range).map((output) => portOf(fn, output, slots.of(output.buffer))),
  };
}

// The shared objects of a plan's kernels, each loaded when it is first needed.

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

  /** Loads those of a bucket, in parallel if a call waits for them. Rejects with the reason of stop(). */
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

  /** Ends compilers and rejects pending waits. */
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

// Buckets of a plan become ready one by one: those that a call waits for first, then, in the background, the other
// ones of the functions that are called.

/** Binds the launches of a bucket, whose libraries are loaded, on every stage. */
export type Bind = (fn: RuntimeFunction, bucket: number) => void;

const keyOf = (fn: RuntimeFunction, bucket: number): string => `${nameOf(fn)} ${bucket}`;

export class CpuReadiness implements Readiness {
  failure: Error | undefined;
  private readonly libraries: Libraries;
  private readonly bind: Bind;
  private readonly ready = new Set<string>();
  /** Functions that are called. */
  private readonly called = new Map<string, RuntimeFunction>();
  /** Buckets that the background has taken. */
  private readonly taken = new Set<string>();
  private wanted = 0;
  private workers = 0;

  constructor(libraries: Libraries, bind: Bind) {
    this.libraries = libraries;
    this.bind = bind;
  }

  isReady(fn: RuntimeFunction, bucket: number): boolean {
    return this.ready.has(keyOf(fn, bucket));
  }

  async prepare(fn: RuntimeFunction, bucket: number): Promise<void> {
    this.called.set(nameOf(fn), fn);
    this.wanted++;
    try {
      await this.finish(fn, bucket, false);
    } finally {
      this.wanted--;
      this.goOn();
    }
  }

  /** As prepare, without a caller that waits. */
  begin(fn: RuntimeFunction, bucket: number): void {
    void this.prepare(fn, bucket).catch((error: unknown) => this.fail(error));
  }

  stop(): void {
    this.libraries.stop();
  }

  private async finish(fn: RuntimeFunction, bucket: number, isBackground: boolean): Promise<void> {
    if (this.isReady(fn, bucket)) return;
    await this.libraries.load(fn, bucket, isBackground);
    if (this.isReady(fn, bucket)) return;
    this.bind(fn, bucket);
    this.ready.add(keyOf(fn, bucket));
  }

  /** Starts background loading if no call waits for a bucket; it ends when one does, or when nothing is left. */
  private goOn(): void {
    while (this.workers < BACKGROUND_PROCESSES && this.next() !== undefined) {
      this.workers++;
      void this.work().finally(() => this.workers--);
    }
  }

  /** The next bucket that nobody has taken, the smallest first. */
  private next(): (() => Promise<void>) | undefined {
    if (this.wanted > 0 || this.libraries.isStopped || this.failure !== undefined) return undefined;
    for (const fn of this.called.values())
      for (const bucket of fn.buckets.keys()) {
        const key = keyOf(fn, bucket);
        if (this.ready.has(key) || this.taken.has(key)) continue;
        return () => {
          this.taken.add(key);
          return this.finish(fn, bucket, true);
        };
      }
    return undefined;
  }

  private async work(): Promise<void> {
    for (let take = this.next(); take !== undefined; take = this.next()) {
      try {
        await take();
      } catch (error) {
        this.fail(error);
      }
    }
  }

  private fail(error: unknown): void {
    if (this.libraries.isStopped) return;
    this.failure ??= error instanceof Error ? error : new Error(String(error));
  }
}
