/**
 * What a trace of `run --trace` says beside its events, under `otherData.tilewright`: driver/ writes it, the report
 * reads it.
 */

import type { StartUp } from './start.js';

/** Incremented when the meaning of a field changes. */
export const TRACE_FORMAT = 1;

/** What a device reaches at most, per second. `measured`: on this machine; `nominal`: known of its kind. */
export interface TracePeak {
  readonly perSecond: number;
  readonly source: 'measured' | 'nominal';
}

/** A kernel of the function that scores, in the order of launches. */
export interface TraceKernel {
  readonly path: string;
  readonly anchor: string;
  /** Equal for kernels of one text. */
  readonly signature: string;
}

/** A buffer of the arena, and the launches that need it, first and last inclusive. */
export interface TraceBuffer {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

export interface TraceMemory {
  readonly arenaBytes: number;
  readonly buffers: readonly TraceBuffer[];
  /** Keys, values and what else outlives a call. */
  readonly states: readonly { readonly name: string; readonly bytes: number }[];
  readonly weights?: { readonly packedBytes: number; readonly mappedBytes: number };
}

export interface TraceFacts {
  readonly format: typeof TRACE_FORMAT;
  readonly version: string;
  /** The model's name in results. */
  readonly model: string;
  /** Instruction set or architecture, and the type that is multiplied. */
  readonly isa: string;
  readonly arithmetic: string;
  readonly replicas: number;
  readonly stages: number;
  /** Of one device. */
  readonly peaks: { readonly arithmetic: TracePeak; readonly memory: TracePeak };
  readonly kernels: readonly TraceKernel[];
  readonly memory: TraceMemory;
  /** Absent where nothing was computed. */
  readonly start?: StartUp;
}
