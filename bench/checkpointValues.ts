/**
 * Values of made-up tensors: nearly normal, determined by seed, tensor and position, at a gigabyte a second for each
 * thread.
 */
import { writeSync } from 'node:fs';
import { workerData } from 'node:worker_threads';
import { roundToF16 } from '../ir/round.js';
import { roundToBf16 } from '../ir/scalar.js';
import type { ExpectedTensor } from '../models/model/tensors.js';
import { fnv1a64 } from '../models/randomCheckpoint.js';
import { at } from '../system/at.js';

export type MadeDType = 'bf16' | 'f16';

export interface MadeTensor {
  readonly name: string;
  readonly role: ExpectedTensor['role'];
  /** Offset in its file, bytes. */
  readonly offset: number;
  readonly bytes: number;
}

/** A part of a tensor that is filled and written at once. */
export interface FillBlock {
  readonly file: number;
  readonly tensor: MadeTensor;
  /** Offset in the tensor. */
  readonly number: number;
  /** Offset in the file. */
  readonly offset: number;
  readonly bytes: number;
}

export const ELEMENT_BYTES = 2;
/** The amount that is filled and written at a time. Every block has a key of its own. */
export const BLOCK_BYTES = 4 << 20;
const TABLE = 1 << 16;
const GOLDEN = (Math.sqrt(5) - 1) / 2;
const F16_BIAS = 15;
const F16_DIGITS = 10;

/** The bits of a value that the type represents exactly. */
function bitsOf(dtype: MadeDType, value: number): number {
  if (dtype === 'bf16') return new Uint32Array(Float32Array.of(value).buffer)[0]! >>> 16;
  const sign = value < 0 ? 0x8000 : 0;
  const size = Math.abs(value);
  const exponent = Math.max(1 - F16_BIAS, Math.floor(Math.log2(size === 0 ? 1e-30 : size)));
  // A subnormal's leading digit is 0, so its exponent field is 0 without further care.
  return sign | ((exponent + F16_BIAS - 1) * (1 << F16_DIGITS) + size * 2 ** (F16_DIGITS - exponent));
}

/**
 * The bits of 2^16 values with the given mean and standard deviation, spread evenly over the normal distribution (Box
 * and Muller's transform of a lattice). A random index draws a nearly normal value.
 */
export function valueTable(dtype: MadeDType, mean: number, deviation: number): Uint16Array {
  const round = dtype === 'bf16' ? roundToBf16 : roundToF16;
  return Uint16Array.from({ length: TABLE }, (_, i) => {
    const radius = Math.sqrt(-2 * Math.log((i + 0.5) / TABLE));
    return bitsOf(dtype, round(mean + deviation * radius * Math.cos(2 * Math.PI * ((i * GOLDEN) % 1))));
  });
}

/** 64 bits that determine a block of a tensor. */
export interface BlockKey {
  readonly low: number;
  readonly high: number;
}

export function blockKey(seed: number, tensor: string, block: number): BlockKey {
  const hash = fnv1a64(`${seed}:${tensor}:${block}`);
  return { low: Number(hash & 0xffffffffn), high: Number(hash >> 32n) };
}

/**
 * Fills a block, two elements in each word. Counters go through a mixer (constants of lowbias32,
 * https://nullprogram.com/blog/2018/07/31/) that takes half of the key before it and half within, so two blocks share
 * no run.
 */
export function fillBlock(words: Uint32Array, table: Uint16Array, { low, high }: BlockKey): void {
  for (let i = 0; i < words.length; i++) {
    let x = (i + low) | 0;
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d) ^ high;
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    x ^= x >>> 16;
    words[i] = table[x & 0xffff]! | (table[x >>> 16]! << 16);
  }
}

/** The work of one thread: takes blocks until none is left, fills and writes them. */

/** Plain data, shared by all threads. */
export interface FillWork {
  readonly seed: number;
  readonly dtype: MadeDType;
  readonly blocks: readonly FillBlock[];
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
    writeAll(at(descriptors, block.file), new Uint8Array(words.buffer, 0, block.bytes), block.offset);
    Atomics.add(total, 0, BigInt(block.bytes));
    yield;
  }
}

/** As a thread of writeCheckpoint. It sends nothing, and ends with an error if something went wrong. */
if (isFillWork(workerData)) for (const _block of fillBlocks(workerData));

function isFillWork(data: unknown): data is FillWork {
  return typeof data === 'object' && data !== null && 'blocks' in data && 'descriptors' in data && 'written' in data;
}
