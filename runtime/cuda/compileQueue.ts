/** Compiles what the cache lacks on several lanes, together with other processes that lack the same. */
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../../errors.js';
import type { CompileClaims } from './compileClaims.js';
import type { CachedCubin } from './cubinCache.js';
import type { Lane } from './nvrtcLanes.js';

/** More processes than this would only compete for memory. */
const MAX_LANES = 16;
/** Milliseconds between checks for a kernel that another process compiles. */
const POLL_MS = 50;

/** A unit that is missing from the cache. */
export interface MissingUnit {
  readonly symbol: string;
  readonly source: string;
  /** Key of its cache entry. */
  readonly key: string;
}

export interface CompileQueue {
  readonly claims: CompileClaims;
  /** The cache entry, which another process may have made meanwhile. */
  readonly read: (unit: MissingUnit) => Promise<CachedCubin | undefined>;
  readonly openLane: () => Lane;
  readonly compile: (lane: Lane, unit: MissingUnit) => Promise<CachedCubin>;
  /** If true, a unit that does not compile is reported as its error. Otherwise the first one ends the queue. */
  readonly keepsGoing: boolean;
  /** When aborted, nothing more is started, and running compilations end at once without a result. */
  readonly signal: AbortSignal | undefined;
  readonly onCompiled: (unit: MissingUnit, made: CachedCubin | UserError) => Promise<void>;
  readonly onFound: (unit: MissingUnit, entry: CachedCubin) => void;
}

/**
 * Compiles the units on as many lanes as there are processors; longest text first, so that no lane ends late. What
 * another process has claimed is left to it, and compiled here after all where that process ends without a result.
 * All lanes have ended before anything is thrown: no process outlives the call.
 */
export async function compileMissing(units: readonly MissingUnit[], queue: CompileQueue): Promise<void> {
  const waiting = [...units].sort((a, b) => b.source.length - a.source.length);
  let hasFailed = false;
  const isStopped = (): boolean => queue.signal?.aborted === true;

  /** The next unit that is this process's to compile; undefined once all are found, or one has failed. */
  const next = async (): Promise<MissingUnit | undefined> => {
    let passed = 0;
    for (;;) {
      if (hasFailed || isStopped()) return undefined;
      const unit = waiting.shift();
      if (unit === undefined) return undefined;
      if (await queue.claims.acquire(unit.key)) {
        const entry = await queue.read(unit);
        if (entry === undefined) return unit;
        await queue.claims.release(unit.key);
        queue.onFound(unit, entry);
        passed = 0;
        continue;
      }
      const entry = await queue.read(unit);
      if (entry !== undefined) {
        queue.onFound(unit, entry);
        passed = 0;
        continue;
      }
      waiting.push(unit);
      if (++passed >= waiting.length) {
        await sleep(POLL_MS);
        passed = 0;
      }
    }
  };

  const open = new Set<Lane>();
  const close = (lane: Lane | undefined): void => {
    if (lane === undefined) return;
    open.delete(lane);
    lane.close();
  };
  const work = async (): Promise<void> => {
    let lane: Lane | undefined;
    try {
      for (let unit = await next(); unit !== undefined; unit = await next()) {
        try {
          if (lane === undefined) open.add((lane = queue.openLane()));
          await queue.onCompiled(unit, await queue.compile(lane, unit));
        } catch (error) {
          if (isStopped()) return;
          if (!(error instanceof UserError && queue.keepsGoing)) {
            hasFailed = true;
            throw error;
          }
          // The text may have crashed the lane's process.
          close(lane);
          lane = undefined;
          await queue.onCompiled(unit, error);
        } finally {
          await queue.claims.release(unit.key);
        }
      }
    } finally {
      close(lane);
    }
  };
  // One listener for all lanes: Node warns of more than ten.
  const stop = (): void => {
    for (const lane of open) lane.close();
  };
  queue.signal?.addEventListener('abort', stop, { once: true });
  const lanes = Math.min(units.length, availableParallelism(), MAX_LANES);
  const ended = await Promise.allSettled(Array.from({ length: lanes }, work));
  queue.signal?.removeEventListener('abort', stop);
  const failed = ended.find((each) => each.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}
