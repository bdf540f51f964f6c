/**
 * What uses a model's KV cache: texts together, whose scheduler knows what the memory holds, or
 * scoring alone, which overwrites all of it.
 */
export class CacheUse {
  private readonly texts = new Set<Promise<unknown>>();
  private scoring: Promise<unknown> = Promise.resolve();

  /** Begins when nothing scores. */
  share<T>(work: () => Promise<T>): Promise<T> {
    const job = this.scoring.then(work);
    const settled: Promise<unknown> = job.catch(() => undefined).finally(() => this.texts.delete(settled));
    this.texts.add(settled);
    return job;
  }

  /** Begins when all that came before it is done. What comes later waits. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    const job = Promise.all([this.scoring, ...this.texts]).then(work);
    this.scoring = job.catch(() => undefined);
    return job;
  }
}
