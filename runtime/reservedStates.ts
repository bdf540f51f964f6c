/**
 * Memory behind the states that have a row for each token: addresses for all of them, memory behind the first rows, as
 * many in every state. It comes and goes in pieces.
 */
import { roundUp } from '../ir/types.js';
import type { PlacedState } from './runtimePlan.js';

/** What memory of states comes and goes in, on the device where it takes most. */
export interface StatePieces {
  /** Rows of a piece, one for each token: a whole number of pages. */
  readonly tokens: number;
  /** Bytes of those in all states. */
  readonly bytes: number;
}

/** Reserved memory of any target. */
export interface MappedMemory {
  /** Puts memory behind the first bytes and takes it from behind the others: the bytes that have some now. */
  map(bytes: number): number | Promise<number>;
}

/** The reserved states of one device. */
export interface DeviceStates {
  readonly states: readonly (Pick<PlacedState, 'rowBytes'> & { readonly memory: MappedMemory })[];
  /** Bytes that may be taken now. */
  room(): number;
}

/** Rows of reserved states, one for each token. */
export interface StateTokens {
  /** Those that there is memory for once the plan is opened. */
  readonly first: number;
  /** What a device that cannot map memory piece by piece allocates at once: all there will ever be. */
  readonly most: number;
}

export const NO_TOKENS: StateTokens = { first: 0, most: 0 };

/** Rows of a piece are a multiple of this: whole pages, and rows that states are padded to. */
const PIECE_ROWS = 64;
/** Kernels read whole tiles of rows, up to so many behind the last one that is in use, and use none of those. */
export const ROWS_BEHIND = 64;

/** Bytes of a reserved state that hold its first rows, and what kernels may read behind them. Never none. */
export const bytesOfRows = (rows: number, rowBytes: number): number => (Math.max(1, rows) + ROWS_BEHIND) * rowBytes;

/** Bytes of the states of a device that hold the first `tokens` rows of those that are reserved. */
export const bytesOfStates = (states: readonly PlacedState[], tokens: number): number =>
  states.reduce((sum, { bytes, rowBytes, isReserved }) => sum + (isReserved ? tokens * rowBytes : bytes), 0);

/** Pieces of at least `granularity` bytes of the state with the widest rows. `devices`: the reserved states of each. */
export function statePieces(
  devices: readonly (readonly Pick<PlacedState, 'rowBytes'>[])[],
  granularity: number,
): StatePieces {
  const widest = Math.max(1, ...devices.flat().map(({ rowBytes }) => rowBytes));
  const tokens = roundUp(Math.ceil(granularity / widest), PIECE_ROWS);
  const bytes = Math.max(
    0,
    ...devices.map((states) => states.reduce((sum, { rowBytes }) => sum + tokens * rowBytes, 0)),
  );
  return { tokens, bytes };
}

export class ReservedStates {
  readonly pieces: StatePieces;
  /** Rows that there is memory for in every state. */
  tokens = 0;
  private readonly devices: readonly DeviceStates[];

  constructor(devices: readonly DeviceStates[], granularity: number) {
    this.devices = devices;
    this.pieces = statePieces(
      devices.map(({ states }) => states),
      granularity,
    );
  }

  /**
   * Has memory behind as many rows of every state, and no others; one call at a time, and nothing uses rows that are
   * given up. Resolves with the rows that there is memory for: fewer where it ran out, never fewer than before unless
   * that was asked.
   */
  async resize(tokens: number): Promise<number> {
    const before = this.tokens;
    this.tokens = Math.min(before, tokens);
    let wanted = tokens > before ? Math.min(tokens, before + this.tokensWithin()) : tokens;
    let mapped = await this.map(wanted);
    // What some states could not have is of no use in the others.
    while (mapped < wanted) {
      wanted = Math.max(mapped, this.tokens);
      mapped = await this.map(wanted);
    }
    this.tokens = wanted;
    return wanted;
  }

  /** More rows that there is room for, in whole pieces. */
  private tokensWithin(): number {
    const { tokens, bytes } = this.pieces;
    if (bytes === 0) return Infinity;
    const room = Math.min(...this.devices.map((device) => (device.states.length === 0 ? Infinity : device.room())));
    return Math.max(0, Math.floor(room / bytes)) * tokens;
  }

  /** The rows that every state has memory for then, of those asked for. The first that has too little ends it. */
  private async map(tokens: number): Promise<number> {
    for (const { states } of this.devices)
      for (const { rowBytes, memory } of states) {
        const bytes = bytesOfRows(tokens, rowBytes);
        const mapped = await memory.map(bytes);
        if (mapped < bytes) return Math.max(0, Math.floor(mapped / rowBytes) - ROWS_BEHIND);
      }
    return tokens;
  }
}
