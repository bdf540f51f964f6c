/** What a contraction says of the adapters of its rows, and their bounds. GemmKernel says what is computed with it. */
import type { ExtentName } from './types.js';

/**
 * The second factor of an adapter for a segment: `weight` has slots, and in each the matrix B [columns (×2 if
 * interleaved), rank] in the segment's pairing. Columns of the segment's first matrix read part `part` of what was
 * shrunk, those of its second one part `part` + 1.
 */
export interface SegmentAdapter {
  readonly weight: string;
  readonly part: number;
}

/** The rows of a contraction that have adapters. */
export interface AdapterRows {
  /** i32[rows]: the slot of each row's adapter, below `slots`; −1: the row has none. */
  readonly slot: string;
  readonly slots: number;
  /** Of every adapter, ranks below it padded with zeros: a multiple of ADAPTER_RANK. */
  readonly rank: number;
  /** [rows, parts·rank] of the left operand's type, as a shrink kernel leaves it; anything in rows without adapter. */
  readonly shrunk: string;
  /** What that kernel shrinks rows by, for a product that does it itself. */
  readonly first: FirstFactors;
}

/** The first factors of adapters, as weights with slots: in each [parts·rank, k], and f32[parts] scales. */
export interface FirstFactors {
  readonly weight: string;
  readonly scale: string;
}

/** The depth of one step of tensor cores, in which ranks are counted. */
export const ADAPTER_RANK = 16;
/** Largest rank of a slot, and most slots. */
export const MAX_ADAPTER_RANK = 512;
export const MAX_ADAPTER_SLOTS = 1024;

/** What a model is compiled for. */
export interface AdapterSlots {
  /** Adapters that a device holds side by side. */
  readonly slots: number;
  /** Largest rank of an adapter. */
  readonly rank: number;
}

/** The inputs that say the slots of rows: of new tokens, and of rows behind the last attention. */
export const ADAPTER_INPUTS: Readonly<Record<ExtentName, string>> = { T: 'adapter', R: 'rowAdapter' };
