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
}

/** What a scan reads, in order. */
export const scanReads = ({ q, k, v, decay, beta, before, end, skip }: ScanParts): readonly string[] => [
  ...[q, k, v, decay, beta, before, end],
  ...(skip === undefined ? [] : [skip]),
];

/** What a scan reads, in float64. */
export interface ScanData {
  readonly rule: ScanRule;
  readonly keyHeads: number;
  readonly heads: number;
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

/** The reference of a scan. `before` gives the row that a row goes on from, or the row itself. */
export function scanRows(
  { rule, keyHeads, heads, keyDim, valueDim, scale = 1, epsilon, q, k, v, decay, beta, skip }: ScanData,
  rows: number,
  { before, out }: { readonly before: (row: number) => number; readonly out: Float64Array },
): void {
  const unit = (data: Float64Array, from: number): Float64Array => {
    const own = data.subarray(from, from + keyDim);
    if (epsilon === undefined) return own;
    const root = Math.sqrt(own.reduce((sum, x) => sum + x * x, epsilon));
    return own.map((x) => x / root);
  };
  const states: Float64Array[][] = [];
  for (let row = 0; row < rows; row++) {
    const parent = before(row);
    states.push(
      Array.from({ length: heads }, (_, head) => {
        const key = (row * keyHeads + Math.floor((head * keyHeads) / heads)) * keyDim;
        const [kRow, qRow] = [unit(k, key), unit(q, key)];
        const old = parent === row ? undefined : states[parent]?.[head];
        const state = old?.map((x) => x * decay[row * heads + head]!) ?? new Float64Array(keyDim * valueDim);
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
          out[at] = sum;
        }
        return state;
      }),
    );
  }
}
