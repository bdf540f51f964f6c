/** The interface that a target implements: how a checked call goes through its devices. */
import { type Extents, fitsIn } from '../ir/extents.js';
import { bucketsFor, type CallArrays, type DeviceSpan } from './call.js';
import type { StatePieces } from './reservedStates.js';
import type { SlotWrite } from './weightPlan.js';
import { defined } from '../system/defined.js';
import { functionOf, nameOf, type RuntimeFunction, type RuntimePlan } from './runtimePlan.js';

export interface StageCall {
  readonly fn: RuntimeFunction;
  /** One that is ready. */
  readonly bucket: number;
  readonly extents: Extents;
  readonly inputs: CallArrays;
  /** Whether any row has an adapter: kernels of adapters alone need not run where none has. */
  readonly hasAdapters: boolean;
  /** `profile`: each launch is measured. `search`: the results of each launch are searched for NaN and infinities. */
  readonly kind: 'run' | 'profile' | 'search';
}

/** A place among the function's launches where a value is not finite. */
export interface NonFinitePlace {
  readonly launch: number;
  readonly buffer: string;
  readonly row: number;
  readonly column: number;
}

export interface StageAnswer {
  /** In the order of the interface; the outputs of a search are not used. */
  readonly outputs: readonly ArrayBuffer[];
  readonly spans: readonly DeviceSpan[];
  /** Of every launch of the function, where profiled. */
  readonly launchNanoseconds: readonly number[];
  /** The first, where searched and found. */
  readonly nonFinite?: NonFinitePlace;
}

/** A call that comes first. */
export interface FirstCall {
  readonly function: string;
  /** About its size; of a larger one than the plan allows, the largest. */
  readonly extents: Extents;
  /** Most rows next to each other whose path begins at the same place; by default any number. */
  readonly run?: number;
}

/** Which buckets a call can run in, where some become ready only after the executor was opened. */
export interface Readiness {
  isReady(fn: RuntimeFunction, bucket: number): boolean;
  /**
   * Makes a bucket ready before all that nobody waits for. Rejects where it cannot be, such as with a kernel that does
   * not compile, and where the executor is closed first.
   */
  prepare(fn: RuntimeFunction, bucket: number): Promise<void>;
  /** Why a bucket that nobody waited for could not be made ready; undefined while all is well. */
  readonly failure: Error | undefined;
  /** Nothing becomes ready any more; pending waits are rejected. */
  stop(): void;
}

/**
 * Devices that each execute their part of every function: one, or several that hand calls on to each other. A target
 * makes one (cpu/openExecutor, cuda/openExecutor) and the executor drives it.
 */
export interface StageRunner {
  /** Calls that keep every device busy; more wait. */
  readonly inFlight: number;
  /** Absent where every bucket is ready from the beginning. */
  readonly readiness?: Readiness;
  /** Starts at once, in order of calls; never asked for more than `inFlight`, and for one search at a time. */
  run(call: StageCall): Promise<StageAnswer>;
  /** Rows that there is memory for, of the states that have one for each token. */
  readonly tokens: number;
  readonly pieces: StatePieces;
  /**
   * Has memory behind as many rows and no others, as far as there is any: resolves with their number. One at a time;
   * no call on its way uses rows that are given up.
   */
  resize(tokens: number): Promise<number>;
  /** Writes slots, which were checked, on every device that has their weights. Resolves once later calls see them. */
  writeSlots(writes: readonly SlotWrite[]): Promise<void>;
  /** The process is about to exit: what runs may end early, and later calls reject. */
  stop(): void;
  /** Nothing is in flight any more. */
  release(): Promise<void>;
}

// Buckets of calls that are known before they come.

/** A bucket of a function, by its index. */
export interface BucketOf {
  readonly fn: RuntimeFunction;
  readonly bucket: number;
}

/** Names it among all buckets of a plan. */
export const keyOf = ({ fn, bucket }: BucketOf): string => `${bucket} ${nameOf(fn)}`;

/** Each once. */
export const distinctBuckets = (buckets: readonly BucketOf[]): readonly BucketOf[] => [
  ...new Map(buckets.map((of) => [keyOf(of), of])).values(),
];

/** The bucket that holds every call of a function. */
export const largestOf = (fn: RuntimeFunction): BucketOf => ({
  fn,
  bucket: bucketsFor(fn.buckets, fn.capacity.extents, fn.capacity.longest, { hasAdapters: true })[0]!,
});

/** The best bucket of each call; of a larger call than the plan allows, the largest. */
export const bucketsOfCalls = (plan: RuntimePlan, calls: readonly FirstCall[]): readonly BucketOf[] =>
  distinctBuckets(
    calls.map(({ function: name, extents, run }): BucketOf => {
      const fn = functionOf(plan, name);
      if (!fitsIn(extents, fn.capacity.extents)) return largestOf(fn);
      return { fn, bucket: bucketsFor(fn.buckets, extents, 0, defined({ run }))[0]! };
    }),
  );
