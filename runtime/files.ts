/** The files of a checkpoint while its weights are loaded. */
import { UserError } from '../errors.js';
import { loadAddon } from './addon.js';
import type { NativeMemory } from './nativeObjects.js';

export interface LoadProgress {
  /** Bytes of packed weights done and to do. */
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** The weight that was just finished. */
  readonly weight: string;
  /** What reading and packing it took, where it was loaded by itself: seconds and bytes. */
  readonly took?: { readonly seconds: number; readonly bytes: number };
}

/** The files of a checkpoint, each mapped once. */
export class FileMappings {
  private readonly files = new Map<string, NativeMemory>();

  /** Throws UserError if the file cannot be mapped or ends before `offset + bytes`. */
  get(file: string, offset: number, bytes: number): NativeMemory {
    let memory = this.files.get(file);
    if (memory === undefined) {
      const { Memory } = loadAddon();
      try {
        memory = new Memory(file);
      } catch (error) {
        throw new UserError(
          error instanceof Error ? `${error.message}.` : String(error),
          'Is the checkpoint whole? Download it again if not.',
          { cause: error },
        );
      }
      this.files.set(file, memory);
    }
    if (offset + bytes > memory.sizeBytes) {
      throw new UserError(
        `${file} is cut off: it has ${memory.sizeBytes} bytes, a tensor ends at ${offset + bytes}.`,
        'Download it again.',
      );
    }
    return memory;
  }

  release(): void {
    for (const memory of this.files.values()) memory.release();
    this.files.clear();
  }
}
