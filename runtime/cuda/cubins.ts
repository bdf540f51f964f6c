/** Machine code of kernels by their symbols, some of which may still be on its way. */

export interface Cubins {
  /** The code of a kernel where it is there already. */
  known(symbol: string): Uint8Array | undefined;
  /** Resolves when it is there. Rejects where there is no such kernel, where one does not compile, and after stop(). */
  get(symbol: string): Promise<Uint8Array>;
  /** These come before all others that are still on their way. */
  prefer(symbols: Iterable<string>): void;
  /** From now on other work goes first: compilers take the processors that nobody else wants. */
  lower(): void;
  /** Ends what is under way, compilers at once. Resolves when nothing is left of it. */
  stop(): Promise<void>;
}

const noCode = (symbol: string): Error => new Error(`There is no machine code of ${symbol}.`);

/** Code that is all there. */
export const knownCubins = (cubins: ReadonlyMap<string, Uint8Array>): Cubins => ({
  known: (symbol) => cubins.get(symbol),
  get: (symbol) => {
    const cubin = cubins.get(symbol);
    return cubin === undefined ? Promise.reject(noCode(symbol)) : Promise.resolve(cubin);
  },
  prefer: () => {},
  lower: () => {},
  stop: () => Promise.resolve(),
});

/** Kernels whose code will come, each waited for by any number. */
export class Expected {
  private readonly known = new Map<string, Uint8Array>();
  private readonly waiting = new Map<string, { resolve(cubin: Uint8Array): void; reject(error: unknown): void }>();
  private readonly promises = new Map<string, Promise<Uint8Array>>();

  constructor(symbols: Iterable<string>) {
    for (const symbol of symbols) {
      const promise = new Promise<Uint8Array>((resolve, reject) => this.waiting.set(symbol, { resolve, reject }));
      // Not everybody who could ask does.
      promise.catch(() => undefined);
      this.promises.set(symbol, promise);
    }
  }

  at(symbol: string): Uint8Array | undefined {
    return this.known.get(symbol);
  }

  get(symbol: string): Promise<Uint8Array> {
    return this.promises.get(symbol) ?? Promise.reject(noCode(symbol));
  }

  resolve(symbol: string, cubin: Uint8Array): void {
    this.known.set(symbol, cubin);
    this.waiting.get(symbol)?.resolve(cubin);
  }

  reject(symbol: string, error: unknown): void {
    this.waiting.get(symbol)?.reject(error);
  }

  /** All that has not come will not. */
  end(error: unknown): void {
    for (const { reject } of this.waiting.values()) reject(error);
  }
}
