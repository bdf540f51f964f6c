/** Values that were used last, as many as so many bytes hold. */
export class ByteCache<K, V> {
  readonly #most: number;
  readonly #values = new Map<K, { readonly value: V; readonly sizeBytes: number }>();
  #sizeBytes = 0;

  constructor(mostBytes: number) {
    this.#most = mostBytes;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  get(key: K): V | undefined {
    const entry = this.#values.get(key);
    if (entry === undefined) return undefined;
    this.#values.delete(key);
    this.#values.set(key, entry);
    return entry.value;
  }

  /** A key that it does not have. */
  set(key: K, value: V, sizeBytes: number): void {
    this.#values.set(key, { value, sizeBytes });
    this.#sizeBytes += sizeBytes;
    for (const [oldest, entry] of this.#values) {
      if (this.#sizeBytes <= this.#most || oldest === key) break;
      this.#values.delete(oldest);
      this.#sizeBytes -= entry.sizeBytes;
    }
  }
}
