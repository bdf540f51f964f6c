/**
 * Models by name, and requests to them that come and go. A model computes on replicas, each of which has a loop that
 * waits for its device and for nobody else; what a request gets does not depend on the others.
 */
import { UsageError, UserError } from '../errors.js';
import { counted } from '../system/text.js';
import type { Discarded } from './discard.js';
import { checkAdapter } from './adapterRequest.js';
import type { DeviceModel } from './device.js';
import { RequestHandle } from './handle.js';
import type { ModelStats } from './modelStats.js';
import type { MemoryRoom } from './replicaMemory.js';
import { Replicas } from './replicas.js';
import { type ModelFacts, planRequest } from './requestKinds.js';
import type { ModelDrafts } from './speculation.js';
import type { EngineRequest, Generated, GenerateRequest, RequestOptions } from './request.js';
import { Task } from './task.js';

/** The moment at which the request is to end has passed already. */
export class DeadlinePassed extends UsageError {}

/** Too many requests wait. */
export class QueueFull extends UserError {}

export interface EngineOptions {
  /** Sequences that may wait for their first step, for each model. Default: any number. */
  readonly queueLimit?: number;
}

/** A model that was opened for an engine. */
export interface EngineModel {
  /** Its replicas that are ready, at least one. */
  readonly replicas: readonly DeviceModel[];
  /** Tokens of its vocabulary: others are refused. Default: any number. */
  readonly vocabSize?: number;
  /** Who proposes what may follow its texts. Default: nobody. */
  readonly drafts?: ModelDrafts | undefined;
  /** Replicas that are still loading; those that fail are left out. */
  readonly later?: readonly Promise<DeviceModel>[];
  /** Releases its devices and memory. */
  readonly close?: () => Promise<void>;
}

/** Numbers that tell whether an engine comes on. */
export interface EngineProgress {
  /** Sequences that steps take, or that wait for one. */
  readonly busy: number;
  /** Steps that devices have answered. */
  readonly steps: number;
  /** A model has lost its last device for good. */
  readonly isLost: boolean;
}

interface Entry {
  readonly replicas: Replicas;
  readonly model: EngineModel;
  /** Those in work, and the hashes of their adapters. */
  readonly requests: Map<RequestHandle, string | undefined>;
  /** Called whenever a request has ended. */
  readonly waiters: Set<() => void>;
  /** Settles when it is closed, once it takes no more requests. */
  leaving: Promise<void> | undefined;
}

const DEFAULT_HELD = 256;

export class Engine {
  private readonly models = new Map<string, Entry>();
  private readonly options: EngineOptions;
  private isClosed = false;

  constructor(options: EngineOptions = {}) {
    this.options = options;
  }

  /** An engine with one model, on one replica. */
  static of(model: DeviceModel): Engine {
    const engine = new Engine();
    engine.load('model', { replicas: [model] });
    return engine;
  }

  get names(): readonly string[] {
    return [...this.models.keys()];
  }

  /**
   * Requests to it are taken from now on. Throws UsageError where the name is taken, and UserError where a device has
   * no memory for it beside others.
   */
  load(name: string, model: EngineModel): Replicas {
    if (this.isClosed) throw closed('load');
    if (this.models.has(name))
      throw new UsageError(
        `load: there is a model ${JSON.stringify(name)} already`,
        `unload it before: await engine.unload(${JSON.stringify(name)})`,
      );
    const { vocabSize, drafts } = model;
    const replicas = new Replicas(model.replicas, { name, vocabSize, drafts });
    this.models.set(name, { replicas, model, requests: new Map(), waiters: new Set(), leaving: undefined });
    for (const each of model.later ?? [])
      void each
        .then((replica) => this.models.get(name)?.replicas === replicas && replicas.add(replica))
        // Whoever opens replicas says which are left out; one whose device has no memory for it takes no part.
        .catch(() => undefined);
    return replicas;
  }

  /**
   * Closes a model; others go on. Rejects with UsageError where requests to it are in work, unless `drain` is true: it
   * then takes no more, and is closed when those have ended.
   */
  async unload(name: string, { drain = false }: { readonly drain?: boolean } = {}): Promise<void> {
    const entry = this.entryOf('unload', name);
    const { requests } = entry;
    if (requests.size > 0 && !drain)
      throw new UsageError(
        `unload: model ${JSON.stringify(name)} has ${counted(requests.size, 'request')} in work`,
        `cancel them, or wait for them: await engine.unload(${JSON.stringify(name)}, { drain: true })`,
      );
    await this.leave(name, entry);
  }

  /**
   * Nobody will ask a model for the adapter of this hash any more. Waits for requests to it that are in work; its slots
   * are then the first that others get. It may be asked for again, and is then loaded again.
   */
  async unloadAdapter(hash: string, model?: string): Promise<void> {
    const { requests, waiters, replicas } = this.entryOf('unloadAdapter', model);
    const own = [...requests].flatMap(([request, each]) => (each === hash ? [request] : []));
    while (own.some((request) => requests.has(request))) await new Promise<void>((resolve) => waiters.add(resolve));
    replicas.unloadAdapter(hash);
  }

  private leave(name: string, entry: Entry): Promise<void> {
    const { requests, waiters, replicas, model } = entry;
    const leave = async (): Promise<void> => {
      while (requests.size > 0) await new Promise<void>((resolve) => waiters.add(resolve));
      await replicas.idle();
      this.models.delete(name);
      await model.close?.();
      replicas.leave();
    };
    return (entry.leaving ??= leave());
  }

  /** Cancels all requests, and closes all models. */
  async close(): Promise<void> {
    this.isClosed = true;
    for (const { requests } of this.models.values()) for (const request of requests.keys()) request.cancel();
    await Promise.all([...this.models].map(([name, entry]) => this.leave(name, entry)));
  }

  /**
   * Begins a request. Throws UsageError where it cannot mean anything, QueueFull where too many wait, and GenerateError
   * where the model cannot compute it; nothing of it has then begun. `onHeld` is called when an event is held and none
   * was before, in the loop that feeds the device: it must return at once.
   */
  submit<R extends EngineRequest>(request: R, onHeld?: () => void): RequestHandle<R['kind']> {
    if (this.isClosed) throw closed('submit');
    const entry = this.entryOf('submit', request.model);
    const { replicas, requests, waiters, model } = entry;
    const { queueLimit = Infinity } = this.options;
    const checked = checkedOptions(request);
    if (request.adapter !== undefined)
      checkAdapter(request.adapter, replicas.adapters, this.nameOf('submit', request.model));
    const plan = planRequest(request, factsOf(replicas, model));
    if (replicas.waiting + plan.sequences.length > queueLimit)
      throw new QueueFull(
        `submit: ${replicas.waiting} wait for the model already, and the limit is ${queueLimit}`,
        'try again later, or open the engine with a larger queueLimit',
      );
    const handle: RequestHandle<R['kind']> = new RequestHandle({
      ...checked,
      isQuiet: request.kind === 'generate' && request.isQuiet === true,
      resultOf: plan.resultOf,
      onHeld,
      onSettled: () => {
        requests.delete(handle);
        for (const wake of waiters) wake();
        waiters.clear();
      },
    });
    const tasks = plan.sequences.map(({ request: own, listener }, sample) => {
      const told = { ...handle.listener(sample), ...listener?.((event) => handle.tell(event)) };
      return new Task(own, replicas, told, request);
    });
    requests.set(handle, request.adapter?.hash);
    handle.begin(tasks, (task) => replicas.start(task));
    return handle;
  }

  /** Nobody goes on with a text: its pages are given up first. Throws UsageError where there is no such model. */
  discard(text: Discarded, model?: string): void {
    this.entryOf('discard', model).replicas.discard(text);
  }

  /** One continuation of a prompt. Rejects with what `submit` throws, and where it cannot be computed. */
  async generate(request: GenerateRequest & RequestOptions): Promise<Generated> {
    const [continuation] = await this.submit({ kind: 'generate', ...request }).result();
    return continuation!;
  }

  /** What requests to a model must fit into. */
  limitsOf(name?: string): ModelFacts {
    const { replicas, model } = this.entryOf('limitsOf', name);
    return factsOf(replicas, model);
  }

  /** What each replica of a model has room for: it may become less where other models are loaded. */
  roomsOf(name?: string): readonly MemoryRoom[] {
    return this.entryOf('roomsOf', name).replicas.rooms;
  }

  /** Who proposes what may follow a model's texts; undefined: nothing is to be proposed. */
  draftsOf(name?: string): ModelDrafts | undefined {
    return this.entryOf('draftsOf', name).model.drafts;
  }

  /** Sums over the replicas of a model. */
  countsOf(name?: string): Replicas['counts'] {
    return this.entryOf('countsOf', name).replicas.counts;
  }

  /** What a model does at the moment, and has done so far. */
  statsOf(name?: string): ModelStats {
    return this.entryOf('statsOf', name).replicas.stats;
  }

  /** Over all models: whether there is work for devices, whether it comes on, whether a model has no device left. */
  get progress(): EngineProgress {
    const entries = [...this.models.values()];
    const stats = entries.map(({ replicas }) => replicas.stats);
    return {
      busy: stats.reduce((sum, { running, waiting }) => sum + running + waiting, 0),
      steps: stats.reduce((sum, { steps }) => sum + steps, 0),
      isLost: entries.some(({ replicas }) => replicas.isLost),
    };
  }

  /** The name of the model that is meant. Throws UsageError where there is no such model. */
  nameOf(asked: string, name?: string): string {
    this.entryOf(asked, name);
    return name ?? this.names[0]!;
  }

  /** Throws UsageError where there is no such model, or none that takes requests. */
  private entryOf(asked: string, name: string | undefined): Entry {
    const names = this.names.map((each) => JSON.stringify(each)).join(', ');
    if (name === undefined) {
      const [only, ...others] = this.models.values();
      if (only === undefined) throw new UsageError(`${asked}: the engine has no model`, 'load one: engine.load(…)');
      if (others.length > 0) throw new UsageError(`${asked}: which model? The engine has ${names}`, 'name one');
      name = this.names[0]!;
    }
    const entry = this.models.get(name);
    if (entry === undefined)
      throw new UsageError(
        `${asked}: there is no model ${JSON.stringify(name)}`,
        names === '' ? 'load one: engine.load(…)' : `the engine has ${names}`,
      );
    if (entry.leaving !== undefined)
      throw new UsageError(`${asked}: model ${JSON.stringify(name)} is being unloaded`, 'load it again afterwards');
    return entry;
  }
}

const factsOf = ({ maxLength, room, vocab, classes }: Replicas, { vocabSize }: EngineModel): ModelFacts => ({
  maxLength,
  room,
  vocab,
  classes,
  vocabSize: vocabSize ?? Infinity,
});

const closed = (asked: string): UsageError => new UsageError(`${asked}: the engine is closed`, 'open another one');

/** Throws UsageError for options that are out of range. */
function checkedOptions({ signal, deadline, priority = 0, affinity = 0, maxHeld = DEFAULT_HELD }: RequestOptions) {
  if (!Number.isSafeInteger(priority)) throw new UsageError(`priority: ${priority}: expected a whole number`);
  if (!Number.isSafeInteger(affinity) || affinity < 0)
    throw new UsageError(`affinity: ${affinity}: expected a whole number from 0`);
  if (!Number.isSafeInteger(maxHeld) || maxHeld < 1)
    throw new UsageError(`maxHeld: ${maxHeld}: expected a whole number from 1`);
  return { signal, maxHeld, leftMs: leftMsOf(deadline) };
}

/** Milliseconds to a deadline. Throws DeadlinePassed where there are none, UsageError where it is none. */
export function leftMsOf(deadline: RequestOptions['deadline']): number | undefined {
  if (deadline === undefined) return undefined;
  const left = deadline instanceof Date ? deadline.getTime() - Date.now() : deadline;
  if (Number.isNaN(left)) throw new UsageError('deadline: expected a Date, or milliseconds from now');
  if (left > 0) return left;
  const past = deadline instanceof Date ? deadline.toISOString() : `${deadline} ms from now`;
  throw new DeadlinePassed(`deadline: ${past} has passed`, 'give a moment that is to come');
}
