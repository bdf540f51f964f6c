/**
 * A replica that computes nothing: batches in steps, as the engine's scheduler makes them, adapters in slots, and the
 * time that a table says. Texts that run take one token each; prompts share what is left of the step. Steps in which
 * nothing changes are one event.
 */
import { type CallTimes, stepMs } from './callTimes.js';
import { Events } from './events.js';

export interface ReplicaConfig {
  readonly callTimes: CallTimes;
  /**
   * For replicas that share the processors of one machine: call times while two of them compute, while three do, and
   * so on. The last entry is also used for more. Default: each replica has a machine of its own.
   */
  readonly sharedTimes?: readonly CallTimes[];
  /** Most tokens of a step, and of one that texts go on in beside prompts. */
  readonly stepTokens: number;
  readonly besideTokens: number;
  /** Texts and prompts side by side. */
  readonly maxRunning: number;
  /** Adapters on the device. */
  readonly slots: number;
  /** Time that one adapter takes to load; loads of a replica follow each other. */
  readonly loadMs: number;
  /** What each adapter of a step adds to it. */
  readonly adapterStepMs: number;
  /** Between a request's arrival and the first step that can take it, and behind its tokens. */
  readonly overheadMs: number;
}

/** A request as it goes through a fleet. Times in ms; −1: not yet. */
export interface SimRequest {
  readonly id: number;
  readonly arrivalMs: number;
  readonly prompt: number;
  /** Tokens of its answer, 1 at least. */
  readonly generated: number;
  /** Number of its adapter; −1: none. */
  readonly adapter: number;
  readonly session: number;
  firstMs: number;
  endMs: number;
  /** Its adapter was in a slot when it came. */
  wasHit: boolean;
}

interface Slot {
  /** When it is there. */
  readyMs: number;
  /** Requests that wait for a step, or run. */
  users: number;
  usedMs: number;
}

interface Run {
  /** Of the (single) step, where the pace changed in it: that of a step of the new pace that would end when it does. */
  startMs: number;
  stepMs: number;
  readonly tokens: number;
  /** Steps until something changes. */
  steps: number;
  /** Requests and tokens of prompts that the (single) step computes. */
  readonly prompts: readonly { readonly request: Computing; readonly tokens: number }[];
}

interface Computing {
  readonly request: SimRequest;
  left: number;
}

/** Those that wait, past which nobody looks for one whose adapter is there. */
const LOOKED_AT = 256;
const QUICKER = 8;
const CATCH_UP_STEPS = 4;

export interface ReplicaHooks {
  readonly onFirst: (request: SimRequest, now: number) => void;
  readonly onEnd: (request: SimRequest, now: number) => void;
  /** Something happens at this time: call `advance` then. */
  readonly wake: (at: number) => void;
  /** It begins to compute, or stops. Where processors are shared, call `share` of all that compute. */
  readonly onActive?: (isActive: boolean, now: number) => void;
}

export class SimReplica {
  loads = 0;
  readonly slots = new Map<number, Slot>();
  readonly waiting: SimRequest[] = [];
  private readonly config: ReplicaConfig;
  private readonly hooks: ReplicaHooks;
  private readonly prompts: Computing[] = [];
  /** Texts by the step that ends them. */
  private readonly texts = new Events<SimRequest>();
  private readonly adapters = new Map<number, number>();
  private step = 0;
  private run: Run | undefined;
  private loadedMs = 0;
  private promptTokens = 0;
  private isActive = false;
  /** Replicas of its machine that compute. */
  private sharers = 1;
  /** Requests that wait, by adapter. */
  private readonly awaited = new Map<number, number>();
  /** Times at which somebody who waits may be taken: the steps under way then end at their next boundary. */
  private readonly looks = new Events<undefined>();

  constructor(config: ReplicaConfig, hooks: ReplicaHooks) {
    this.config = config;
    this.hooks = hooks;
  }

  get running(): number {
    return this.prompts.length + this.texts.size;
  }

  get inFlight(): number {
    return this.running + this.waiting.length;
  }

  /** Tokens of prompts that wait or are being computed. */
  get queueTokens(): number {
    return this.promptTokens;
  }

  /** So many replicas of its machine compute from now on. */
  share(sharers: number, now: number): void {
    if (sharers === this.sharers) return;
    this.sharers = sharers;
    const { run } = this;
    if (run === undefined) return;
    const before = run.stepMs;
    const left = Math.max(0, run.startMs + before - now);
    run.stepMs = this.timeOf(run.tokens);
    run.startMs = now + (left * run.stepMs) / before - run.stepMs;
    this.hooks.wake(run.startMs + run.stepMs);
  }

  private timeOf(tokens: number): number {
    const { callTimes, sharedTimes = [], adapterStepMs } = this.config;
    const times = this.sharers === 1 ? callTimes : (sharedTimes[this.sharers - 2] ?? sharedTimes.at(-1) ?? callTimes);
    return stepMs(times, tokens) + adapterStepMs * this.adapters.size;
  }

  private setActive(isActive: boolean, now: number): void {
    if (isActive === this.isActive) return;
    this.isActive = isActive;
    this.hooks.onActive?.(isActive, now);
  }

  isResident(adapter: number, now: number): boolean {
    const slot = this.slots.get(adapter);
    return slot !== undefined && slot.readyMs <= now;
  }

  /** Adapters with their requests. */
  residents(): { readonly adapter: number; readonly requests: number }[] {
    return [...this.slots].map(([adapter, { users }]) => ({ adapter, requests: users }));
  }

  /** Where a slot is free or idle. */
  get freeSlots(): number {
    let free = this.config.slots - this.slots.size;
    for (const { users } of this.slots.values()) if (users === 0) free++;
    return free;
  }

  /**
   * Time until a request that came now would have its first token, if none came after it: what is left of the present
   * step, the prompts before its own in steps with the texts that run, and texts that have to end first.
   */
  firstTokenIn(prompt: number, now: number): number {
    const { config, run } = this;
    const texts = this.texts.size;
    const left = run === undefined ? 0 : (run.stepMs - ((now - run.startMs) % run.stepMs)) % run.stepMs;
    const begun = run?.prompts.reduce((sum, { tokens }) => sum + tokens, 0) ?? 0;
    const tokens = this.promptTokens - begun + prompt;
    const few = Math.max(Math.ceil(config.besideTokens / QUICKER), Math.ceil(tokens / CATCH_UP_STEPS));
    const most = texts === 0 ? config.stepTokens : Math.max(1, Math.min(config.besideTokens - texts, few));
    const whole = Math.floor(tokens / most);
    const rest = tokens - whole * most;
    const adapters = config.adapterStepMs * this.adapters.size;
    let time = left + whole * (stepMs(config.callTimes, texts + most) + adapters);
    if (rest > 0) time += stepMs(config.callTimes, texts + rest) + adapters;
    const over = this.inFlight + 1 - config.maxRunning;
    if (over > 0)
      time += (over / Math.max(1, texts)) * (this.texts.nextAt - this.step) * stepMs(config.callTimes, texts);
    return time;
  }

  take(request: SimRequest, now: number): void {
    request.wasHit = request.adapter < 0 || this.slots.has(request.adapter);
    this.waiting.push(request);
    this.promptTokens += request.prompt;
    const { adapter } = request;
    if (adapter >= 0) {
      this.awaited.set(adapter, (this.awaited.get(adapter) ?? 0) + 1);
      const slot = this.slots.get(adapter);
      if (slot === undefined) this.load(adapter, now);
      else slot.users++;
    }
    this.lookAt(now + this.config.overheadMs);
  }

  private lookAt(at: number): void {
    this.looks.add(at, undefined);
    this.hooks.wake(at);
  }

  /** Loads an adapter into a slot that is free or idle. Returns whether there was one. */
  load(adapter: number, now: number): boolean {
    if (this.slots.has(adapter)) return true;
    if (this.slots.size >= this.config.slots) {
      let oldest: number | undefined;
      let oldestMs = Infinity;
      for (const [each, { users, usedMs, readyMs }] of this.slots)
        if (users === 0 && readyMs <= now && usedMs < oldestMs) [oldest, oldestMs] = [each, usedMs];
      if (oldest === undefined) return false;
      this.slots.delete(oldest);
    }
    this.loads++;
    this.loadedMs = Math.max(this.loadedMs, now) + this.config.loadMs;
    this.slots.set(adapter, { readyMs: this.loadedMs, users: this.awaited.get(adapter) ?? 0, usedMs: now });
    this.lookAt(this.loadedMs);
    return true;
  }

  unload(adapter: number): void {
    if (this.slots.get(adapter)?.users === 0) this.slots.delete(adapter);
  }

  /** Ends a run of steps at the next boundary, so that the next one looks at who waits. */
  private cut(now: number): void {
    const { run } = this;
    if (run === undefined || run.steps <= 1) return;
    const done = Math.max(1, Math.ceil((now - run.startMs) / run.stepMs - 1e-9));
    if (done >= run.steps) return;
    run.steps = done;
    this.hooks.wake(run.startMs + done * run.stepMs);
  }

  /** The clock is at a time that was asked for. */
  advance(now: number): void {
    const { run } = this;
    let isLook = false;
    for (; this.looks.nextAt <= now; this.looks.take()) isLook = true;
    if (run !== undefined) {
      const end = run.startMs + run.steps * run.stepMs;
      if (now < end - 1e-9) {
        if (isLook) this.cut(now);
        return;
      }
      this.run = undefined;
      this.finish(run, end);
    }
    this.begin(now);
  }

  private finish(run: Run, now: number): void {
    this.step += run.steps;
    for (const { request: computing, tokens } of run.prompts) {
      computing.left -= tokens;
      this.promptTokens -= tokens;
      if (computing.left > 0) continue;
      const { request } = computing;
      this.prompts.splice(this.prompts.indexOf(computing), 1);
      request.firstMs = now;
      this.hooks.onFirst(request, now);
      if (request.generated <= 1) this.end(request, now);
      else this.texts.add(this.step + request.generated - 1, request);
    }
    while (this.texts.nextAt <= this.step) this.end(this.texts.take()!, now);
  }

  private end(request: SimRequest, now: number): void {
    request.endMs = now;
    if (request.adapter >= 0) {
      const slot = this.slots.get(request.adapter)!;
      slot.users--;
      slot.usedMs = now;
      const left = this.adapters.get(request.adapter)! - 1;
      if (left === 0) this.adapters.delete(request.adapter);
      else this.adapters.set(request.adapter, left);
    }
    this.hooks.onEnd(request, now);
  }

  /** Takes who waits, and begins the next steps. */
  private begin(now: number): void {
    this.admit(now);
    const { config } = this;
    const texts = this.texts.size;
    if (texts + this.prompts.length === 0) return this.setActive(false, now);
    this.setActive(true, now);
    const most =
      texts === 0
        ? config.stepTokens
        : Math.min(
            config.besideTokens,
            texts + Math.max(Math.ceil(config.besideTokens / QUICKER), Math.ceil(this.promptTokens / CATCH_UP_STEPS)),
          );
    let room = Math.max(0, most - texts);
    const prompts: { request: Computing; tokens: number }[] = [];
    for (const request of this.prompts) {
      if (room === 0) break;
      const tokens = Math.min(request.left, room);
      room -= tokens;
      prompts.push({ request, tokens });
    }
    const tokens = texts + prompts.reduce((sum, each) => sum + each.tokens, 0);
    const time = this.timeOf(tokens);
    const isSingle = prompts.length > 0 || config.sharedTimes !== undefined;
    const steps = isSingle ? 1 : Math.max(1, this.texts.nextAt - this.step);
    this.run = { startMs: now, stepMs: time, tokens, steps, prompts };
    this.hooks.wake(now + steps * time);
  }

  /** In order of arrival; one whose adapter is not there does not hold up the others. */
  private admit(now: number): void {
    const { waiting, config } = this;
    let kept = 0;
    let i = 0;
    // Where nothing runs, whoever has a slot may stand behind many who wait for one.
    const isWithin = (): boolean => i < LOOKED_AT || this.running === 0;
    for (; i < waiting.length && isWithin() && this.running < config.maxRunning; i++) {
      const request = waiting[i]!;
      if (this.isReady(request, now)) {
        this.prompts.push({ request, left: request.prompt });
        if (request.adapter < 0) continue;
        this.adapters.set(request.adapter, (this.adapters.get(request.adapter) ?? 0) + 1);
        const awaited = this.awaited.get(request.adapter)! - 1;
        if (awaited === 0) this.awaited.delete(request.adapter);
        else this.awaited.set(request.adapter, awaited);
      } else waiting[kept++] = request;
    }
    if (kept < i) waiting.splice(kept, i - kept);
  }

  private isReady(request: SimRequest, now: number): boolean {
    if (now + 1e-9 < request.arrivalMs + this.config.overheadMs) return false;
    if (request.adapter < 0) return true;
    if (!this.slots.has(request.adapter)) this.load(request.adapter, now);
    return this.isResident(request.adapter, now + 1e-9);
  }
}
