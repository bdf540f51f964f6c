/** The work of one thread: takes blocks until none is left, fills and writes them. */
import { writeSync } from 'node:fs';
import type { Block } from './layout.js';
import { blockKey, BLOCK_BYTES, fillBlock, valueTable, type MadeDType } from './values.js';

/** Plain data, shared by all threads. */
export interface FillWork {
  readonly seed: number;
  readonly dtype: MadeDType;
  readonly blocks: readonly Block[];
  /** File descriptors, open for writing, by the number of the file. */
  readonly descriptors: readonly number[];
  /** Int32: the next block, and 1 once no more blocks may be taken. */
  readonly next: SharedArrayBuffer;
  /** One BigInt64: the bytes written so far. */
  readonly written: SharedArrayBuffer;
}

/** transformers' initializer_range. */
const DEVIATION = 0.02;
/** Norm weights of trained models lie around 1. */
const NORM = { mean: 1, deviation: 0.1 };

export const makeFillWork = (work: Omit<FillWork, 'next' | 'written'>): FillWork => ({
  ...work,
  next: new SharedArrayBuffer(8),
  written: new SharedArrayBuffer(8),
});

export const bytesWritten = ({ written }: FillWork): number => Number(Atomics.load(new BigInt64Array(written), 0));

/** Makes threads end after their current block. */
export const stopFilling = ({ next }: FillWork): void => {
  Atomics.store(new Int32Array(next), 1, 1);
};

function writeAll(descriptor: number, bytes: Uint8Array, offset: number): void {
  for (let done = 0; done < bytes.length;)
    done += writeSync(descriptor, bytes, done, bytes.length - done, offset + done);
}

/**
 * A generator that yields after each block, so that a thread with other duties can attend to them. Throws the errors of
 * writing.
 */
export function* fillBlocks({ seed, dtype, blocks, descriptors, next, written }: FillWork): Generator<void, void> {
  const matrix = valueTable(dtype, 0, DEVIATION);
  const tables = { matrix, bias: matrix, norm: valueTable(dtype, NORM.mean, NORM.deviation) };
  const words = new Uint32Array(BLOCK_BYTES / 4);
  const [turn, total] = [new Int32Array(next), new BigInt64Array(written)];
  while (Atomics.load(turn, 1) === 0) {
    const block = blocks[Atomics.add(turn, 0, 1)];
    if (block === undefined) return;
    fillBlock(
      words.subarray(0, Math.ceil(block.bytes / 4)),
      tables[block.tensor.role],
      blockKey(seed, block.tensor.name, block.number),
    );
    writeAll(descriptors[block.file]!, new Uint8Array(words.buffer, 0, block.bytes), block.offset);
    Atomics.add(total, 0, BigInt(block.bytes));
    yield;
  }
}
