/** Devices with a loaded model, wherever they are: in this process, in another, or several side by side. */
import type { AdapterRef, StepAnswer, StepMessage } from '../engine/device.js';
import type { Extents } from '../ir/extents.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import type { CallArrays, CallResult } from '../runtime/call.js';
import type { StatePieces } from '../runtime/reservedStates.js';
import type { SlotWrite } from '../runtime/weightPlan.js';
import type { PhaseSpan } from './phases.js';

export interface ProfiledLaunch {
  readonly path: string;
  readonly nanoseconds: number;
}

/** A function and its inputs. */
export interface FunctionCall {
  readonly function: string;
  readonly inputs: CallArrays;
}

/**
 * What a loaded model can be asked, wherever it is. A kind of request is a member here, an entry of REQUEST_FACTS
 * (devices/protocol.ts) and one of ANSWERS (devices/hostedModel.ts).
 */
export interface DeviceRequests {
  /** Calls a function. */
  readonly call: { readonly question: FunctionCall; readonly answer: CallResult };
  /** Calls a function once, measuring each launch. */
  readonly profile: {
    readonly question: FunctionCall;
    readonly answer: { readonly launches: readonly ProfiledLaunch[] };
  };
  /** Has memory behind so many rows of states, as `DeviceExecutor.resize`. */
  readonly resize: { readonly question: { readonly tokens: number }; readonly answer: number };
  /** A step of sequences that the model's table has (engine/device.ts). */
  readonly step: { readonly question: StepMessage; readonly answer: StepAnswer };
  /** Puts an adapter into a slot. No call that names the slot is under way. */
  readonly adapter: {
    readonly question: { readonly slot: number; readonly adapter: AdapterRef };
    readonly answer: null;
  };
}

export type RequestKind = keyof DeviceRequests;
export type Question<K extends RequestKind> = DeviceRequests[K]['question'];
export type Answer<K extends RequestKind> = DeviceRequests[K]['answer'];

/** A request of one of the kinds `K`. */
export type Asked<K extends RequestKind = RequestKind> = {
  readonly [P in K]: { readonly kind: P; readonly question: Question<P> };
}[K];

export interface DeviceExecutor {
  /** The largest call of each function. */
  readonly capacity: Readonly<Record<string, Extents>>;
  /** Number of calls to have pending; 2 by default: one is computed while one waits. */
  readonly inFlight?: number;
  /** Devices, or pipelines of them, that compute side by side, and devices in total; 1 by default. */
  readonly replicas?: number;
  readonly devices?: number;
  /** The replicas one by one, where there are several: keys and values are in the memory of one of them. */
  readonly members?: readonly Replica[];
  /**
   * Settles when the model is loaded, also again after a call that rejected with ProcessEnded; rejects where it cannot
   * be. Absent where no other process is concerned.
   */
  opened?(): Promise<void>;
  /**
   * Which memory functions keep their states in: another number as soon as what they kept is gone. Absent where the
   * memory is this process's own.
   */
  readonly epoch?: number;
  /** Memory that it holds on all its devices, where that is known. */
  readonly heldBytes?: number;
  /** What its processes did while they loaded. */
  readonly phases?: readonly PhaseSpan[];
  /**
   * Calls a function with named inputs and outputs. Rejects with NonFiniteError if an output is not finite. `epoch`:
   * that of the states that a function with states is to find. Rejects with ProcessEnded where they are gone.
   */
  call(name: string, inputs: CallArrays, epoch?: number): Promise<CallResult>;
  /**
   * The same with inputs that are made when the turn of the call has come, which rejects with what `make` throws.
   * Absent where another process has the devices.
   */
  callInTurn?(name: string, make: () => CallArrays): Promise<CallResult>;
  /** Calls a function once, measuring each launch. */
  profile(name: string, inputs: CallArrays): Promise<Answer<'profile'>>;
  /**
   * Resolves when each call runs in the bucket that is best for it, for measurements. Absent where another process
   * knows.
   */
  prepare?(): Promise<void>;
  /**
   * Has memory behind the first `tokens` rows of the states that have a row for each token, as soon as the calls before
   * are over. Resolves with the number of rows there is memory for: fewer where it ran out, never fewer than before
   * unless that was asked. `epoch`: as for a call.
   */
  resize?(tokens: number, epoch?: number): Promise<number>;
  /** What that memory comes and goes in, and the rows that there is memory for; undefined where it does not. */
  readonly pieces?: StatePieces | undefined;
  readonly tokens?: number | undefined;
  /**
   * Writes slots of weights, between calls or beside calls that do not name them. Absent where another process has the
   * devices.
   */
  writeSlots?(writes: readonly SlotWrite[]): Promise<void>;
  /** Slots for adapters of requests; absent where there are none, or one adapter belongs to the whole model. */
  readonly adapters?: AdapterSlots | undefined;
  close(): Promise<void>;
}

/** One replica of a model: it can be asked whatever a model can be asked. */
export interface AskableExecutor extends DeviceExecutor {
  /** `epoch`: as for a call; needed by every request that finds or changes states. */
  ask<K extends RequestKind>(kind: K, question: Question<K>, epoch?: number): Promise<Answer<K>>;
}

/** An executor whose process may end and be replaced; what functions kept in its memory is then lost. */
export interface Replica extends DeviceExecutor {
  readonly epoch: number;
  opened(): Promise<void>;
}

export const inFlightOf = ({ inFlight = 2 }: Pick<DeviceExecutor, 'inFlight'>): number => inFlight;
