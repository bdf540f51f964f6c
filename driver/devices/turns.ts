/**
 * Who of several may work. Those with work take turns in the order in which it came; work of the same one, which knows
 * how to order it, may overlap as long as nobody else waits.
 */
export class Turns {
  private owner: object | undefined;
  private working = 0;
  private readonly waiting: { readonly of: object; readonly begin: () => void }[] = [];

  /** Begins `work` of `of` in this turn of the event loop where it may, otherwise later. */
  async take<T>(of: object, work: () => Promise<T>): Promise<T> {
    if (this.waiting.length > 0 || (this.working > 0 && this.owner !== of))
      await new Promise<void>((resolve) => this.waiting.push({ of, begin: resolve }));
    else this.enter(of);
    try {
      return await work();
    } finally {
      this.working--;
      this.admit();
    }
  }

  private enter(of: object): void {
    this.owner = of;
    this.working++;
  }

  private admit(): void {
    for (;;) {
      const [next] = this.waiting;
      if (next === undefined || (this.working > 0 && this.owner !== next.of)) return;
      this.waiting.shift();
      // The place is taken before the work begins, so that nobody else gets it in between.
      this.enter(next.of);
      next.begin();
    }
  }
}
