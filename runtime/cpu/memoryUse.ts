/** The memory that a plan needs, known before any of it is allocated. */
import { totalmem } from 'node:os';
import { constrainedMemory } from 'node:process';
import { bytes, partsLine } from '../../system/text.js';
import { MemoryShortage } from '../memoryShortage.js';
import type { NativeMemory } from '../native.js';

export interface MemoryUse {
  /** Weights read in place from the checkpoint: pages of files, which the system may drop and read again. */
  readonly mappedBytes: number;
  /** Weights in the layout of the kernels. */
  readonly packedBytes: number;
  /** Activations of the largest micro-batch. */
  readonly arenaBytes: number;
  /** States, which functions keep between calls. */
  readonly stateBytes: number;
  /** Scratch memory of all threads. */
  readonly scratchBytes: number;
}

/** Everything except what the system may drop and read again. */
export const residentBytes = ({ packedBytes, arenaBytes, stateBytes, scratchBytes }: MemoryUse): number =>
  packedBytes + arenaBytes + stateBytes + scratchBytes;

/** `memory: 25.1 MiB (weights 16.3 MiB, activations 7.15 MiB, scratch 1.65 MiB)`; mapped weights count. */
export const memoryLine = (use: MemoryUse): string =>
  partsLine('memory', [
    ['weights', use.mappedBytes + use.packedBytes],
    ['cache', use.stateBytes],
    ['activations', use.arenaBytes],
    ['scratch', use.scratchBytes],
  ]);

/** Readable lines: `weights, packed  2.05 GiB`. */
export function printMemoryUse(use: MemoryUse): string {
  const rows: readonly [string, number][] = [
    ['weights, mapped', use.mappedBytes],
    ['weights, packed', use.packedBytes],
    ['activations', use.arenaBytes],
    ...(use.stateBytes === 0 ? [] : ([['state', use.stateBytes]] satisfies [string, number][])),
    ['scratch', use.scratchBytes],
    ['total', use.mappedBytes + residentBytes(use)],
  ];
  return rows.map(([name, size]) => `${name.padEnd(16)} ${bytes(size).padStart(10)}`).join('\n');
}

/** Total bytes of the machine, or of this process's control group. */
export function machineBytes(): number {
  // 0 if the process is not constrained; a huge number if the control group sets no limit.
  const limit = constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}

/** The error for a machine (or its control group) that has no room for what must be resident beside `besideBytes`. */
export function memoryError(use: MemoryUse, besideBytes: number): MemoryShortage {
  const [needed, available] = [residentBytes(use), machineBytes()];
  return new MemoryShortage(
    { of: 'memory', neededBytes: needed, freeBytes: Math.max(0, available - besideBytes), totalBytes: available },
    `This plan needs ${bytes(needed)} of memory; this machine has ${bytes(available)}.\n${printMemoryUse(use)}`,
    'Use bf16 weights (--precision auto), smaller micro-batches or a larger machine.',
  );
}

/**
 * Throws MemoryShortage, a UserError, if the machine cannot hold what must be resident beside `besideBytes`, which
 * other models of this process hold.
 */
export function requireMemory(use: MemoryUse, besideBytes = 0): void {
  if (residentBytes(use) + besideBytes > machineBytes()) throw memoryError(use, besideBytes);
}

// Reserved memory is the process's own once it is touched. Until then nobody else counts it as taken.

const reserved = new Set<NativeMemory>();

export const keepCount = (memory: NativeMemory): void => void reserved.add(memory);
export const endCount = (memory: NativeMemory): void => void reserved.delete(memory);

/** The system needs the rest. */
const HOST_SHARE = 0.9;

/** Bytes that reserved memory may take now: what is free, less what was promised to others of this process. */
export function roomOnHost(): number {
  let promised = 0;
  for (const memory of reserved) promised += memory.usableBytes - memory.residentBytes;
  return Math.max(0, HOST_SHARE * process.availableMemory() - promised);
}
