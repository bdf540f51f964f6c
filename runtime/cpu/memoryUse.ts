/** What a plan takes of memory, known before any of it is allocated. */
import { constrainedMemory } from 'node:process';
import { totalmem } from 'node:os';
import { UserError } from '../../errors.js';
import { bytes } from '../../system/format.js';

export interface MemoryUse {
  /** Weights read where they lie in the checkpoint: pages of files, which the system may drop and read again. */
  readonly mappedBytes: number;
  /** Weights in the layout of the kernels. */
  readonly packedBytes: number;
  /** Activations of the largest micro-batch. */
  readonly arenaBytes: number;
  /** What functions keep from call to call. */
  readonly stateBytes: number;
  /** Scratch of all threads. */
  readonly scratchBytes: number;
}

/** All but what the system may drop and read again. */
const residentBytes = ({ packedBytes, arenaBytes, stateBytes, scratchBytes }: MemoryUse): number =>
  packedBytes + arenaBytes + stateBytes + scratchBytes;

/** Lines for people: `weights, packed  2.05 GiB`. */
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

/** Bytes that the machine, or this process's control group, has in all. */
export function machineBytes(): number {
  // 0 where the process is not constrained; a huge number where the control group sets no limit.
  const limit = constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}

/** Throws UserError where the machine (or its control group) cannot hold what must be resident. */
export function requireMemory(use: MemoryUse): void {
  const needed = residentBytes(use);
  const available = machineBytes();
  if (needed > available) {
    throw new UserError(
      `This plan needs ${bytes(needed)} of memory; this machine has ${bytes(available)}.\n${printMemoryUse(use)}`,
      'Use bf16 weights (--precision auto), smaller micro-batches or a larger machine.',
    );
  }
}
