/** Messages between the process that owns devices and its parent. Plain data, structured-cloned. */
import type { AdapterRef } from '../../engine/device.js';
import { UsageError, UserError } from '../../errors.js';
import type { Extents } from '../../ir/extents.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import type { CallArrays } from '../../runtime/call.js';
import type { StatePieces } from '../../runtime/reservedStates.js';
import type { FirstCall } from '../../runtime/stageRunner.js';
import type { Asked, Question, RequestKind } from '../executor.js';
import type { PhaseSpan } from '../phases.js';
import type { Amount, LoadRequest } from '../requests.js';
import type { Membership, SiblingWord } from './siblings.js';

/** What the child loads: one replica of the model that its parent has planned, on its devices. */
export interface DeviceRequest extends Pick<
  LoadRequest,
  'model' | 'init' | 'checkpoint' | 'trustsCode' | 'draftModel'
> {
  /** The adapter that the whole model has. */
  readonly adapter?: AdapterRef;
  /** The replica's devices, one per stage, counted from 0 among the devices of this machine that run the plan. */
  readonly devices: readonly number[];
  /** Number of pipeline stages of the replica; 1: one device executes the whole plan. */
  readonly stages: number;
  readonly replica: { /** From 0. */ readonly index: number; readonly count: number };
  /** CPU: worker threads of all its devices together. */
  readonly threads: number;
  /** The calls that will come first, where that is known. */
  readonly first?: readonly FirstCall[];
}

/** What the parent knows of each kind of request. */
interface RequestFacts<K extends RequestKind> {
  /** Whether the answer depends on states, which are gone with their process: it is not asked of the next one. */
  needsStates(question: Question<K>, stateful: ReadonlySet<string>): boolean;
  /** For messages: `a call of score`. */
  name(question: Question<K>): string;
  tokens(question: Question<K>): number;
}

const FUNCTION_CALL: Pick<RequestFacts<'call' | 'profile'>, 'name' | 'tokens'> = {
  name: ({ function: name }) => `a call of ${name}`,
  tokens: ({ inputs }) => entriesOf(inputs),
};

export const REQUEST_FACTS: { readonly [K in RequestKind]: RequestFacts<K> } = {
  call: { needsStates: ({ function: name }, stateful) => stateful.has(name), ...FUNCTION_CALL },
  profile: { needsStates: () => false, ...FUNCTION_CALL },
  resize: { needsStates: () => true, name: () => 'a change of memory', tokens: ({ tokens }) => tokens },
  step: { needsStates: () => true, name: () => 'a step', tokens: ({ tokens }) => tokens.length },
  // The next process has empty slots.
  adapter: { needsStates: () => true, name: ({ adapter }) => `loading the adapter ${adapter.path}`, tokens: () => 0 },
};

/** Models have numbers, which their parent chooses. The number of a model that was unloaded is not used again. */
export type ToChild =
  | {
      readonly kind: 'open';
      readonly model: number;
      readonly request: DeviceRequest;
      /** The compiled model (driver/artifact/planCache.ts). */
      readonly compiled: Uint8Array;
      /** Absent: it loads by itself. */ readonly siblings?: Membership;
    }
  | { readonly kind: 'sibling'; readonly model: number; readonly from: number; readonly word: SiblingWord }
  | { readonly kind: 'ask'; readonly model: number; readonly id: number; readonly asked: Asked }
  /** Releases one model, as soon as what was asked of it is answered. */
  | { readonly kind: 'unload'; readonly model: number }
  /** Releases all models and ends. */
  | { readonly kind: 'close' };

/** What the process says of one model. */
export type FromModel =
  | { readonly kind: 'phase'; readonly name: string; readonly detail?: string }
  | { readonly kind: 'note' | 'detail' | 'warn'; readonly line: string }
  | { readonly kind: 'step'; readonly fraction: number; readonly detail?: string | Amount }
  /** To all siblings. */
  | { readonly kind: 'sibling'; readonly word: SiblingWord }
  | {
      readonly kind: 'ready';
      readonly capacity: Readonly<Record<string, Extents>>;
      readonly inFlight: number;
      /** What memory of states comes and goes in, where it does. */
      readonly pieces?: StatePieces;
      /** Rows that there is memory for. */
      readonly tokens?: number;
      /** Slots for adapters of requests. */
      readonly adapters?: AdapterSlots;
      /** Functions whose calls depend on what earlier ones left in the device's memory. */
      readonly stateful: readonly string[];
      readonly phases: readonly PhaseSpan[];
    }
  /** It could not be opened. */
  | { readonly kind: 'unopened'; readonly error: SentError }
  | { readonly kind: 'answer'; readonly id: number; readonly of: RequestKind; readonly answer: unknown }
  | { readonly kind: 'failed'; readonly id: number; readonly error: SentError }
  | { readonly kind: 'unloaded' };

export type FromChild =
  | (FromModel & { readonly model: number })
  /** The device's context is lost, with all models; the process is about to end. */
  | { readonly kind: 'lost'; readonly message: string };

/** An error with the fields that its readers look for: classes do not cross processes. */
export interface SentError {
  readonly name: string;
  readonly message: string;
  readonly hint?: string;
  readonly where?: string;
  readonly rows?: readonly number[];
}

export function packError(error: unknown): SentError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error) };
  const { name, message } = error;
  return {
    name,
    message,
    ...('hint' in error && typeof error.hint === 'string' ? { hint: error.hint } : {}),
    ...('where' in error && typeof error.where === 'string' ? { where: error.where } : {}),
    ...('rows' in error && Array.isArray(error.rows) ? { rows: error.rows as readonly number[] } : {}),
  };
}

export function unpackError({ name, message, hint, ...fields }: SentError): Error {
  if (name === 'UserError') return new UserError(message, hint);
  if (name === 'UsageError') return new UsageError(message, hint);
  return Object.assign(new Error(message), fields, { name });
}

/** The process ended before it answered, or before it was asked. */
export class ProcessEnded extends Error {
  readonly how: string;
  /** Whether it may have been computing the call when it ended. */
  readonly wasAsked: boolean;

  constructor(how: string, wasAsked = true) {
    super(`the device process ended: ${how}`);
    this.name = 'ProcessEnded';
    this.how = how;
    this.wasAsked = wasAsked;
  }
}

/** The size of a call, for messages: its longest input. */
export const entriesOf = (inputs: CallArrays): number =>
  Math.max(0, ...Object.values(inputs).map(({ length }) => length));

/** The error for a request that ended its process every time it was tried. `name`: `a call of score`. */
export const fatalRequest = (name: string, tokens: number, times: number, how: string): UserError =>
  new UserError(
    `${name} with ${tokens} tokens ended the device process ${times} times: ${how}`,
    'a smaller --batch-tokens, or --target cpu, may get past it; a run with --out goes on with --resume',
  );

/** The error for a process that ended before it had loaded its model. */
export const endedWhileLoading = (how: string): UserError =>
  new UserError(
    `the device process ended while it loaded the model: ${how}`,
    'see whether nvidia-smi works on this machine, then start again',
  );

/** The error for processes that ended so often that no other is started. */
export const endedTooOften = (times: number, how: string): UserError =>
  new UserError(
    `the device process ended ${times} times within ten minutes, last: ${how}`,
    'what is finished is kept; see what nvidia-smi says of the device',
  );
