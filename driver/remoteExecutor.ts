/** An executor in a process of its own: replaced where it dies, hangs or loses its device, and asked again. */
import { fork, type ChildProcess } from 'node:child_process';
import { UserError } from '../errors.js';
import type { MicroBatch, ScoredRows } from '../eval/scorer.js';
import { unpackError, type DeviceRequest, type FromChild, type ProfiledLaunch, type ToChild } from './deviceProtocol.js';
import type { Ui } from './requests.js';
import type { Executor } from './scorer.js';

export interface RemoteOptions {
  /** The child's module; by default deviceChild.js beside this file. */
  readonly module?: URL;
  readonly request: DeviceRequest;
  /** A micro-batch that takes longer means a hung device. */
  readonly timeoutSeconds: number;
}

/** A micro-batch that ends this many processes is at fault itself. */
const ATTEMPTS = 2;
/** Ends of the process in one run, whatever the micro-batch. */
const MAX_RESTARTS = 5;
/** Time to give memory back before it is killed. */
const CLOSE_MS = 10_000;

type Answer = { readonly scored: ScoredRows } | { readonly launches: readonly ProfiledLaunch[] };

interface Job {
  readonly kind: 'score' | 'profile';
  readonly batch: MicroBatch;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
  attempts: number;
  timer?: NodeJS.Timeout;
}

export class RemoteExecutor implements Executor {
  maxTokens = 0;
  maxRows = 0;
  private readonly options: RemoteOptions;
  private readonly ui: Ui;
  private child: ChildProcess | undefined;
  /** Settles when the present process has loaded the model. */
  private ready: Promise<void> = Promise.resolve();
  private readonly jobs = new Map<number, Job>();
  private nextId = 0;
  private restarts = 0;
  private isClosed = false;
  /** How the last process ended. */
  private lastEnd = '';
  private readonly onExit = (): void => {
    this.child?.kill('SIGKILL');
  };

  private constructor(options: RemoteOptions, ui: Ui) {
    this.options = options;
    this.ui = ui;
    process.once('exit', this.onExit);
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

  async score(batch: MicroBatch): Promise<ScoredRows> {
    const answer = await this.ask('score', batch);
    if (!('scored' in answer)) throw new Error('the device process answered another question');
    return answer.scored;
  }

  async profile(batch: MicroBatch): Promise<{ readonly launches: readonly ProfiledLaunch[] }> {
    const answer = await this.ask('profile', batch);
    if (!('launches' in answer)) throw new Error('the device process answered another question');
    return answer;
  }

  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    process.off('exit', this.onExit);
    const { child } = this;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => { child.once('exit', () => resolve()); });
    const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_MS);
    // One that has not loaded anything yet may be far from listening, and has nothing to put in order.
    if (child.connected && this.maxTokens > 0) child.send({ kind: 'close' } satisfies ToChild);
    else child.kill('SIGKILL');
    await ended;
    clearTimeout(timer);
  }

  private ask(kind: Job['kind'], batch: MicroBatch): Promise<Answer> {
    if (this.isClosed) return Promise.reject(new Error('this executor was closed'));
    return new Promise((resolve, reject) => {
      const id = this.nextId++;
      const job: Job = { kind, batch, resolve, reject, attempts: 0 };
      this.jobs.set(id, job);
      // It may have died while nobody waited for it.
      if (this.child === undefined) this.restart(this.lastEnd);
      void this.ready.then(() => this.sendJob(id, job), (error: unknown) => this.settle(id, () => reject(error)));
    });
  }

  private sendJob(id: number, job: Job): void {
    if (this.jobs.get(id) !== job || job.timer !== undefined) return;
    const { child } = this;
    job.timer = setTimeout(() => {
      this.ui.warn(`the device has not answered for ${this.options.timeoutSeconds} s: its process is replaced`);
      child?.kill('SIGKILL');
    }, this.options.timeoutSeconds * 1000);
    child?.send({ kind: job.kind, id, batch: job.batch } satisfies ToChild);
  }

  private settle(id: number, use: (job: Job) => void): void {
    const job = this.jobs.get(id);
    if (job === undefined) return;
    clearTimeout(job.timer);
    this.jobs.delete(id);
    use(job);
  }

  /** A process, and the promise of a loaded model in it. */
  private spawn(): Promise<void> {
    const { module = new URL('./deviceChild.js', import.meta.url), request } = this.options;
    const child = fork(module, [], { serialization: 'advanced', stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    this.child = child;
    let lost: string | undefined;
    this.ready = new Promise<void>((resolve, reject) => {
      child.on('message', (message: FromChild) => {
        switch (message.kind) {
          case 'phase': return this.ui.phase(message.name, message.detail);
          case 'note': return this.ui.note(message.line);
          case 'warn': return this.ui.warn(message.line);
          case 'step': return this.ui.step(message.fraction);
          case 'ready':
            ({ maxTokens: this.maxTokens, maxRows: this.maxRows } = message);
            return resolve();
          case 'scored': return this.settle(message.id, (job) => job.resolve({ scored: message.scored }));
          case 'profiled': return this.settle(message.id, (job) => job.resolve({ launches: message.launches }));
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
          default: return message satisfies never;
        }
      });
      child.once('error', reject);
      child.once('exit', (code, signal) => {
        const how = lost ?? (signal === null ? `exit status ${code}` : signal);
        reject(new UserError(`the device process ended while it loaded the model: ${how}`, 'see whether nvidia-smi works on this machine, then start again'));
        if (this.child === child && !this.isClosed) this.replace(how);
      });
    });
    // Awaited by whoever asks; a job may not have been asked yet.
    this.ready.catch(() => undefined);
    child.send({ kind: 'open', request } satisfies ToChild);
    return this.ready;
  }

  /** Another process for what is left; nothing where the model was never loaded. */
  private replace(how: string): void {
    this.child = undefined;
    this.lastEnd = how;
    if (this.maxTokens === 0) return;
    for (const [id, job] of [...this.jobs]) {
      clearTimeout(job.timer);
      const wasAsked = job.timer !== undefined;
      delete job.timer;
      if (!wasAsked || ++job.attempts < ATTEMPTS) continue;
      this.settle(id, () => job.reject(new UserError(
        `a micro-batch of ${job.batch.tokens.length} tokens ended the device process ${ATTEMPTS} times: ${how}`,
        'finished questions are in the journal; --max-tokens with a smaller number, or --target cpu, may get past it',
      )));
    }
    if (this.jobs.size === 0) return;
    this.restart(how);
  }

  private restart(how: string): void {
    const failAll = (error: unknown): void => {
      for (const id of [...this.jobs.keys()]) this.settle(id, (job) => job.reject(error));
    };
    if (++this.restarts > MAX_RESTARTS) return failAll(new UserError(`the device process ended ${MAX_RESTARTS + 1} times, last: ${how}`, 'finished questions are in the journal; see what nvidia-smi says of the device'));
    this.ui.warn(`the device process ended (${how}): another one takes over what is left`);
    this.spawn().then(() => {
      for (const [id, job] of this.jobs) this.sendJob(id, job);
    }, failAll);
  }
}
