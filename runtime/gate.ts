/** Admits a limited number of jobs at a time, in the order in which they came. */
export class Gate {
  private free: number;
  private readonly places: number;
  private readonly waiting: (() => void)[] = [];
  private readonly onEmpty: (() => void)[] = [];

  constructor(places: number) {
    this.free = this.places = places;
  }

  /** Starts `work` when there is a place for it: immediately, in the same turn, if there is one now. */
  async pass<T>(work: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      // The place is passed on directly, so that no later job takes it in between.
      if (next !== undefined) next();
      else if (++this.free === this.places) for (const tell of this.onEmpty.splice(0)) tell();
    }
  }

  /** Resolves when no job is running or waiting. */
  async drain(): Promise<void> {
    if (this.free < this.places) await new Promise<void>((resolve) => this.onEmpty.push(resolve));
  }
}
