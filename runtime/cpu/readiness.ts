/**
 * Buckets of a plan become ready one by one: those that a call waits for first, then, in the background, the other ones
 * of the functions that are called.
 */
import { nameOf, type RuntimeFunction } from '../runtimePlan.js';
import type { Readiness } from '../stageRunner.js';
import type { Libraries } from './libraries.js';
import { BACKGROUND_PROCESSES } from './processes.js';

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

  /** As prepare, for nobody who waits. */
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

  /** Starts the background where nobody waits for a bucket; it ends when somebody does, or nothing is left. */
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
