/**
 * An executor in a process of its own. If the process dies, hangs or loses its device, it is replaced and asked again.
 */
import type { ChildProcess } from 'node:child_process';
import { defined } from '../../system/defined.js';
import type { Extents } from '../../ir/extents.js';
import type { CallArrays, CallResult } from '../../runtime/call.js';
import type { DeviceExecutor } from '../executor.js';
import type { PhaseSpan } from '../phases.js';
import type { Ui } from '../requests.js';
import { endProcess, startProcess, tell } from './deviceProcess.js';
import {
  type DeviceAnswer,
  type DeviceRequest,
  endedTooOften,
  endedWhileLoading,
  fatalCall,
  type FromChild,
  ProcessEnded,
  type ProfiledLaunch,
  profiledOf,
  resultOf,
  type ToChild,
  unpackError,
} from './protocol.js';
import type { SiblingRelay } from './siblings.js';

/** What an executor is started with. */
export interface RemoteOptions {
  /** The child's module. */
  readonly module: URL;
  readonly request: DeviceRequest;
  /**
   * The compiled model as bytes, once it is compiled: the process starts at once and waits for it. Where it rejects,
   * nothing is loaded.
   */
  readonly model: Promise<Uint8Array>;
  /** The device counts as hung if it answers nothing for this long while a call is pending. */
  readonly timeoutSeconds: number;
  /**
   * The same for a process that says nothing while it loads the model. Default: timeoutSeconds, but at least five
   * minutes.
   */
  readonly loadingSeconds?: number;
  /**
   * Called when a process that had loaded the model ends. Its pending calls reject with ProcessEnded, so that others
   * can compute them, and opened() is a promise of the next process. If absent, the next process is asked the same
   * again, except for functions with states, whose calls always reject.
   */
  readonly onEnd?: (how: string) => void;
  /** The replicas that start together, and the index of this one. Only the first process takes part. */
  readonly siblings?: { readonly relay: SiblingRelay; readonly index: number };
}

/** A call that ends this many processes is at fault itself. */
const ATTEMPTS = 2;
/** Limit on ends of the process in one run, whatever the call. */
const MAX_RESTARTS = 5;
/** Compiling kernels or starting a driver may keep a process silent for a minute or two. */
const LOADING_SECONDS = 300;

interface PendingCall {
  readonly kind: 'call' | 'profile';
  readonly name: string;
  readonly inputs: CallArrays;
  /** The states that it is to find, if it is a call of a function with states. */
  readonly epoch: number | undefined;
  readonly resolve: (answer: DeviceAnswer) => void;
  readonly reject: (error: unknown) => void;
  attempts: number;
  isSent: boolean;
}

/** A replica whose process is started, watched and replaced here. */
export class RemoteExecutor implements DeviceExecutor {
  capacity: Readonly<Record<string, Extents>> = {};
  inFlight = 2;
  phases: readonly PhaseSpan[] = [];
  private readonly options: RemoteOptions;
  private readonly ui: Ui;
  private child: ChildProcess | undefined;
  /** Settles when the present process has loaded the model. */
  private ready: Promise<void> = Promise.resolve();
  private isReady = false;
  /** A process has loaded the model, this one or one before it. */
  private wasReady = false;
  private stateful: ReadonlySet<string> = new Set();
  private readonly jobs = new Map<number, PendingCall>();
  private nextId = 0;
  private restarts = 0;
  /** Ends of processes that had loaded the model, with the states in their memory. */
  epoch = 0;
  private isClosed = false;
  /** How the last process ended. */
  private lastEnd = '';
  private watchdog: NodeJS.Timeout | undefined;

  private constructor(options: RemoteOptions, ui: Ui) {
    this.options = options;
    this.ui = ui;
  }

  get devices(): number {
    return this.options.request.devices.length;
  }

  /** Starts the process, which sets about loading the model. Close it also where opened() rejects. */
  static begin(options: RemoteOptions, ui: Ui): RemoteExecutor {
    const executor = new RemoteExecutor(options, ui);
    void executor.spawn();
    return executor;
  }

  /** Settles when the model is loaded, or with what the process could not do. */
  opened(): Promise<void> {
    return this.ready;
  }

  async call(name: string, inputs: CallArrays, epoch?: number): Promise<CallResult> {
    return resultOf(await this.ask('call', name, inputs, epoch));
  }

  async profile(name: string, inputs: CallArrays): Promise<{ readonly launches: readonly ProfiledLaunch[] }> {
    return profiledOf(await this.ask('profile', name, inputs));
  }

  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    clearTimeout(this.watchdog);
    if (this.child !== undefined) await endProcess(this.child, this.isReady && this.jobs.size === 0);
  }

  private ask(kind: PendingCall['kind'], name: string, inputs: CallArrays, epoch?: number): Promise<DeviceAnswer> {
    if (this.isClosed) return Promise.reject(new Error('this executor was closed'));
    return new Promise((resolve, reject) => {
      const id = this.nextId++;
      const job: PendingCall = { kind, name, inputs, epoch, resolve, reject, attempts: 0, isSent: false };
      this.jobs.set(id, job);
      // It may have died while no call was pending.
      if (this.child === undefined) this.restart(this.lastEnd);
      // The next one answers too, without what the one before it kept.
      if (epoch !== undefined && epoch !== this.epoch)
        return this.settle(id, () => reject(new ProcessEnded(this.lastEnd, false)));
      void this.ready.then(
        () => this.sendJob(id, job),
        (error: unknown) => this.settle(id, () => reject(error)),
      );
    });
  }

  private sendJob(id: number, job: PendingCall): void {
    if (this.jobs.get(id) !== job || job.isSent) return;
    if (job.kind === 'call' && job.epoch === undefined && this.stateful.has(job.name))
      return this.settle(id, () => job.reject(new Error(`a call of ${job.name} does not say which states it needs`)));
    job.isSent = true;
    this.send({ kind: job.kind, id, function: job.name, inputs: job.inputs });
    if (this.watchdog === undefined) this.watch();
  }

  private send(message: ToChild): void {
    if (this.child !== undefined) tell(this.child, message);
  }

  /** Begins to wait, once more, for an answer to what was sent, or for any word of a process that loads the model. */
  private watch(): void {
    clearTimeout(this.watchdog);
    this.watchdog = undefined;
    const { child, isReady } = this;
    if (child === undefined || this.isClosed || (isReady && ![...this.jobs.values()].some(({ isSent }) => isSent)))
      return;
    const { timeoutSeconds, loadingSeconds = Math.max(timeoutSeconds, LOADING_SECONDS) } = this.options;
    const seconds = isReady ? timeoutSeconds : loadingSeconds;
    this.watchdog = setTimeout(() => {
      this.ui.warn(
        isReady
          ? `the device has not answered for ${seconds} s: its process is replaced`
          : `the device process has said nothing for ${seconds} s while it loads the model: it is ended`,
      );
      child.kill('SIGKILL');
    }, seconds * 1000);
  }

  private settle(id: number, use: (job: PendingCall) => void): void {
    const job = this.jobs.get(id);
    if (job === undefined) return;
    this.jobs.delete(id);
    this.watch();
    use(job);
  }

  /** A process, and the promise of a loaded model in it. */
  private spawn(): Promise<void> {
    const { module, request, model } = this.options;
    const siblings = this.restarts === 0 ? this.options.siblings : undefined;
    const child = startProcess(module, request.devices[0]);
    this.child = child;
    this.isReady = false;
    let lost: string | undefined;
    let fail: (error: unknown) => void = () => undefined;
    this.ready = new Promise<void>((resolve, reject) => {
      fail = reject;
      child.on('message', (message: FromChild) => {
        if (this.child === child && !this.isReady) this.watch();
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
            return siblings?.relay.say(siblings.index, message.word);
          case 'ready':
            ({ capacity: this.capacity, inFlight: this.inFlight, phases: this.phases } = message);
            this.stateful = new Set(message.stateful);
            this.isReady = this.wasReady = true;
            this.watch();
            return resolve();
          case 'result':
            return this.settle(message.id, (job) => job.resolve({ result: message.result }));
          case 'profiled':
            return this.settle(message.id, (job) => job.resolve({ launches: message.launches }));
          case 'failed': {
            const error = unpackError(message.error);
            if (message.id === undefined) {
              reject(error);
              child.kill('SIGKILL');
              return undefined;
            }
            return this.settle(message.id, (job) => job.reject(error));
          }
          case 'lost':
            lost = message.message;
            return undefined;
          default:
            return message satisfies never;
        }
      });
      child.once('error', reject);
      child.once('exit', (code, signal) => {
        const how = lost ?? (signal === null ? `exit status ${code}` : signal);
        siblings?.relay.leave(siblings.index, `its process ended: ${how}`);
        reject(endedWhileLoading(how));
        if (this.child === child && !this.isClosed) this.replace(how);
      });
    });
    // Awaited by the first caller, which may not be there yet.
    this.ready.catch(() => undefined);
    model.then(
      (bytes) => {
        if (this.child !== child || this.isClosed) return;
        tell(child, {
          kind: 'open',
          request,
          model: bytes,
          ...defined({ siblings: siblings && { index: siblings.index, count: siblings.relay.count } }),
        });
        this.watch();
        siblings?.relay.join(siblings.index, (from, word) => tell(child, { kind: 'sibling', from, word }));
      },
      (error: unknown) => {
        fail(error);
        child.kill('SIGKILL');
      },
    );
    return this.ready;
  }

  /** Another process for what is left; nothing where the model was never loaded. */
  private replace(how: string): void {
    this.child = undefined;
    this.lastEnd = how;
    const wasLoaded = this.isReady;
    this.isReady = false;
    if (wasLoaded) this.epoch++;
    clearTimeout(this.watchdog);
    this.watchdog = undefined;
    if (!this.wasReady) return;
    const { onEnd } = this.options;
    if (onEnd !== undefined) {
      for (const id of [...this.jobs.keys()]) this.settle(id, (job) => job.reject(new ProcessEnded(how, job.isSent)));
      // A process that could not load the model again is not followed by another.
      if (!wasLoaded) return;
      this.restart(how);
      onEnd(how);
      return;
    }
    let isMissed = false;
    for (const [id, job] of [...this.jobs]) {
      if (this.stateful.has(job.name)) {
        isMissed = true;
        this.settle(id, () => job.reject(new ProcessEnded(how, job.isSent)));
        continue;
      }
      const wasAsked = job.isSent;
      job.isSent = false;
      if (wasAsked && ++job.attempts >= ATTEMPTS) this.settle(id, () => job.reject(fatalCall(job, job.attempts, how)));
    }
    if (this.jobs.size > 0 || isMissed) this.restart(how);
  }

  private restart(how: string): void {
    const failAll = (error: unknown): void => {
      for (const id of [...this.jobs.keys()]) this.settle(id, (job) => job.reject(error));
    };
    if (++this.restarts > MAX_RESTARTS) {
      const error = endedTooOften(MAX_RESTARTS + 1, how);
      this.ready = Promise.reject(error);
      this.ready.catch(() => undefined);
      return failAll(error);
    }
    this.ui.warn(`the device process ended (${how}): another one takes over what is left`);
    this.spawn().then(() => {
      for (const [id, job] of this.jobs) this.sendJob(id, job);
    }, failAll);
  }
}
