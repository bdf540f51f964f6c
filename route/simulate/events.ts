/** What happens next: events by time, and by order of arrival where times are equal. */
export class Events<T> {
  private readonly heap: { readonly at: number; readonly order: number; readonly event: T }[] = [];
  private count = 0;

  get size(): number {
    return this.heap.length;
  }

  /** Time of the next event; Infinity if there is none. */
  get nextAt(): number {
    return this.heap[0]?.at ?? Infinity;
  }

  add(at: number, event: T): void {
    const { heap } = this;
    const added = { at, order: this.count++, event };
    let place = heap.push(added) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!isBefore(added, heap[parent]!)) break;
      heap[place] = heap[parent]!;
      place = parent;
    }
    heap[place] = added;
  }

  take(): T | undefined {
    const { heap } = this;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first?.event;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (!isBefore(heap[child]!, last)) break;
      heap[place] = heap[child]!;
      place = child;
    }
    heap[place] = last;
    return first.event;
  }
}

const isBefore = (a: { at: number; order: number }, b: { at: number; order: number }): boolean =>
  a.at < b.at || (a.at === b.at && a.order < b.order);
