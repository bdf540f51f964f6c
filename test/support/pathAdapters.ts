/**
 * Slots of a made-up model: what a slot holds is part of the digest of every path that is computed with it, so that a
 * mix-up of slots, of pages or of versions gives other tokens, or keys of another path.
 */
import { createHash } from 'node:crypto';
import { type AdapterRef, type DeviceAdapters, StateLost, type StepMessage } from '../../engine/device.js';
import { UserError } from '../../errors.js';
import { mix } from './pathDigest.js';

export interface PathAdapterOptions {
  readonly count: number;
  /** Default: 16. */
  readonly rank?: number;
  /** Settles when a load may go on. Default: after two turns of the event loop. */
  readonly wait?: (adapter: AdapterRef, load: number) => Promise<void>;
  /** Why an adapter cannot be loaded. */
  readonly fails?: (adapter: AdapterRef) => string | undefined;
  /** Loads, counted from 0, in which the device ends. */
  readonly lostAt?: ReadonlySet<number>;
  /** Whether the device ends in a load. */
  readonly losesLoad?: () => boolean;
}

/** An adapter whose content is this text. Its path does not matter. */
export const adapterOf = (content: string, path = `/adapters/${content}`): AdapterRef => ({
  hash: createHash('sha256').update(content).digest('hex'),
  path,
});

export class PathAdapters implements DeviceAdapters {
  readonly count: number;
  readonly rank: number;
  /** Of all loads that began: the slot, and the path of the adapter. */
  readonly loads: { readonly slot: number; readonly path: string }[] = [];
  /** What nobody may do. */
  readonly errors: string[] = [];
  private readonly options: PathAdapterOptions;
  private readonly device: { readonly isLost: () => boolean; readonly lose: () => void };
  /** Of each slot what it holds; undefined: nothing, or it is being written. */
  private held: (AdapterRef | undefined)[] = [];
  private readonly inFlight: number[];
  private readonly loading = new Set<number>();
  private generation = 0;

  constructor(options: PathAdapterOptions, device: PathAdapters['device']) {
    this.count = options.count;
    this.rank = options.rank ?? 16;
    this.options = options;
    this.device = device;
    this.inFlight = Array.from({ length: this.count }, () => 0);
  }

  /** Paths of what slots hold, in their order. */
  get contents(): readonly (string | undefined)[] {
    return Array.from({ length: this.count }, (_, slot) => this.held[slot]?.path);
  }

  async load(slot: number, adapter: AdapterRef): Promise<void> {
    const { wait = twoTurns, fails, lostAt, losesLoad } = this.options;
    const load = this.loads.push({ slot, path: adapter.path }) - 1;
    const { generation } = this;
    if (!(slot >= 0 && slot < this.count)) this.errors.push(`slot ${slot}`);
    if (this.inFlight[slot]! > 0) this.errors.push(`slot ${slot} is written while a step reads it`);
    if (this.loading.has(slot)) this.errors.push(`slot ${slot} is written twice at a time`);
    this.loading.add(slot);
    this.held[slot] = undefined;
    await wait(adapter, load);
    this.loading.delete(slot);
    if (lostAt?.has(load) === true || losesLoad?.() === true) this.device.lose();
    if (generation !== this.generation || this.device.isLost()) throw new StateLost('gone while it loaded');
    const failure = fails?.(adapter);
    if (failure !== undefined) throw new UserError(failure, 'put it back');
    this.held[slot] = adapter;
  }

  /** What digests begin with, of a token with this slot. */
  begin(seed: number, slot: number): number {
    if (slot < 0) return seed;
    const adapter = this.held[slot];
    if (adapter === undefined) throw this.refuse(`a token names slot ${slot}, which holds nothing`);
    return mix(seed, Number.parseInt(adapter.hash.slice(0, 8), 16));
  }

  send({ adapter = new Int32Array(0) }: StepMessage): void {
    for (const slot of adapter) {
      if (slot < 0) continue;
      if (this.held[slot] === undefined && !this.device.isLost())
        this.errors.push(`a step names slot ${slot}, which is empty`);
      this.inFlight[slot]!++;
    }
  }

  done({ adapter = new Int32Array(0) }: StepMessage): void {
    for (const slot of adapter) if (slot >= 0) this.inFlight[slot]!--;
  }

  /** Another device has empty slots. */
  clear(): void {
    this.generation++;
    this.held = [];
    this.loading.clear();
  }

  private refuse(what: string): Error {
    this.errors.push(what);
    return new Error(what);
  }
}

const twoTurns = async (): Promise<void> => {
  for (let i = 0; i < 2; i++) await new Promise((resolve) => setImmediate(resolve));
};
