/**
 * The process that owns the devices of a replica, from its parent's side, with the models in it. It is started for the
 * first model, watched, replaced when it ends, and ended with the last.
 */
import type { ChildProcess } from 'node:child_process';
import { Recent } from '../../system/recent.js';
import type { Ui } from '../requests.js';
import { endedTooOften, type FromChild, type FromModel, type ToChild } from './protocol.js';
import { endProcess, howEnded, startProcess, tell } from './startProcess.js';

export interface ProcessOptions {
  /** The child's module. */
  readonly module: URL;
  /** The name of the target whose devices it owns. */
  readonly target: string;
  /** The first of its devices: a process that was started early for it is taken over. */
  readonly device: number;
  /** The device counts as hung if it answers nothing for this long while a model waits for an answer. */
  readonly timeoutSeconds: number;
  /**
   * The same for a process that says nothing while it loads a model. Default: timeoutSeconds, but at least five
   * minutes.
   */
  readonly loadingSeconds?: number;
}

/**
 * Most ends of the process in a stretch of time, whatever causes them. Time in which it loads its first model does not
 * count: that may take longer than all else.
 */
const MAX_RESTARTS = 5;
const RESTART_MS = 10 * 60_000;
/** Compiling kernels or starting a driver may keep a process silent for a minute or two. */
const LOADING_SECONDS = 300;

/**
 * The part of a model in the end of its process: `fault` where it was being opened and there was no other model,
 * `suspect` where it was being opened beside others.
 */
export type EndPart = 'none' | 'suspect' | 'fault';

/** A model of a process, as the process sees it. */
export interface Tenant {
  readonly model: number;
  /** `opening` from the beginning, and from the end of a process in which it was ready. */
  readonly state: 'opening' | 'ready' | 'failed';
  /** Whether the present process has been told to open it. */
  readonly isSent: boolean;
  /** It will leave: no process is started for it. */
  readonly isClosed: boolean;
  /** Nothing that was asked of it waits for an answer. */
  readonly isIdle: boolean;
  /** A process is there, which is to open it. */
  begin(): void;
  hear(message: FromModel): void;
  /** A process that opens models has given a sign of life. */
  watch(): void;
  /** The process ended. Returns whether the model needs another process now. */
  end(how: string, part: EndPart): boolean;
  /** Another process was started, or none will be. */
  hasEnded(how: string): void;
  fail(error: unknown): void;
}

export class DeviceProcess {
  readonly options: ProcessOptions & { readonly loadingSeconds: number };
  /** How the last process ended. */
  lastEnd = '';
  /** Processes that were started. */
  life = 0;
  private ui: Pick<Ui, 'warn'>;
  private readonly tenants = new Map<number, Tenant>();
  private readonly restarts: Recent;
  private readonly now: () => number;
  /** Milliseconds in which processes had no model yet, without the present one, which has had none since then. */
  private loadingMs = 0;
  private loadingSince: number | undefined;
  private child: ChildProcess | undefined;
  /** The last process, which was told to end, and has not yet. */
  private ending: Promise<unknown> | undefined;
  private nextModel = 0;

  /** `now`: a clock in milliseconds. */
  constructor(options: ProcessOptions, ui: Pick<Ui, 'warn'>, now: () => number = () => performance.now()) {
    const { timeoutSeconds } = options;
    this.options = { loadingSeconds: Math.max(timeoutSeconds, LOADING_SECONDS), ...options };
    this.ui = ui;
    this.now = now;
    this.restarts = new Recent(RESTART_MS, () => now() - this.loadingMs);
  }

  get isRunning(): boolean {
    return this.child !== undefined;
  }

  /** The present process, once it has one. */
  get pid(): number | undefined {
    return this.child?.pid;
  }

  /** From now on, `ui` shows what is said of the process, if it has no model yet whose user sees it. */
  showTo(ui: Pick<Ui, 'warn'>): void {
    if (this.tenants.size === 0) this.ui = ui;
  }

  /** The number of a model that will join. */
  number(): number {
    return this.nextModel++;
  }

  /** Opens one more model, in the process that is there, or in a first one. */
  join(tenant: Tenant): void {
    this.tenants.set(tenant.model, tenant);
    if (this.child !== undefined) tenant.begin();
    // Memory that the last process holds would be missed.
    else if (this.ending !== undefined) void this.ending.then(() => this.startFor(tenant));
    else this.start();
  }

  private startFor(tenant: Tenant): void {
    if (this.child === undefined && !tenant.isClosed) this.start();
  }

  /**
   * Takes a model away. Settles when its memory is free: what was asked of it is answered first, unless it is the last
   * one, with which the process ends.
   */
  async leave(tenant: Tenant, unload: () => Promise<void>): Promise<void> {
    const { child } = this;
    const staying = [...this.tenants.values()].some(({ isClosed, state }) => !isClosed && state !== 'failed');
    if (child !== undefined && staying) {
      if (tenant.isSent && tenant.state !== 'failed') await unload();
    } else if (child !== undefined) {
      const all = [...this.tenants.values()];
      const how = await this.close(
        child,
        all.every((each) => each.state !== 'opening' && each.isIdle),
      );
      for (const each of all) each.end(how, 'none');
    } else await this.ending;
    this.tenants.delete(tenant.model);
  }

  /** Ends the present process for good. Whoever joins meanwhile gets the next one when its memory is free. */
  private async close(child: ChildProcess, isIdle: boolean): Promise<string> {
    this.forget();
    const ending = endProcess(child, isIdle);
    this.ending = ending;
    this.lastEnd = await ending;
    if (this.ending === ending) this.ending = undefined;
    return this.lastEnd;
  }

  /** A message for the present process. Nothing where there is none. */
  tell(message: ToChild): void {
    if (this.child !== undefined) tell(this.child, message);
  }

  /** Ends a process that hangs; another takes over. */
  kill(reason: string): void {
    this.ui.warn(reason);
    this.child?.kill('SIGKILL');
  }

  /** A model could not be opened. The others go on; without others, the process ends. */
  dismiss(): void {
    const { child } = this;
    if (child !== undefined && [...this.tenants.values()].every(({ state }) => state === 'failed'))
      void this.close(child, false);
  }

  /** Starts another process where the last one ended unnoticed, also for a model that could not be opened. */
  revive(tenant: Tenant): void {
    if (this.child === undefined && this.ending === undefined && !tenant.isClosed) this.restart(this.lastEnd, tenant);
  }

  private start(wanted?: Tenant): void {
    const { module, device } = this.options;
    const child = startProcess(module, device);
    this.child = child;
    this.life++;
    this.loadingSince = this.now();
    let lost: string | undefined;
    child.on('message', (message: FromChild) => {
      if (message.kind === 'lost') lost = message.message;
      else this.hear(message, child);
    });
    child.on('error', (error) => {
      if (this.child !== child) return;
      // One that could not be started has no end.
      if (child.pid === undefined) this.forget();
      for (const tenant of this.opening()) tenant.fail(error);
    });
    child.once('exit', (code, signal) => {
      if (this.child === child) this.end(lost ?? howEnded(code, signal));
    });
    for (const tenant of this.tenants.values())
      if (!tenant.isClosed && (tenant.state !== 'failed' || tenant === wanted)) tenant.begin();
  }

  private opening(): readonly Tenant[] {
    return [...this.tenants.values()].filter(({ state }) => state === 'opening');
  }

  private hear(message: Exclude<FromChild, { readonly kind: 'lost' }>, child: ChildProcess): void {
    const tenant = this.tenants.get(message.model);
    // Models are opened one after another: what is said of one counts for those that wait behind it.
    if (this.child === child && tenant?.state === 'opening')
      for (const each of this.opening()) if (each.isSent) each.watch();
    tenant?.hear(message);
    if (tenant?.state === 'ready') this.hasLoaded();
  }

  private hasLoaded(): void {
    if (this.loadingSince !== undefined) this.loadingMs += this.now() - this.loadingSince;
    this.loadingSince = undefined;
  }

  /** There is no process any more, or it has been told to end. */
  private forget(): void {
    this.child = undefined;
    this.hasLoaded();
  }

  private end(how: string): void {
    this.forget();
    this.lastEnd = how;
    const all = [...this.tenants.values()];
    const living = all.filter(({ isClosed, state }) => !isClosed && state !== 'failed');
    const opening = living.filter(({ state }) => state === 'opening');
    const first = opening.find(({ isSent }) => isSent) ?? (opening.length === living.length ? opening[0] : undefined);
    const partOfFirst = living.length === 1 ? 'fault' : 'suspect';
    const waiting = all.filter((tenant) => tenant.end(how, tenant === first ? partOfFirst : 'none'));
    if (waiting.length > 0) this.restart(how);
    for (const tenant of all) tenant.hasEnded(how);
  }

  private restart(how: string, wanted?: Tenant): void {
    if (this.restarts.count >= MAX_RESTARTS) {
      const error = endedTooOften(MAX_RESTARTS + 1, how);
      for (const tenant of this.tenants.values())
        if (tenant.state !== 'failed' || tenant === wanted) tenant.fail(error);
      return;
    }
    this.restarts.add();
    this.ui.warn(`the device process ended (${how}): another one takes over what is left`);
    this.start(wanted);
  }
}
