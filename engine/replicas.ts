/**
 * Replicas of a model that compute requests side by side. Each keeps pages of its own. A request goes to the replica of
 * its affinity, or to the one with the least to do, counting what it would find in pages; when a device ends, its
 * requests go to the others. What a request gets does not depend on the replica.
 */
import type { Discarded } from './discard.js';
import type { DeviceAdapters, DeviceModel } from './device.js';
import { Generator, type GeneratorOptions } from './generator.js';
import { defined } from '../system/defined.js';
import { adapterStats, type GeneratorCounts, Measures, type ModelStats } from './modelStats.js';
import type { MemoryRoom } from './replicaMemory.js';
import type { Task } from './task.js';

/** An adapter takes about as long to load as so many tokens to compute. */
const LOAD_TOKENS = 1024;

export class Replicas {
  private readonly generators: Generator[] = [];
  private readonly options: GeneratorOptions;

  /**
   * `models`: those that are ready, at least one. Throws UserError where a device has no memory for it beside others.
   */
  constructor(models: readonly DeviceModel[], options: Omit<GeneratorOptions, 'measures'> = {}) {
    this.options = { ...options, measures: new Measures() };
    try {
      for (const model of models) this.add(model);
    } catch (error) {
      this.leave();
      throw error;
    }
  }

  /** The model is closed: others may have its memory. */
  leave(): void {
    for (const { memory } of this.generators) memory.leave();
  }

  /** A replica that is ready takes its share of what has not begun. */
  add(model: DeviceModel): void {
    const rescue = (tasks: readonly Task[]): readonly Task[] =>
      this.generators.some((each) => each !== generator && each.isReady) ? this.place(tasks) : tasks;
    const generator: Generator = new Generator(model, rescue, this.options);
    this.generators.push(generator);
    if (this.generators.length > 1) this.place(this.generators.flatMap((each) => each.takeWaiting()));
  }

  start(task: Task): void {
    this.place([task]);
  }

  /** Nobody goes on with a text. */
  discard(text: Discarded): void {
    for (const generator of this.generators) generator.discard(text);
  }

  /** No request asks for an adapter any more. */
  unloadAdapter(hash: string): void {
    for (const { adapters } of this.generators) adapters.unload(hash);
  }

  /** Settles when no step is on its way and none will begin without a new request. */
  async idle(): Promise<void> {
    await Promise.all(this.generators.map(({ idle }) => idle));
  }

  /** Sequences that have no pages yet, or none any more. */
  get waiting(): number {
    return this.generators.reduce((sum, each) => sum + each.waiting, 0);
  }

  /** No device is left, and none will come back. */
  get isLost(): boolean {
    return this.generators.every(({ gone }) => gone !== undefined);
  }

  get maxLength(): number {
    return this.generators[0]!.maxLength;
  }

  get vocab(): number | undefined {
    return this.generators[0]!.vocab;
  }

  get classes(): number | undefined {
    return this.generators[0]!.classes;
  }

  /** Slots for adapters of requests, on each replica; undefined where there are none. */
  get adapters(): Pick<DeviceAdapters, 'count' | 'rank'> | undefined {
    return this.generators[0]!.model.adapters;
  }

  get room(): number {
    return Math.min(...this.generators.map(({ room }) => room));
  }

  /** What each replica has room for. */
  get rooms(): readonly MemoryRoom[] {
    return this.generators.map(({ memory }) => memory.room);
  }

  /** Sums over all replicas. */
  get counts(): GeneratorCounts {
    return this.generators
      .map(({ counts }) => counts)
      .reduce((a, b) => ({
        calls: a.calls + b.calls,
        computedTokens: a.computedTokens + b.computedTokens,
        foundTokens: a.foundTokens + b.foundTokens,
        preemptions: a.preemptions + b.preemptions,
        evictions: a.evictions + b.evictions,
        peakPages: a.peakPages + b.peakPages,
        pages: a.pages + b.pages,
      }));
  }

  /** What it does at the moment, and has done so far. */
  get stats(): ModelStats {
    const sums = { running: 0, waiting: 0, paused: 0, pages: 0, heldPages: 0, steps: 0, preemptions: 0 };
    for (const { load } of this.generators)
      for (const key of Object.keys(sums) as (keyof typeof sums)[]) sums[key] += load[key];
    const { adapters: slots } = this;
    const adapters =
      slots &&
      adapterStats(
        slots,
        this.generators.map(({ adapters: queue }) => queue),
      );
    return { ...sums, ...this.options.measures!.sums, ...defined({ adapters }) };
  }

  /** Every task to a replica; none is left. */
  private place(tasks: readonly Task[]): readonly Task[] {
    for (const task of tasks) this.choose(task).start(task);
    return [];
  }

  private choose({ sequence, affinity }: Task): Generator {
    const { generators } = this;
    if (generators.length === 1) return generators[0]!;
    const own = affinity === undefined ? undefined : generators[affinity % generators.length]!;
    if (own?.isReady === true) return own;
    const ready = generators.filter(({ isReady }) => isReady);
    const left = ready.length > 0 ? ready : generators.filter(({ gone }) => gone === undefined);
    const there = left.length > 0 ? left : generators;
    // The others share out what a replica that is gone leaves, in turn as well.
    if (affinity !== undefined) return there[Math.floor(affinity / generators.length) % there.length]!;
    const costs = there.map((generator) => ({
      generator,
      cost:
        generator.workTokens -
        generator.findable(sequence) +
        LOAD_TOKENS * generator.adapters.loadsFor(sequence.adapter),
    }));
    return costs.reduce((best, each) => (each.cost < best.cost ? each : best)).generator;
  }
}
