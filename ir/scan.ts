/** A scan: states that go from token to token. ir/ops/recurrent says what it computes. */

export type { LinksParts } from './paths.js';

/** How a state is changed by a token's key and value. */
export const SCAN_RULES = ['add', 'delta'] as const;
export type ScanRule = (typeof SCAN_RULES)[number];

/** Most rows of a state: kernels keep a few of its columns at a time, all rows of them. */
export const MAX_KEY_DIM = 256;

/**
 * The recurrence that ir/ops/recurrent calls `scan`, as a kernel. States are f32, and go from token to token in order
 * of rows: no result depends on how rows are shared out. What a state adds up over keyDim is added in an order that
 * depends on keyDim alone.
 */
export interface ScanParts {
  readonly rule: ScanRule;
  readonly keyHeads: number;
  readonly heads: number;
  /** True if heads take the heads of keys in turn. Default: neighbours share one. */
  readonly takesTurns?: true;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly scale?: number;
  readonly epsilon?: number;
  /** [rows, keyHeads·keyDim] each, of one type. */
  readonly q: string;
  readonly k: string;
  /** [rows, heads·valueDim] of the same type. */
  readonly v: string;
  /** f32[rows, heads] */
  readonly decay: string;
  readonly beta: string;
  /** [heads], a weight. */
  readonly skip?: string;
  /** i32[rows]: the row that each goes on from, or its own, and where the rows below it end. */
  readonly before: string;
  readonly end: string;
  /** [rows, heads·valueDim] */
  readonly out: string;
  /** States that are kept between calls. Default: every tree begins with zeros, and nothing is kept. */
  readonly kept?: KeptStates;
}

/**
 * States of a call's trees, f32[N, heads·keyDim·valueDim]: of head h, S[d, e] row by row. What a tree goes on from is
 * read before any of its rows is written, so that the row that `from` names may be one of `to`.
 */
export interface KeptStates {
  readonly state: string;
  /** i32[rows]: the row that a tree goes on from, of the tree's first token; −1: zeros. */
  readonly from: string;
  /** i32[rows] each: rows that get the state behind a token; −1: none. */
  readonly to: readonly [to: string, also: string];
}

/** The head of queries and keys that head `head` of values has. */
export const keyHeadOf = (
  { keyHeads, heads, takesTurns }: Pick<ScanData, 'keyHeads' | 'heads' | 'takesTurns'>,
  head: number,
): number => (takesTurns === true ? head % keyHeads : Math.floor((head * keyHeads) / heads));

/** Rows of states that a token's may go to at most. */
export const MAX_KEPT = 2;

/** What a scan reads, in order. */
export const scanReads = ({ q, k, v, decay, beta, before, end, skip, kept }: ScanParts): readonly string[] => [
  ...[q, k, v, decay, beta, before, end],
  ...(skip === undefined ? [] : [skip]),
  ...(kept === undefined ? [] : [kept.state, kept.from, ...kept.to]),
];

/** What a scan reads, in float64. */
export interface ScanData {
  readonly rule: ScanRule;
  readonly keyHeads: number;
  readonly heads: number;
  readonly takesTurns?: boolean | undefined;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly scale: number | undefined;
  readonly epsilon: number | undefined;
  readonly q: Float64Array;
  readonly k: Float64Array;
  readonly v: Float64Array;
  readonly decay: Float64Array;
  readonly beta: Float64Array;
  readonly skip: Float64Array | undefined;
}

export interface ScanTarget {
  /** The row that a row goes on from, or the row itself. */
  readonly before: (row: number) => number;
  readonly out?: Float64Array;
  /** The states [heads·keyDim·valueDim] that a row goes on from which is its own. Default: zeros. */
  readonly first?: (row: number) => Float64Array | undefined;
  /** Takes the state of a head behind a row. */
  readonly keep?: (row: number, head: number, state: Float64Array) => void;
}

/** The reference of a scan. */
export function scanRows(
  { rule, keyHeads, heads, takesTurns, keyDim, valueDim, scale = 1, epsilon, q, k, v, decay, beta, skip }: ScanData,
  rows: number,
  { before, out, first, keep }: ScanTarget,
): void {
  const size = keyDim * valueDim;
  const unit = (data: Float64Array, from: number): Float64Array => {
    const own = data.subarray(from, from + keyDim);
    if (epsilon === undefined) return own;
    const root = Math.sqrt(own.reduce((sum, x) => sum + x * x, epsilon));
    return own.map((x) => x / root);
  };
  const states: Float64Array[][] = [];
  for (let row = 0; row < rows; row++) {
    const parent = before(row);
    const given = parent === row ? first?.(row) : undefined;
    states.push(
      Array.from({ length: heads }, (_, head) => {
        const key = (row * keyHeads + keyHeadOf({ keyHeads, heads, takesTurns }, head)) * keyDim;
        const [kRow, qRow] = [unit(k, key), unit(q, key)];
        const old = parent === row ? given?.subarray(head * size, (head + 1) * size) : states[parent]?.[head];
        const state = old?.map((x) => x * decay[row * heads + head]!) ?? new Float64Array(size);
        for (let j = 0; j < valueDim; j++) {
          const at = (row * heads + head) * valueDim + j;
          let seen = 0;
          for (let i = 0; i < keyDim; i++) seen += state[i * valueDim + j]! * kRow[i]!;
          const added = beta[row * heads + head]! * (v[at]! - (rule === 'delta' ? seen : 0));
          let sum = (skip?.[head] ?? 0) * v[at]!;
          for (let i = 0; i < keyDim; i++) {
            const next = state[i * valueDim + j]! + kRow[i]! * added;
            state[i * valueDim + j] = next;
            sum += next * qRow[i]! * scale;
          }
          if (out !== undefined) out[at] = sum;
        }
        keep?.(row, head, state);
        return state;
      }),
    );
  }
}
