/** Lets so many jobs in at a time, in the order in which they came. */
export class Gate {
  private free: number;
  private readonly places: number;
  private readonly waiting: (() => void)[] = [];
  private readonly onEmpty: (() => void)[] = [];

  constructor(places: number) {
    this.free = this.places = places;
  }

  /** Starts `work` when there is a place for it: at once, in the same turn, where there is one now. */
  async pass<T>(work: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      // The place is handed over, so that nobody who comes later slips in between.
      if (next !== undefined) next();
      else if (++this.free === this.places) for (const tell of this.onEmpty.splice(0)) tell();
    }
  }

  /** Resolves when nobody is inside and nobody waits. */
  async drain(): Promise<void> {
    if (this.free < this.places) await new Promise<void>((resolve) => this.onEmpty.push(resolve));
  }
}
