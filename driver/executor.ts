/** Devices with a loaded model, wherever they are: in this process, in another, or several side by side. */
import type { Extents } from '../ir/extents.js';
import type { CallArrays, CallResult } from '../runtime/call.js';
import type { PhaseSpan } from './phases.js';

export interface Executor {
  /** The largest call of each function. */
  readonly capacity: Readonly<Record<string, Extents>>;
  /** Number of calls to have pending; 2 by default: one is computed while one waits. */
  readonly inFlight?: number;
  /** Devices, or pipelines of them, that compute side by side, and devices in total; 1 by default. */
  readonly replicas?: number;
  readonly devices?: number;
  /** What its processes did while they loaded. */
  readonly phases?: readonly PhaseSpan[];
  /** Calls a function with named inputs and outputs. Rejects with NonFiniteError if an output is not finite. */
  call(name: string, inputs: CallArrays): Promise<CallResult>;
  /** Calls a function once, measuring each launch. */
  profile(
    name: string,
    inputs: CallArrays,
  ): Promise<{ readonly launches: readonly { readonly path: string; readonly nanoseconds: number }[] }>;
  close(): Promise<void>;
}

export const inFlightOf = ({ inFlight = 2 }: Pick<Executor, 'inFlight'>): number => inFlight;
