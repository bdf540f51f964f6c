/** Loaded models in the process that has their devices: what they can be asked, and when they may compute. */
import type { Extents } from '../../ir/extents.js';
import { STEP } from '../../ir/function.js';
import type { CallArrays, CallResult } from '../../runtime/call.js';
import type { StatePieces } from '../../runtime/reservedStates.js';
import { type Holding, MemoryShortage, shortBeside } from '../../runtime/memoryShortage.js';
import {
  type Answer,
  type AskableExecutor,
  type Asked,
  type DeviceExecutor,
  inFlightOf,
  type Question,
  type RequestKind,
} from '../executor.js';
import type { CompiledModel } from '../targets/target.js';
import { stepped, Steps, tableShape } from './steps.js';
import { Turns } from './turns.js';

const ANSWERS: { readonly [K in RequestKind]: (model: HostedModel, question: Question<K>) => Promise<Answer<K>> } = {
  call: ({ executor }, { function: name, inputs }) => executor.call(name, inputs),
  profile: async ({ executor }, { function: name, inputs }) => ({
    launches: (await executor.profile(name, inputs)).launches.map(({ path, nanoseconds }) => ({ path, nanoseconds })),
  }),
  resize: async (model, { tokens }) => {
    if (model.executor.resize === undefined) throw new Error('The memory of this model does not change.');
    return model.takesSteps ? model.steps.resize(tokens) : model.executor.resize(tokens);
  },
  step: async ({ steps }, message) => steps.step(message),
};

/** What a model is hosted with. */
interface Hosting {
  /** For messages. */
  readonly name: string;
  readonly compiled: CompiledModel;
  readonly executor: DeviceExecutor;
  /** Those of all models that compute on this host's processors. */
  readonly turns: Turns;
  readonly onClosed: (model: HostedModel) => void;
}

export class HostedModel implements AskableExecutor {
  readonly name: string;
  readonly compiled: CompiledModel;
  readonly executor: DeviceExecutor;
  private readonly turns: Turns | undefined;
  private readonly onClosed: Hosting['onClosed'];
  private ownSteps: Steps | undefined;

  constructor({ name, compiled, executor, turns, onClosed }: Hosting) {
    this.name = name;
    this.compiled = compiled;
    this.executor = executor;
    this.turns = compiled.target.devices.isHost ? turns : undefined;
    this.onClosed = onClosed;
  }

  get capacity(): Readonly<Record<string, Extents>> {
    return this.executor.capacity;
  }

  get inFlight(): number {
    return inFlightOf(this.executor);
  }

  get takesSteps(): boolean {
    return this.capacity[STEP] !== undefined;
  }

  /** Throws where the model has no function that generates. */
  get steps(): Steps {
    return (this.ownSteps ??= new Steps(stepped(this.executor), tableShape(this.compiled.plan, this.executor)));
  }

  get tokens(): number | undefined {
    return this.executor.tokens;
  }

  get pieces(): StatePieces | undefined {
    return this.executor.pieces;
  }

  get heldBytes(): number {
    return this.executor.heldBytes ?? 0;
  }

  /** Functions whose calls depend on what earlier ones left in the device's memory. */
  get stateful(): readonly string[] {
    const { functions } = this.compiled.plan;
    return functions.flatMap(({ interface: { name, takes } }) => (takes.length > 0 ? [name] : []));
  }

  ask<K extends RequestKind>(kind: K, question: Question<K>): Promise<Answer<K>> {
    const answer = (): Promise<Answer<K>> => ANSWERS[kind](this, question);
    return this.turns === undefined ? answer() : this.turns.take(this, answer);
  }

  /** The same for a request of any kind. */
  answer({ kind, question }: Asked): Promise<Answer<RequestKind>> {
    return this.ask(kind, question);
  }

  call(name: string, inputs: CallArrays): Promise<CallResult> {
    return this.ask('call', { function: name, inputs });
  }

  profile(name: string, inputs: CallArrays): Promise<Answer<'profile'>> {
    return this.ask('profile', { function: name, inputs });
  }

  resize(tokens: number): Promise<number> {
    return this.ask('resize', { tokens });
  }

  async prepare(): Promise<void> {
    await this.executor.prepare?.();
  }

  /** Waits for what it was asked, then releases its memory. */
  async close(): Promise<void> {
    await this.executor.close();
    this.onClosed(this);
  }
}

export interface LocalOptions {
  readonly name: string;
  readonly compiled: CompiledModel;
  /** Loads it. `besideBytes`: what other models of this process hold of the same memory: the host's, or of devices. */
  readonly load: (besideBytes: number) => Promise<DeviceExecutor>;
}

/**
 * The models of this process. They are opened one after another: what fits beside a model is known when it is there.
 */
export class LocalModels {
  private readonly models = new Set<HostedModel>();
  private readonly turns = new Turns();
  private opening: Promise<unknown> = Promise.resolve();

  /** Rejects with what `load` rejects with; where memory is short, other models hold it and are named. */
  open({ name, compiled, load }: LocalOptions): Promise<HostedModel> {
    const opened = this.opening.then(async () => {
      const beside = this.heldOn(compiled.target.devices.isHost);
      const executor = await load(beside.reduce((sum, { bytes }) => sum + bytes, 0)).catch((error: unknown) => {
        throw error instanceof MemoryShortage && beside.length > 0 ? shortBeside(name, error, beside) : error;
      });
      const onClosed = (closed: HostedModel): unknown => this.models.delete(closed);
      const model = new HostedModel({ name, compiled, executor, turns: this.turns, onClosed });
      this.models.add(model);
      return model;
    });
    this.opening = opened.catch(() => undefined);
    return opened;
  }

  /** The memory of each model that is on this host, or of those that are not. */
  private heldOn(host: boolean): readonly Holding[] {
    return [...this.models]
      .filter((model) => model.compiled.target.devices.isHost === host)
      .map(({ name, heldBytes }) => ({ name, bytes: heldBytes }));
  }
}
