/**
 * Replicas of a model side by side: each call goes to a free one. Answers do not depend on which replica computes them.
 * A lost replica costs only time: its calls go to the others.
 */
import type { Extents } from '../../ir/extents.js';
import type { CallArrays, CallResult, DeviceSpan } from '../../runtime/call.js';
import { at } from '../../system/at.js';
import { type Answer, type DeviceExecutor, inFlightOf, type Replica } from '../executor.js';
import type { PhaseSpan } from '../phases.js';
import type { Ui } from '../requests.js';
import { entriesOf, fatalRequest, ProcessEnded } from './protocol.js';

/** Which replicas to start, and how. */
export interface PoolOptions {
  readonly count: number;
  /** Devices of each replica. */
  readonly stages: number;
  /** Starts one. `onEnd` is called when its process ends; opened() is then a promise of the next process. */
  readonly begin: (index: number, onEnd: (how: string) => void) => Replica;
  /** `device 2`, for messages. */
  readonly nameOf: (index: number) => string;
  /** Minimum time, in milliseconds, before an idle replica duplicates a late replica's call; 5,000 by default. */
  readonly patience?: number;
}

const PATIENCE_MS = 5000;
/** A replica that takes this many times as long as any micro-batch before may be hung. */
const PATIENCE = 4;
/** Multiple of PATIENCE_MS that applies before the first answer, when the time of a micro-batch is still unknown. */
const UNKNOWN = 12;

/**
 * A micro-batch is at fault itself if it ends this many processes, including one of every remaining replica. With a
 * single replica the limit is one higher, so that several killed processes are not mistaken for it.
 */
const ATTEMPTS = 3;

/** Replicas behind one queue of calls. */
export class DevicePool implements DeviceExecutor {
  private readonly options: PoolOptions;
  private readonly ui: Ui;
  private readonly all: readonly Member[];
  /** Calls not yet given to a replica; the next one first. */
  private readonly waiting: PoolCall[] = [];
  private readonly first: Promise<void>;
  private markOpened: () => void = () => undefined;
  private markFailed: (error: unknown) => void = () => undefined;
  private hasOpened = false;
  /** Why the last replica was lost, reported if none is left. */
  private lastError: unknown;
  private size: Readonly<Record<string, Extents>> = {};
  private isClosed = false;
  /** The longest time that a replica took to answer, in milliseconds. */
  private longest = 0;
  private timer: NodeJS.Timeout | undefined;

  private constructor(options: PoolOptions, ui: Ui) {
    this.options = options;
    this.ui = ui;
    this.first = new Promise<void>((resolve, reject) => {
      this.markOpened = resolve;
      this.markFailed = reject;
    });
    this.first.catch(() => undefined);
    this.all = Array.from({ length: options.count }, (_, index): Member => ({
      index,
      state: 'opening',
      jobs: new Set(),
      suspects: new Set(),
      replica: options.begin(index, () => this.end(at(this.all, index))),
    }));
    for (const member of this.all) this.await(member);
  }

  /** Starts all replicas. Close the pool even if opened() rejects. */
  static begin(options: PoolOptions, ui: Ui): DevicePool {
    return new DevicePool(options, ui);
  }

  /**
   * Settles when one replica has loaded the model; the others join later. Rejects with the first replica's error if
   * none can load it.
   */
  opened(): Promise<void> {
    return this.first;
  }

  /** Calls of functions with states go to one of them, and are not taken over by another. */
  get members(): readonly Replica[] {
    return this.all.map(({ replica }) => replica);
  }

  get capacity(): Readonly<Record<string, Extents>> {
    return this.size;
  }

  /** Includes replicas that are still loading, so that calls are waiting for them when they are ready. */
  get inFlight(): number {
    return Math.max(
      1,
      this.living().reduce((sum, { replica }) => sum + inFlightOf(replica), 0),
    );
  }

  /** Phases of all replicas that have loaded the model. */
  get phases(): readonly PhaseSpan[] {
    return this.all.flatMap(({ replica, index }) =>
      (replica.phases ?? []).map((span) => ({ ...span, replica: index })),
    );
  }

  /** Replicas that compute or will compute: the end of a run is divided among all of them. */
  get replicas(): number {
    return Math.max(1, this.living().length);
  }

  get devices(): number {
    return this.replicas * this.options.stages;
  }

  call(name: string, inputs: CallArrays): Promise<CallResult> {
    return this.ask('call', name, inputs, async (member) =>
      this.inPool(await member.replica.call(name, inputs), member),
    );
  }

  profile(name: string, inputs: CallArrays): Promise<Answer<'profile'>> {
    return this.ask('profile', name, inputs, ({ replica }) => replica.profile(name, inputs));
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.timer);
    for (const job of this.waiting.splice(0)) job.reject(new Error('this executor was closed'));
    await Promise.all(this.all.map(({ replica }) => replica.close()));
  }

  private ask<T>(
    kind: PoolCall['kind'],
    name: string,
    inputs: CallArrays,
    work: (member: Member) => Promise<T>,
  ): Promise<T> {
    if (this.isClosed) return Promise.reject(new Error('this executor was closed'));
    if (this.living().length === 0) return Promise.reject(this.failure());
    return new Promise((resolve, reject) => {
      const compute = async (member: Member): Promise<() => void> => {
        const answer = await work(member);
        return () => resolve(answer);
      };
      this.waiting.push(newJob({ kind, name, inputs, compute, reject }));
      this.dispatch();
    });
  }

  private living(): readonly Member[] {
    return this.all.filter(({ state }) => state !== 'gone');
  }

  private failure(): Error {
    return this.lastError instanceof Error ? this.lastError : new Error(String(this.lastError));
  }

  /**
   * Handles the end of a replica's process. It computes in the order asked: only the first job, or the first few of a
   * pipeline, were being computed; the others were waiting.
   */
  private end(member: Member): void {
    member.suspects = new Set([...member.jobs].slice(0, this.options.stages));
    this.await(member);
  }

  /** Waits until a replica's process has loaded the model. */
  private await(member: Member): void {
    if (member.state === 'gone') return;
    member.state = 'opening';
    member.replica.opened().then(
      () => this.join(member),
      (error: unknown) => this.drop(member, error),
    );
  }

  private join(member: Member): void {
    if (this.isClosed || member.state === 'gone') return;
    const { capacity } = member.replica;
    if (this.hasOpened && JSON.stringify(capacity) !== JSON.stringify(this.size))
      return this.drop(
        member,
        new Error(`it takes calls of ${JSON.stringify(capacity)}, the others of ${JSON.stringify(this.size)}`),
      );
    this.size = capacity;
    member.state = 'ready';
    this.hasOpened = true;
    this.markOpened();
    this.dispatch();
  }

  /** Marks a replica as lost for good. */
  private drop(member: Member, error: unknown): void {
    if (this.isClosed || member.state === 'gone') return;
    member.state = 'gone';
    const left = this.living().length;
    // The first replica's failure is the most useful explanation for a user, since the others usually fail for the same
    // reason.
    this.lastError = this.hasOpened ? error : (this.lastError ?? error);
    if (left === 0) {
      this.markFailed(this.failure());
      for (const job of this.waiting.splice(0)) job.reject(this.failure());
      return;
    }
    const reason = error instanceof Error ? error.message : String(error);
    this.ui.warn(
      `${this.options.nameOf(member.index)} is left out, ` +
        `the run goes on with ${left} of ${this.options.count}: ${reason.split('\n')[0]!}`,
    );
    void member.replica.close();
    this.dispatch();
  }

  /** Hands out waiting calls, each to the free replica with the least work. */
  private dispatch(): void {
    for (let next = 0; next < this.waiting.length;) {
      const job = at(this.waiting, next);
      const best = freest(job, this.living());
      if (best === undefined) {
        next++;
        continue;
      }
      this.waiting.splice(next, 1);
      void this.run(job, best);
    }
    this.hurry();
  }

  /**
   * If one replica is idle and another is late, the idle one computes the late one's oldest call. The first answer is
   * used.
   */
  private hurry(): void {
    clearTimeout(this.timer);
    const idle = this.all.filter(({ state, jobs }) => state === 'ready' && jobs.size === 0);
    if (this.isClosed || this.waiting.length > 0 || idle.length === 0) return;
    for (const { job, member } of oldestFirst(this.all)) {
      const other = idle.find((each) => !job.ended.has(each));
      if (other === undefined) continue;
      const waited = performance.now() - job.since;
      const least = this.options.patience ?? PATIENCE_MS;
      const left = (this.longest === 0 ? UNKNOWN * least : Math.max(least, PATIENCE * this.longest)) - waited;
      if (left > 0) {
        this.timer = setTimeout(() => this.hurry(), left + 1);
        return;
      }
      job.isCopied = true;
      this.ui.warn(
        `${this.options.nameOf(member.index)} has not answered for ${(waited / 1000).toFixed(0)} s: ` +
          `${this.options.nameOf(other.index)} computes the same`,
      );
      void this.run(job, other);
      return this.hurry();
    }
  }

  private async run(job: PoolCall, member: Member): Promise<void> {
    const begin = performance.now();
    member.jobs.add(job);
    if (job.runners++ === 0) job.since = begin;
    try {
      const resolve = await job.compute(member);
      if (job.kind === 'call' && !job.isDone) this.longest = Math.max(this.longest, performance.now() - begin);
      job.isDone = true;
      resolve();
    } catch (error) {
      job.runners--;
      if (error instanceof ProcessEnded) this.again(job, member, error.how);
      else job.reject(error);
    } finally {
      member.jobs.delete(job);
      this.dispatch();
    }
  }

  /** A job whose process ended goes to the front of the queue, unless it ends one process after another. */
  private again(job: PoolCall, member: Member, how: string): void {
    if (member.suspects.has(job)) {
      job.ended.add(member);
      job.attempts++;
    }
    if (job.isDone || job.runners > 0) return;
    job.isCopied = false;
    const living = this.living();
    if (this.isClosed || living.length === 0)
      return job.reject(living.length === 0 ? this.failure() : new ProcessEnded(how));
    if (job.attempts >= ATTEMPTS && living.every((each) => job.ended.has(each)))
      return job.reject(fatalRequest(`a call of ${job.name}`, entriesOf(job.inputs), job.attempts, how));
    this.waiting.unshift(job);
  }

  /** Spans with devices numbered over all replicas. */
  private inPool(result: CallResult, { index }: Member): CallResult {
    if (result.spans === undefined) return result;
    const spans = result.spans.map((span): DeviceSpan => ({
      ...span,
      device: index * this.options.stages + span.device,
    }));
    return { ...result, spans };
  }
}

/** A replica as the pool knows it. */
export interface Member {
  readonly index: number;
  readonly replica: Replica;
  state: 'opening' | 'ready' | 'gone';
  /** The calls that it is computing or has queued, in the order asked. */
  readonly jobs: Set<PoolCall>;
  /** The calls that its last process was computing when it ended. */
  suspects: ReadonlySet<PoolCall>;
}

/** A call on its way through the pool. */
export interface PoolCall {
  readonly kind: 'call' | 'profile';
  readonly name: string;
  readonly inputs: CallArrays;
  /** Has a replica compute it. Returns what hands on the answer. */
  readonly compute: (member: Member) => Promise<() => void>;
  readonly reject: (error: unknown) => void;
  /** Replicas whose process ended while computing this. */
  readonly ended: Set<Member>;
  /** Number of such endings. */
  attempts: number;
  /** Number of replicas that have it now: two if the first is late. */
  runners: number;
  isCopied: boolean;
  isDone: boolean;
  /** When the first of them was asked, in milliseconds. */
  since: number;
}

/** Amount of work that a replica has. */
const loadOf = ({ jobs }: Member): number => [...jobs].reduce((sum, { inputs }) => sum + entriesOf(inputs), 0);

/** A call that no replica has yet. */
export const newJob = (asked: Pick<PoolCall, 'kind' | 'name' | 'inputs' | 'compute' | 'reject'>): PoolCall => ({
  ...asked,
  ended: new Set(),
  attempts: 0,
  runners: 0,
  isCopied: false,
  isDone: false,
  since: 0,
});

/**
 * The one of `living` that takes `job`: free, with the least work. A replica whose process ended while computing this
 * call is avoided, unless there is no other. Undefined if none is free.
 */
export function freest(job: PoolCall, living: readonly Member[]): Member | undefined {
  const fresh = living.filter((member) => !job.ended.has(member));
  const free = (fresh.length > 0 ? fresh : living).filter(
    ({ state, jobs, replica }) => state === 'ready' && jobs.size < inFlightOf(replica),
  );
  return free.sort((a, b) => a.jobs.size - b.jobs.size || loadOf(a) - loadOf(b) || a.index - b.index)[0];
}

/** The calls that one replica each is computing or has queued, those that were asked longest ago first. */
export const oldestFirst = (all: readonly Member[]): readonly { readonly job: PoolCall; readonly member: Member }[] =>
  all
    .flatMap((member) => [...member.jobs].map((job) => ({ job, member })))
    .filter(({ job }) => !job.isDone && !job.isCopied)
    .sort((a, b) => a.job.since - b.job.since);
