/** A loaded model in the process that has its devices: what it can be asked, and when it may compute. */
import type { Extents } from '../../ir/extents.js';
import type { CallArrays, CallResult } from '../../runtime/call.js';
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
import type { Turns } from './turns.js';

const ANSWERS: { readonly [K in RequestKind]: (model: HostedModel, question: Question<K>) => Promise<Answer<K>> } = {
  call: ({ executor }, { function: name, inputs }) => executor.call(name, inputs),
  profile: async ({ executor }, { function: name, inputs }) => ({
    launches: (await executor.profile(name, inputs)).launches.map(({ path, nanoseconds }) => ({ path, nanoseconds })),
  }),
};

export class HostedModel implements AskableExecutor {
  readonly executor: DeviceExecutor;
  readonly compiled: CompiledModel;
  private readonly turns: Turns | undefined;

  /** `turns`: those of the models of this process, where they compute on this host's processors. */
  constructor(executor: DeviceExecutor, compiled: CompiledModel, turns: Turns) {
    this.executor = executor;
    this.compiled = compiled;
    this.turns = compiled.target.devices.isHost ? turns : undefined;
  }

  get capacity(): Readonly<Record<string, Extents>> {
    return this.executor.capacity;
  }

  get inFlight(): number {
    return inFlightOf(this.executor);
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

  async prepare(): Promise<void> {
    await this.executor.prepare?.();
  }

  /** Waits for what it was asked, then releases its memory. */
  close(): Promise<void> {
    return this.executor.close();
  }
}
