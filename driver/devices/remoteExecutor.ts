/**
 * A model in a process of its own or beside others. If the process dies, hangs or loses its device, it is replaced, and
 * the next one opens the model and is asked again.
 */
import type { Extents } from '../../ir/extents.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
import type { CallArrays, CallResult } from '../../runtime/call.js';
import type { StatePieces } from '../../runtime/reservedStates.js';
import { defined } from '../../system/defined.js';
import type { Answer, AskableExecutor, Asked, Question, Replica, RequestKind } from '../executor.js';
import type { PhaseSpan } from '../phases.js';
import type { Ui } from '../requests.js';
import { DeviceProcess, type EndPart, type ProcessOptions, type Tenant } from './deviceProcess.js';
import {
  type DeviceRequest,
  endedWhileLoading,
  fatalRequest,
  type FromModel,
  ProcessEnded,
  REQUEST_FACTS,
  unpackError,
} from './protocol.js';
import type { SiblingRelay } from './siblings.js';

/** What a model is opened with. */
export interface RemoteOptions {
  readonly request: DeviceRequest;
  /**
   * The compiled model as bytes, once it is compiled: the process starts at once and waits for it. Where it rejects,
   * nothing is loaded.
   */
  readonly model: Promise<Uint8Array>;
  /**
   * Called when a process that had loaded the model ends. Its pending calls reject with ProcessEnded, so that others
   * can compute them, and opened() is a promise of the next process. If absent, the next process is asked the same
   * again, except for what needs states, which always rejects.
   */
  readonly onEnd?: (how: string) => void;
  /** The replicas that start together, and the index of this one. Only the first process takes part. */
  readonly siblings?: { readonly relay: SiblingRelay; readonly index: number };
}

/** A request that ends this many processes is at fault itself, and so is a model that does so while it is opened. */
const ATTEMPTS = 2;

interface PendingRequest {
  readonly asked: Asked;
  /** The states that it is to find, if it needs any. */
  readonly epoch: number | undefined;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
  attempts: number;
  isSent: boolean;
}

/** A promise that is settled from elsewhere. Nobody needs to wait for it. */
interface Awaited {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

function awaited(): Awaited {
  let [resolve, reject]: [Awaited['resolve'], Awaited['reject']] = [() => undefined, () => undefined];
  const promise = new Promise<void>((...settle) => {
    [resolve, reject] = settle;
  });
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}

const CLOSED = 'this executor was closed';

const factsOf = <K extends RequestKind>({ kind, question }: Asked<K>, stateful: ReadonlySet<string>) => {
  const facts = REQUEST_FACTS[kind];
  return {
    needsStates: facts.needsStates(question, stateful),
    name: facts.name(question),
    tokens: facts.tokens(question),
  };
};

/** One model on the devices of one process. */
export class RemoteExecutor implements AskableExecutor, Replica, Tenant {
  readonly model: number;
  capacity: Readonly<Record<string, Extents>> = {};
  inFlight = 2;
  phases: readonly PhaseSpan[] = [];
  pieces: StatePieces | undefined;
  tokens: number | undefined;
  adapters: AdapterSlots | undefined;
  /** Ends of processes that had loaded the model, with the states in their memory. */
  epoch = 0;
  state: Tenant['state'] = 'opening';
  isSent = false;
  isClosed = false;
  private readonly process: DeviceProcess;
  private readonly options: RemoteOptions;
  private readonly ui: Ui;
  /** Settles when the model is loaded, in this process or the next. */
  private ready = awaited();
  private failure: unknown;
  private stateful: ReadonlySet<string> = new Set();
  private readonly requests = new Map<number, PendingRequest>();
  private nextId = 0;
  /** How often it has begun to be opened, and how many processes ended meanwhile, one after another. */
  private openings = 0;
  private endsWhileOpening = 0;
  private wasLoaded = false;
  private siblings: RemoteOptions['siblings'];
  private watchdog: NodeJS.Timeout | undefined;
  private unloading: Awaited | undefined;

  private constructor(process: DeviceProcess, options: RemoteOptions, ui: Ui) {
    this.process = process;
    this.model = process.number();
    this.options = options;
    this.ui = ui;
  }

  get devices(): number {
    return this.options.request.devices.length;
  }

  /** Starts a process for one model, which sets about loading it. Close it also where opened() rejects. */
  static begin(
    { module, timeoutSeconds, loadingSeconds, ...options }: RemoteOptions & Omit<ProcessOptions, 'device' | 'target'>,
    ui: Ui,
  ): RemoteExecutor {
    const device = options.request.devices[0] ?? 0;
    const process = new DeviceProcess(
      { module, target: '', device, timeoutSeconds, ...defined({ loadingSeconds }) },
      ui,
    );
    return RemoteExecutor.open(process, options, ui);
  }

  /** Opens a model in a process, beside what it holds already. Close it also where opened() rejects. */
  static open(process: DeviceProcess, options: RemoteOptions, ui: Ui): RemoteExecutor {
    const executor = new RemoteExecutor(process, options, ui);
    process.join(executor);
    return executor;
  }

  /** Settles when the model is loaded, or with what the process could not do. */
  opened(): Promise<void> {
    if (this.state === 'opening') this.process.revive(this);
    return this.ready.promise;
  }

  call(name: string, inputs: CallArrays, epoch?: number): Promise<CallResult> {
    return this.ask('call', { function: name, inputs }, epoch);
  }

  profile(name: string, inputs: CallArrays): Promise<Answer<'profile'>> {
    return this.ask('profile', { function: name, inputs });
  }

  resize(tokens: number, epoch?: number): Promise<number> {
    return this.ask('resize', { tokens }, epoch);
  }

  /** Rejects with ProcessEnded where the states of `epoch` are gone. */
  ask<K extends RequestKind>(kind: K, question: Question<K>, epoch?: number): Promise<Answer<K>> {
    if (this.isClosed) return Promise.reject(new Error(CLOSED));
    return new Promise((resolve, reject) => {
      const id = this.nextId++;
      this.requests.set(id, {
        asked: { kind, question } as Asked,
        epoch,
        // The process says what kind its answer is of (hear).
        resolve: (answer) => resolve(answer as Answer<K>),
        reject,
        attempts: 0,
        isSent: false,
      });
      // It may have died while no request was pending.
      if (!this.process.isRunning) this.process.revive(this);
      // The next one answers too, without what the one before it kept.
      if (epoch !== undefined && epoch !== this.epoch)
        this.settle(id, (request) => request.reject(new ProcessEnded(this.process.lastEnd, false)));
      else if (this.state === 'failed') this.settle(id, (request) => request.reject(this.failure));
      else if (this.state === 'ready') this.send(id);
    });
  }

  /** Settles when the model's memory is free. Other models of its process go on. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    for (const [id, { isSent }] of this.requests) if (!isSent) this.refuse(id);
    await this.process.leave(this, () => {
      this.unloading = awaited();
      this.process.tell({ kind: 'unload', model: this.model });
      this.watch();
      return this.unloading.promise;
    });
    this.rest();
    if (this.state === 'opening') this.fail(new Error(CLOSED));
  }

  get isIdle(): boolean {
    return this.requests.size === 0;
  }

  private refuse(id: number): void {
    this.settle(id, (request) => request.reject(new Error(CLOSED)));
  }

  private send(id: number): void {
    const request = this.requests.get(id);
    if (request === undefined || request.isSent) return;
    const { needsStates, name } = factsOf(request.asked, this.stateful);
    if (needsStates && request.epoch === undefined)
      return this.settle(id, ({ reject }) => reject(new Error(`${name} does not say which states it needs`)));
    request.isSent = true;
    this.process.tell({ kind: 'ask', model: this.model, id, asked: request.asked });
    if (this.watchdog === undefined) this.watch();
  }

  /** Begins to wait, once more, for an answer to what was sent, or for any word of a process that loads the model. */
  watch(): void {
    this.rest();
    const { process, state } = this;
    const isAsked = this.unloading !== undefined || [...this.requests.values()].some(({ isSent }) => isSent);
    if (!process.isRunning || state === 'failed' || (state === 'ready' ? !isAsked : !this.isSent)) return;
    const { timeoutSeconds, loadingSeconds } = process.options;
    const seconds = state === 'ready' ? timeoutSeconds : loadingSeconds;
    this.watchdog = setTimeout(
      () =>
        process.kill(
          state === 'ready'
            ? `the device has not answered for ${seconds} s: its process is replaced`
            : `the device process has said nothing for ${seconds} s while it loads the model: it is ended`,
        ),
      seconds * 1000,
    );
  }

  private rest(): void {
    clearTimeout(this.watchdog);
    this.watchdog = undefined;
  }

  private settle(id: number, use: (request: PendingRequest) => void): void {
    const request = this.requests.get(id);
    if (request === undefined) return;
    this.requests.delete(id);
    this.watch();
    use(request);
  }

  begin(): void {
    if (this.state === 'failed') this.ready = awaited();
    this.state = 'opening';
    this.isSent = false;
    const { process, model } = this;
    const { life } = process;
    const siblings = this.openings++ === 0 ? this.options.siblings : undefined;
    this.siblings = siblings;
    this.options.model.then(
      (compiled) => {
        if (process.life !== life || !process.isRunning || this.isClosed) return;
        const member = siblings && { index: siblings.index, count: siblings.relay.count };
        const { request } = this.options;
        process.tell({ kind: 'open', model, request, compiled, ...defined({ siblings: member }) });
        this.isSent = true;
        this.watch();
        siblings?.relay.join(siblings.index, (from, word) => {
          if (process.life === life) process.tell({ kind: 'sibling', model, from, word });
        });
      },
      (error: unknown) => {
        if (process.life === life) this.fail(error);
      },
    );
  }

  hear(message: FromModel): void {
    switch (message.kind) {
      case 'phase':
        return this.ui.phase(message.name, message.detail);
      case 'note':
        return this.ui.note(message.line);
      case 'detail':
        return this.ui.detail(message.line);
      case 'warn':
        return this.ui.warn(message.line);
      case 'step':
        return this.ui.step(message.fraction, message.detail);
      case 'sibling':
        return this.siblings?.relay.say(this.siblings.index, message.word);
      case 'ready': {
        ({ capacity: this.capacity, inFlight: this.inFlight, phases: this.phases } = message);
        ({ pieces: this.pieces, tokens: this.tokens, adapters: this.adapters } = message);
        this.stateful = new Set(message.stateful);
        this.state = 'ready';
        this.endsWhileOpening = 0;
        this.watch();
        this.ready.resolve();
        for (const id of this.requests.keys()) this.send(id);
        return undefined;
      }
      case 'unopened':
        return this.fail(unpackError(message.error));
      case 'answer':
        return this.settle(message.id, ({ asked, resolve, reject }) => {
          if (asked.kind === message.of) resolve(message.answer);
          else reject(new Error('the device process answered another question'));
        });
      case 'failed':
        return this.settle(message.id, ({ reject }) => reject(unpackError(message.error)));
      case 'unloaded':
        return this.released();
      default:
        return message satisfies never;
    }
  }

  /** It cannot be opened; what was asked of it meanwhile cannot be answered. */
  fail(error: unknown): void {
    this.state = 'failed';
    this.failure = error;
    this.rest();
    this.part(error instanceof Error ? error.message : String(error));
    this.ready.reject(error);
    for (const id of [...this.requests.keys()]) this.settle(id, ({ reject }) => reject(error));
    this.process.dismiss();
  }

  /** Its siblings wait for it no longer. */
  private part(reason: string): void {
    this.siblings?.relay.leave(this.siblings.index, reason);
    this.siblings = undefined;
  }

  /** Its memory is free. */
  private released(): void {
    this.unloading?.resolve();
    this.unloading = undefined;
    this.rest();
    for (const id of [...this.requests.keys()]) this.refuse(id);
  }

  end(how: string, part: EndPart): boolean {
    this.rest();
    this.isSent = false;
    this.part(`its process ended: ${how}`);
    const wasReady = (this.wasLoaded = this.state === 'ready');
    if (wasReady) {
      this.epoch++;
      this.state = 'opening';
      this.ready = awaited();
    }
    if (this.isClosed) {
      if (!wasReady && this.state === 'opening') this.fail(endedWhileLoading(how));
      this.released();
      return false;
    }
    if (this.state === 'failed') return false;
    if (!wasReady) {
      const isAtFault = part === 'fault' || (part === 'suspect' && ++this.endsWhileOpening >= ATTEMPTS);
      if (isAtFault) this.fail(endedWhileLoading(how));
      return !isAtFault;
    }
    return this.options.onEnd === undefined ? this.requeue(how) : this.handBack(how);
  }

  /** Others compute what was asked. */
  private handBack(how: string): boolean {
    for (const id of [...this.requests.keys()])
      this.settle(id, ({ reject, isSent }) => reject(new ProcessEnded(how, isSent)));
    return true;
  }

  /** The next process is asked the same again, but for what needs states. Returns whether one is needed now. */
  private requeue(how: string): boolean {
    let isMissed = false;
    for (const [id, request] of [...this.requests]) {
      const { needsStates, name, tokens } = factsOf(request.asked, this.stateful);
      const wasSent = request.isSent;
      if (needsStates) {
        isMissed = true;
        this.settle(id, ({ reject }) => reject(new ProcessEnded(how, wasSent)));
        continue;
      }
      request.isSent = false;
      if (wasSent && ++request.attempts >= ATTEMPTS)
        this.settle(id, ({ reject }) => reject(fatalRequest(name, tokens, ATTEMPTS, how)));
    }
    return this.requests.size > 0 || isMissed;
  }

  hasEnded(how: string): void {
    const { wasLoaded } = this;
    this.wasLoaded = false;
    if (wasLoaded && !this.isClosed) this.options.onEnd?.(how);
  }
}
