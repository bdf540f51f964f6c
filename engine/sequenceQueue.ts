/** Sequences in the order in which they are served: lower priorities first, and of equals the one that came first. */
import type { Sequence } from './sequence.js';

export class SequenceQueue {
  /** Pages that their tokens need, of all together. */
  neededPages = 0;
  /** Tokens that no step has taken yet when they came here, of all together. */
  pending = 0;
  /** How many of them have which adapter, by its hash. */
  readonly adapters = new Map<string, number>();
  private readonly items: Sequence[] = [];
  private readonly entered = new Map<Sequence, { readonly pages: number; readonly pending: number }>();

  get length(): number {
    return this.items.length;
  }

  get first(): Sequence | undefined {
    return this.items[0];
  }

  get last(): Sequence | undefined {
    return this.items.at(-1);
  }

  at(index: number): Sequence | undefined {
    return this.items[index];
  }

  has(sequence: Sequence): boolean {
    return this.entered.has(sequence);
  }

  add(sequence: Sequence): void {
    const { neededPages: pages, pending } = sequence;
    this.entered.set(sequence, { pages, pending });
    this.neededPages += pages;
    this.pending += pending;
    this.count(sequence, 1);
    const { last } = this;
    if (last === undefined || isBefore(last, sequence)) this.items.push(sequence);
    else this.items.splice(this.placeOf(sequence), 0, sequence);
  }

  /** Returns whether it was there. */
  delete(sequence: Sequence): boolean {
    const entered = this.entered.get(sequence);
    if (entered === undefined) return false;
    this.entered.delete(sequence);
    this.neededPages -= entered.pages;
    this.pending -= entered.pending;
    this.count(sequence, -1);
    this.items.splice(this.placeOf(sequence), 1);
    return true;
  }

  [Symbol.iterator](): IterableIterator<Sequence> {
    return this.items[Symbol.iterator]();
  }

  private count({ adapter }: Sequence, more: 1 | -1): void {
    if (adapter === undefined) return;
    const count = (this.adapters.get(adapter.hash) ?? 0) + more;
    if (count === 0) this.adapters.delete(adapter.hash);
    else this.adapters.set(adapter.hash, count);
  }

  /** Index of the first that does not come before it. */
  private placeOf(sequence: Sequence): number {
    let [low, high] = [0, this.items.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (isBefore(this.items[middle]!, sequence)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Whether `a` is served before `b`. */
export const isBefore = (a: Sequence, b: Sequence): boolean =>
  a.priority === b.priority ? a.arrival < b.arrival : a.priority < b.priority;
