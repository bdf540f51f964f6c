/** Loaded models in the process that has their devices: what they can be asked, and when they may compute. */
import type { AdapterRef } from '../../engine/device.js';
import type { Extents } from '../../ir/extents.js';
import { STEP } from '../../ir/function.js';
import type { Adapter } from '../../models/adapters/adapter.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { AdapterSlots } from '../../ir/adapterRows.js';
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
import type { PackApart } from '../adapters/packApart.js';
import type { BaseSource } from '../adapters/packJob.js';
import { slotsOf } from '../adapters/slotsOf.js';
import { NO_ADAPTER, withSlots } from '../adapters/slotInputs.js';
import type { CompiledModel } from '../targets/target.js';
import type { TableShape } from './sequenceTable.js';
import { stepped, Steps, tableShape } from './steps.js';
import { Turns } from './turns.js';

const ANSWERS: { readonly [K in RequestKind]: (model: HostedModel, question: Question<K>) => Promise<Answer<K>> } = {
  call: (model, { function: name, inputs }) => model.executor.call(name, model.adapted(name, inputs)),
  profile: async (model, { function: name, inputs }) => ({
    launches: (await model.executor.profile(name, model.adapted(name, inputs))).launches.map(
      ({ path, nanoseconds }) => ({ path, nanoseconds }),
    ),
  }),
  resize: async (model, { tokens }) => {
    if (model.executor.resize === undefined) throw new Error('The memory of this model does not change.');
    return model.takesSteps ? model.steps.resize(tokens) : model.executor.resize(tokens);
  },
  step: async ({ steps }, message) => steps.step(message),
  adapter: async (model, { slot, adapter }) => {
    await model.loadAdapter(slot, adapter);
    return null;
  },
};

/** What a model is hosted with. */
interface Hosting {
  /** For messages. */
  readonly name: string;
  readonly compiled: CompiledModel;
  readonly executor: DeviceExecutor;
  /** What it was compiled of; adapters are read beside it. Absent: it takes none. */
  readonly checkpoint: Checkpoint | undefined;
  /** How it is opened by the thread that reads adapters. Absent: this thread reads them. */
  readonly base: BaseSource | undefined;
  /** Whether slot 0 has an adapter of the whole model. */
  readonly isAdapted: boolean;
  /** Those of all models that compute on this host's processors. */
  readonly turns: Turns;
  readonly onClosed: (model: HostedModel) => void;
}

export class HostedModel implements AskableExecutor {
  readonly name: string;
  readonly compiled: CompiledModel;
  readonly executor: DeviceExecutor;
  private readonly checkpoint: Checkpoint | undefined;
  private readonly base: BaseSource | undefined;
  private readonly isAdapted: boolean;
  private readonly turns: Turns | undefined;
  private readonly onClosed: Hosting['onClosed'];
  private ownSteps: Steps | undefined;
  private packing: PackApart | undefined;

  constructor({ name, compiled, executor, checkpoint, base, isAdapted, turns, onClosed }: Hosting) {
    this.name = name;
    this.compiled = compiled;
    this.executor = executor;
    this.checkpoint = checkpoint;
    this.base = base;
    this.isAdapted = isAdapted;
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
    const shape = (): TableShape => tableShape(this.compiled.plan, this.executor, this.slot);
    return (this.ownSteps ??= new Steps(stepped(this.executor), shape()));
  }

  get tokens(): number | undefined {
    return this.executor.tokens;
  }

  get pieces(): StatePieces | undefined {
    return this.executor.pieces;
  }

  /** Slots for adapters of requests. */
  get adapters(): AdapterSlots | undefined {
    return this.isAdapted ? undefined : slotsOf(this.compiled.plan);
  }

  /** The slot of tokens that name none. */
  private get slot(): number {
    return this.isAdapted ? 0 : NO_ADAPTER;
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

  /** A call's inputs, with the slots of its rows. */
  adapted(name: string, inputs: CallArrays): CallArrays {
    const fn = this.compiled.plan.functions.find(({ interface: own }) => own.name === name);
    return fn === undefined ? inputs : withSlots(fn.interface, inputs, this.slot);
  }

  /** Rejects with UserError where the folder holds another adapter by now, or one that does not fit. */
  async loadAdapter(slot: number, named: AdapterRef): Promise<void> {
    const { base, checkpoint, executor, compiled } = this;
    if (checkpoint === undefined || this.isAdapted) throw new Error('This model takes no adapters.');
    const { hasPackThread, PackApart: Apart } = await import('../adapters/packApart.js');
    if (base !== undefined && hasPackThread()) {
      const { requireSlot, writesOf } = await import('../adapters/writeAdapter.js');
      requireSlot(slot, compiled.plan);
      const weights = compiled.plan.weights.filter(({ slots }) => slots !== undefined);
      this.packing ??= new Apart({ base, weights });
      const write = writesTo(executor);
      await this.packing.pack(named, (packed) => write(writesOf(packed, slot)));
      return;
    }
    const { openRef, requireRiding } = await import('../adapters/open.js');
    const adapter = openRef(named, checkpoint);
    requireRiding(adapter);
    await putAdapter(adapter, slot, compiled, checkpoint, executor);
  }

  async prepare(): Promise<void> {
    await this.executor.prepare?.();
  }

  /** Waits for what it was asked, then releases its memory. */
  async close(): Promise<void> {
    await this.packing?.close();
    await this.executor.close();
    this.onClosed(this);
  }
}

function writesTo(executor: DeviceExecutor): NonNullable<DeviceExecutor['writeSlots']> {
  if (executor.writeSlots === undefined) throw new Error('The weights of this model cannot be written.');
  return (writes) => executor.writeSlots!(writes);
}

async function putAdapter(
  adapter: Adapter,
  slot: number,
  { plan }: CompiledModel,
  { tensors }: Checkpoint,
  executor: DeviceExecutor,
): Promise<void> {
  const { writeAdapter } = await import('../adapters/writeAdapter.js');
  await writeAdapter(adapter, slot, { plan, tensors, write: writesTo(executor) });
}

export interface LocalOptions {
  readonly name: string;
  readonly compiled: CompiledModel;
  /** What it was compiled of. Absent: it takes no adapters. */
  readonly checkpoint?: Checkpoint;
  /** How it is opened again, by a thread that reads adapters. */
  readonly base?: BaseSource;
  /** The adapter that the whole model has. */
  readonly adapter?: Adapter;
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
  open({ name, compiled, checkpoint, base, adapter, load }: LocalOptions): Promise<HostedModel> {
    const opened = this.opening.then(async () => {
      const beside = this.heldOn(compiled.target.devices.isHost);
      const executor = await load(beside.reduce((sum, { bytes }) => sum + bytes, 0)).catch((error: unknown) => {
        throw error instanceof MemoryShortage && beside.length > 0 ? shortBeside(name, error, beside) : error;
      });
      const isAdapted = adapter !== undefined && adapter.products.size > 0;
      if (isAdapted)
        try {
          if (checkpoint === undefined) throw new Error('An adapter is read beside a checkpoint.');
          await putAdapter(adapter, 0, compiled, checkpoint, executor);
        } catch (error) {
          await executor.close();
          throw error;
        }
      const onClosed = (closed: HostedModel): unknown => this.models.delete(closed);
      const model = new HostedModel({
        ...{ name, compiled, executor, checkpoint, base, isAdapted, onClosed },
        turns: this.turns,
      });
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
