/**
 * The slots of adapters on a replica: which adapter each holds, who computes with it, and what is on its way. A slot is
 * loaded while steps that name others go on. Steps that name it are over by then, and none is planned until it is
 * there. Who gets a slot is decided elsewhere (adapterQueue).
 */
import { type AdapterRef, type DeviceAdapters, StateLost, type StepMessage } from './device.js';
import type { Sequence } from './sequence.js';

export interface Slot {
  readonly index: number;
  /** What it holds, or will hold. */
  adapter: AdapterRef | undefined;
  /** `due`: it is loaded as soon as the steps that name what it held are over. */
  state: 'empty' | 'due' | 'loading' | 'loaded';
  /** Sequences with pages: they compute with it, or their readers are behind. */
  readonly holders: Set<Sequence>;
  /** Steps on their way that name it. */
  inFlight: number;
  /** When it was last let go of, or loaded: lower is longer ago. */
  usedAt: number;
  /** Nobody asks for its adapter any more: once it is free, it counts as empty. */
  isLeaving: boolean;
}

export interface SlotEvents {
  onLoaded(adapter: AdapterRef): void;
  /** The slot is empty. StateLost: all are, and nothing is loaded before `reset`. */
  onFailed(adapter: AdapterRef, error: Error): void;
}

export interface SlotCounts {
  loads: number;
  failures: number;
  /** Adapters that gave their slot to another one. */
  evictions: number;
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

export class AdapterSlots {
  readonly all: readonly Slot[];
  readonly counts: SlotCounts = { loads: 0, failures: 0, evictions: 0 };
  private readonly device: DeviceAdapters | undefined;
  private readonly events: SlotEvents;
  private readonly byHash = new Map<string, Slot>();
  /** Settles when the device is done with the last load of each slot. */
  private readonly called: Promise<unknown>[];
  private clock = 0;
  /** What is answered about loads of an earlier one is of no use. */
  private generation = 0;
  private isLost = false;

  constructor(device: DeviceAdapters | undefined, events: SlotEvents) {
    this.device = device;
    this.events = events;
    this.called = Array.from({ length: device?.count ?? 0 }, () => Promise.resolve());
    this.all = this.called.map((_, index) => ({
      ...{ index, adapter: undefined, state: 'empty', holders: new Set<Sequence>() },
      ...{ inFlight: 0, usedAt: 0, isLeaving: false },
    }));
  }

  /** The slot that holds this adapter, or will. */
  of(hash: string): Slot | undefined {
    return this.byHash.get(hash);
  }

  /** Whether one is being loaded, or will be. */
  get isLoading(): boolean {
    return this.all.some(({ state }) => state === 'due' || state === 'loading');
  }

  /** The sequence is about to have pages. Its adapter is loaded. */
  hold(sequence: Sequence): void {
    const slot = this.byHash.get(sequence.adapter!.hash)!;
    slot.holders.add(sequence);
    sequence.slot = slot.index;
  }

  /** The sequence has no pages any more. */
  release(sequence: Sequence): void {
    const slot = this.all[sequence.slot];
    sequence.slot = -1;
    if (slot === undefined) return;
    slot.holders.delete(sequence);
    slot.usedAt = ++this.clock;
    this.leave(slot);
  }

  /** A step was planned; it is over. */
  send({ adapter }: StepMessage): void {
    for (const index of adapter ?? []) if (index >= 0) this.all[index]!.inFlight++;
  }

  done({ adapter }: StepMessage): void {
    for (const index of adapter ?? []) {
      const slot = this.all[index];
      if (slot === undefined) continue;
      slot.inFlight--;
      this.load(slot);
    }
  }

  /** The slot, which nobody holds, is for this adapter from now on. */
  assign(slot: Slot, adapter: AdapterRef): void {
    if (slot.adapter !== undefined) {
      this.byHash.delete(slot.adapter.hash);
      this.counts.evictions++;
    }
    this.byHash.set(adapter.hash, slot);
    Object.assign(slot, { adapter, state: 'due', isLeaving: false });
    this.load(slot);
  }

  /** Whether a slot can be had for another adapter: none can while the device is gone. */
  get isOpen(): boolean {
    return !this.isLost;
  }

  /** Nobody asks for an adapter any more. */
  unload(hash: string): void {
    const slot = this.byHash.get(hash);
    if (slot === undefined) return;
    slot.isLeaving = true;
    this.leave(slot);
  }

  /** The device is gone, or nobody knows what it holds. No step is on its way, and no sequence has pages. */
  reset(): void {
    this.generation++;
    this.isLost = false;
    for (const slot of this.all) {
      slot.holders.clear();
      slot.inFlight = 0;
      this.empty(slot);
    }
  }

  private load(slot: Slot): void {
    if (slot.state !== 'due' || slot.inFlight > 0) return;
    const { generation, device } = this;
    const { index, adapter } = slot;
    slot.state = 'loading';
    this.counts.loads++;
    const settle = (error?: Error): void => {
      if (generation !== this.generation) return;
      if (error === undefined) {
        Object.assign(slot, { state: 'loaded', usedAt: ++this.clock });
        this.leave(slot);
        return this.events.onLoaded(adapter!);
      }
      this.counts.failures++;
      this.isLost ||= error instanceof StateLost;
      this.empty(slot);
      this.events.onFailed(adapter!, error);
    };
    // What an earlier load of the slot writes is not to come after this one.
    const call = this.called[index]!.then(() => device!.load(index, adapter!));
    this.called[index] = call.catch(() => undefined);
    call.then(
      () => settle(),
      (error: unknown) => settle(asError(error)),
    );
  }

  private leave(slot: Slot): void {
    if (slot.isLeaving && slot.state === 'loaded' && slot.holders.size === 0) this.empty(slot);
  }

  private empty(slot: Slot): void {
    if (slot.adapter !== undefined) this.byHash.delete(slot.adapter.hash);
    Object.assign(slot, { adapter: undefined, state: 'empty', isLeaving: false });
  }
}
