/**
 * Sequences whose adapter is in no slot of the replica, and which adapter is loaded next, in place of which. They wait
 * beside the others and hold nobody up. Adapters get slots in the order of their first sequence; the least recently
 * used one that nobody computes with leaves. Where all are in use, later sequences of adapters that are there may go
 * first for a while; then the slot that is free soonest takes no more that come later.
 */
import type { AdapterRef, DeviceAdapters, StepMessage } from './device.js';
import { AdapterSlots, type Slot, type SlotCounts } from './adapterSlots.js';
import type { Sequence } from './sequence.js';
import { isBefore, SequenceQueue } from './sequenceQueue.js';

/** Later sequences with adapters that may begin before one that waits for a slot. */
const PATIENCE = 32;

/** Sequences of an adapter that is not there, and how many later ones began before the first of them. */
interface Parked {
  readonly queue: SequenceQueue;
  overtaken: number;
}

export interface AdapterEvents {
  /** Sequences may be admitted that could not be before. */
  onReady(): void;
  /** What these sequences wait for cannot be loaded. */
  onFailed(sequences: readonly Sequence[], error: Error): void;
}

/** An adapter that a replica has in a slot, or that sequences ask for. */
export interface AdapterUse {
  readonly hash: string;
  readonly isLoaded: boolean;
  /** Sequences that have pages, and that wait. */
  readonly running: number;
  readonly waiting: number;
}

export class AdapterQueue {
  private readonly slots: AdapterSlots;
  private readonly waiting: SequenceQueue;
  private readonly preempt: (sequence: Sequence) => void;
  private readonly parked = new Map<string, Parked>();
  /** Slots that take no sequences which come after one that waits for a slot. */
  private readonly kept = new Map<Slot, Sequence>();
  /** Adapters that took the slot of one whose sequences found no pages, since a sequence last began. */
  private readonly tried = new Set<string>();
  private events: AdapterEvents = { onReady: () => undefined, onFailed: () => undefined };

  /** `waiting`: sequences that can be admitted. `preempt`: takes the pages, and so the slot, of one that has some. */
  constructor(device: DeviceAdapters | undefined, waiting: SequenceQueue, preempt: (sequence: Sequence) => void) {
    this.waiting = waiting;
    this.preempt = preempt;
    this.slots = new AdapterSlots(device, {
      onLoaded: ({ hash }) => this.loaded(hash),
      onFailed: ({ hash }, error) => {
        this.events.onFailed([...(this.parked.get(hash)?.queue ?? [])], error);
      },
    });
  }

  listen(events: AdapterEvents): void {
    this.events = events;
  }

  get counts(): Readonly<SlotCounts> {
    return this.slots.counts;
  }

  get slotCount(): number {
    return this.slots.all.length;
  }

  /** Whether an adapter is on its way to a slot. */
  get isLoading(): boolean {
    return this.slots.isLoading;
  }

  /** Sequences that wait for what is being loaded at the moment. */
  get loadedFor(): readonly Sequence[] {
    return this.slots.all.flatMap(({ state, adapter }) =>
      state === 'loading' ? [...(this.parked.get(adapter!.hash)?.queue ?? [])] : [],
    );
  }

  /** Sequences that wait for a slot. */
  get length(): number {
    let count = 0;
    for (const { queue } of this.parked.values()) count += queue.length;
    return count;
  }

  *[Symbol.iterator](): Iterator<Sequence> {
    for (const { queue } of this.parked.values()) yield* queue;
  }

  /** The sequence waits: to be admitted, or for its adapter. */
  add(sequence: Sequence): void {
    const { adapter } = sequence;
    if (adapter === undefined) return this.waiting.add(sequence);
    const slot = this.slots.of(adapter.hash);
    if (slot !== undefined) slot.isLeaving = false;
    if (this.isAdmissible(sequence)) return this.waiting.add(sequence);
    const parked = this.parked.get(adapter.hash) ?? { queue: new SequenceQueue(), overtaken: 0 };
    this.parked.set(adapter.hash, parked);
    parked.queue.add(sequence);
  }

  /** Returns whether it waited for its adapter. */
  delete(sequence: Sequence): boolean {
    const { hash = '' } = sequence.adapter ?? {};
    const parked = this.parked.get(hash);
    if (parked?.queue.delete(sequence) !== true) return false;
    if (parked.queue.length === 0) this.parked.delete(hash);
    return true;
  }

  /** A sequence is about to have pages: its adapter is there. */
  begin(sequence: Sequence): void {
    if (sequence.adapter === undefined) return;
    this.slots.hold(sequence);
    this.tried.clear();
    for (const [hash, parked] of this.parked)
      if (this.slots.of(hash) === undefined && isBefore(parked.queue.first!, sequence)) parked.overtaken++;
  }

  /** It has no pages any more. */
  end(sequence: Sequence): void {
    this.slots.release(sequence);
  }

  send(message: StepMessage): void {
    this.slots.send(message);
  }

  done(message: StepMessage): void {
    this.slots.done(message);
  }

  /** No request asks for an adapter any more: its slot is free for others first. */
  unload(hash: string): void {
    if (!this.parked.has(hash) && !this.isWanted(hash)) this.slots.unload(hash);
  }

  /** Slots are empty. No sequence has pages, and none is here. */
  reset(): void {
    this.slots.reset();
    this.kept.clear();
    this.tried.clear();
    this.parked.clear();
  }

  /** How many loads a sequence with this adapter would wait for, its own included. */
  loadsFor(adapter: AdapterRef | undefined): number {
    if (adapter === undefined || this.slots.of(adapter.hash) !== undefined) return 0;
    const { hash } = adapter;
    const cold = [...this.parked.keys()].filter((each) => each !== hash && this.slots.of(each) === undefined).length;
    const free = this.slots.all.filter(({ state, holders }) => isFree(state) && holders.size === 0).length;
    return (this.parked.has(hash) ? 0 : 1) + Math.max(0, cold + 1 - free);
  }

  /** What is in slots, or asked for. */
  get uses(): readonly AdapterUse[] {
    const hashes = new Set([
      ...this.slots.all.flatMap(({ adapter }) => adapter?.hash ?? []),
      ...this.parked.keys(),
      ...this.waiting.adapters.keys(),
    ]);
    return [...hashes].map((hash) => {
      const slot = this.slots.of(hash);
      const waiting = (this.parked.get(hash)?.queue.length ?? 0) + (this.waiting.adapters.get(hash) ?? 0);
      return { hash, isLoaded: slot?.state === 'loaded', running: slot?.holders.size ?? 0, waiting };
    });
  }

  /** Before a step is planned, or as soon as sequences came: what is to be loaded is. */
  arrange({ mayPreempt }: { readonly mayPreempt: boolean }): void {
    if (this.parked.size === 0 || !this.slots.isOpen) return;
    this.reopen();
    for (const [parked, first] of this.heads()) {
      const slot =
        this.freeSlot() ??
        this.slotBefore(first, parked.overtaken >= PATIENCE) ??
        (mayPreempt ? (this.slotOf(isBehind) ?? this.slotOf(({ priority }) => priority > first.priority)) : undefined);
      if (slot !== undefined) this.give(slot, first.adapter!);
      else if (parked.overtaken < PATIENCE || !this.keepFor(first)) return;
    }
  }

  /**
   * A step could take nobody, and none is on its way: sequences that found no pages give up the slot of their adapter
   * for one that was not tried since the last sequence began.
   */
  arrangeOthers(): void {
    if (!this.slots.isOpen || this.isLoading) return;
    for (const [, first] of this.heads()) {
      const { hash } = first.adapter!;
      const slot = this.slots.all.find(({ state, holders }) => isFree(state) && holders.size === 0);
      if (slot === undefined) return;
      if (this.tried.has(hash)) continue;
      if (slot.adapter !== undefined) this.tried.add(slot.adapter.hash);
      this.tried.add(hash);
      return this.give(slot, first.adapter!);
    }
  }

  /** Whether it can be admitted: its adapter is there, and its slot not kept for a sequence that comes before it. */
  private isAdmissible(sequence: Sequence): boolean {
    const slot = this.slots.of(sequence.adapter!.hash);
    if (slot?.state !== 'loaded') return false;
    const keptFor = this.kept.get(slot);
    return keptFor === undefined || isBefore(sequence, keptFor);
  }

  /** Adapters that are in no slot, with their first sequences, in the order of those. */
  private heads(): readonly (readonly [Parked, Sequence])[] {
    return [...this.parked]
      .flatMap(([hash, parked]) => (this.slots.of(hash) === undefined ? [[parked, parked.queue.first!] as const] : []))
      .sort(([, a], [, b]) => (isBefore(a, b) ? -1 : 1));
  }

  /** A slot that is empty, or the least recently used one that nobody has or wants. */
  private freeSlot(): Slot | undefined {
    const empty = this.slots.all.find(({ state }) => state === 'empty');
    return empty ?? this.leastUsed(({ adapter, holders }) => holders.size === 0 && !this.isWanted(adapter!.hash));
  }

  /** One whose sequences have no pages yet: all of them come later, or the first waits too long. */
  private slotBefore(first: Sequence, isLate: boolean): Slot | undefined {
    if (!isLate) return undefined;
    return this.leastUsed(({ adapter, holders }) => {
      if (holders.size > 0) return false;
      for (const each of this.waiting) if (each.adapter?.hash === adapter!.hash) return isBefore(first, each);
      return true;
    });
  }

  /** The least recently used one whose sequences may all be preempted. */
  private slotOf(mayGo: (holder: Sequence) => boolean): Slot | undefined {
    return this.leastUsed(({ holders }) => holders.size > 0 && [...holders].every(mayGo));
  }

  private leastUsed(fits: (slot: Slot) => boolean): Slot | undefined {
    let least: Slot | undefined;
    for (const slot of this.slots.all)
      if (slot.state === 'loaded' && slot.usedAt < (least?.usedAt ?? Infinity) && fits(slot)) least = slot;
    return least;
  }

  private isWanted(hash: string): boolean {
    return this.waiting.adapters.has(hash);
  }

  /** The slot is for another adapter: sequences of the one that leaves wait for a slot. */
  private give(slot: Slot, adapter: AdapterRef): void {
    for (const sequence of [...slot.holders]) this.preempt(sequence);
    const { adapter: before } = slot;
    this.kept.delete(slot);
    this.slots.assign(slot, adapter);
    if (before !== undefined) this.park(before.hash);
  }

  /** The slot that is free soonest takes no sequences that come after this one. False: none is left to be kept. */
  private keepFor(first: Sequence): boolean {
    if ([...this.kept.values()].some(({ adapter }) => adapter!.hash === first.adapter!.hash)) return true;
    let [soonest, least]: [Slot | undefined, number] = [undefined, Infinity];
    for (const slot of this.slots.all) {
      if (slot.state !== 'loaded' || this.kept.has(slot)) continue;
      const left = Math.max(0, ...[...slot.holders].map(({ longest, tokens }) => longest - tokens.length));
      if (left < least) [soonest, least] = [slot, left];
    }
    if (soonest === undefined) return false;
    this.kept.set(soonest, first);
    this.park(soonest.adapter!.hash);
    return true;
  }

  /** Sequences of an adapter that can be admitted no more wait here. */
  private park(hash: string): void {
    if (!this.isWanted(hash)) return;
    for (const sequence of [...this.waiting])
      if (sequence.adapter?.hash === hash && !this.isAdmissible(sequence)) {
        this.waiting.delete(sequence);
        this.add(sequence);
      }
  }

  /** Slots whose sequence waits for none any more are for all again. */
  private reopen(): void {
    for (const [slot, { adapter }] of this.kept) {
      if (this.parked.has(adapter!.hash) && this.slots.of(adapter!.hash) === undefined) continue;
      this.kept.delete(slot);
      this.admit(slot.adapter!.hash);
    }
  }

  private loaded(hash: string): void {
    this.admit(hash);
    this.events.onReady();
  }

  private admit(hash: string): void {
    const parked = this.parked.get(hash);
    this.parked.delete(hash);
    for (const sequence of parked?.queue ?? []) this.add(sequence);
  }
}

/** Whether nothing is on its way to a slot in this state. */
const isFree = (state: Slot['state']): boolean => state === 'empty' || state === 'loaded';

const isBehind = ({ isPaused }: Sequence): boolean => isPaused;
