/** Objects of the native addon that others are made of: memory, libraries of kernels, and threads. */

/** Read-only mapping of a file, or zero-initialized memory aligned to 64 bytes. Freed when nothing uses it any more. */
export interface NativeMemory {
  readonly sizeBytes: number;
  /** For alignment checks and messages only: native code takes the object itself. */
  readonly address: bigint;
  readonly isWritable: boolean;
  /** Releases it. Programs and running jobs that use it keep it alive. */
  release(): void;
  /**
   * Advice for a range; default: all of it. `dontneed` drops the pages of a mapped file from this process; they are
   * read again when touched.
   */
  advise(advice: 'willneed' | 'dontneed', offset?: number, length?: number): void;
  /** Copies bytes in, out of. Neither checks that no job is running. */
  write(offset: number, data: NodeJS.TypedArray): void;
  read(offset: number, bytes: number): ArrayBuffer;
}

/** A shared object of generated kernels, closed when no program uses it. */
export interface NativeLibrary {
  has(symbol: string): boolean;
  release(): void;
}

/** Threads that sleep unless a job runs. One job at a time: starting another while `isBusy` throws. */
export interface NativePool {
  readonly threads: number;
  readonly isBusy: boolean;
  /** Stops work before the process exits: the running job rejects at its next launch, later jobs at once. */
  stop(): void;
  release(): void;
}

/** A range of a memory. */
export interface Slot {
  readonly memory: NativeMemory;
  readonly offset: number;
  readonly bytes: number;
}
