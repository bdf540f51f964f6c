/** ALiBi (arXiv:2108.12409): scores fall by a slope of each head for every position that a key lies further back. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import { roundToBf16 } from '../../ir/scalar.js';
import type { ConfigReader } from './reader.js';

const MAX_HEADS = 1024;

/** The number of heads; 1 where the file's is none, which parseDecoderConfig refuses. */
export function headsOf({ json: { num_attention_heads: heads } }: ConfigReader): number {
  const isCount = typeof heads === 'number' && Number.isInteger(heads) && heads > 0 && heads <= MAX_HEADS;
  return isCount ? heads : 1;
}

const powers = (count: number, exponent: (i: number) => number): readonly number[] =>
  Array.from({ length: count }, (_, i) => 2 ** -exponent(i + 1));

/**
 * The slopes of the paper: 2^(−8i/n) for head i of n, from 1 on. Where n is no power of two, those of the power below
 * it, then every other one of the power above it.
 */
export function paperSlopes(heads: number): readonly number[] {
  const below = 2 ** Math.floor(Math.log2(heads));
  const own = powers(below, (i) => (8 * i) / below);
  return [...own, ...powers(heads - below, (i) => (4 * (2 * i - 1)) / below)];
}

/**
 * MPT's: 2^(−most·i/n) for a power n of two. Where there are fewer heads than that, every other slope of those from the
 * second on, then the ones between.
 */
export function mptSlopes(heads: number, most: number): readonly number[] {
  const above = 2 ** Math.ceil(Math.log2(heads));
  const own = powers(above, (i) => (most * i) / above);
  if (above === heads) return own;
  return [...own.filter((_, i) => i % 2 === 1), ...own.filter((_, i) => i % 2 === 0)].slice(0, heads);
}

/**
 * The paper's as code gives them that computes in bf16: powers of f32 numbers, rounded.
 */
export const roundedSlopes = (heads: number): readonly number[] =>
  paperSlopes(heads).map((slope) => roundToBf16(Math.fround(slope)));

/**
 * What is added to scores, f32[h, T, C], where slopes times positions of keys are computed in bf16 and scores are
 * multiplied by `factor` behind that. `position`, i32[T, C]: of keys.
 */
export function roundedAlibi(b: GraphBuilder, slopes: readonly number[], position: Value, factor: number): Value {
  const rounded = (x: Value, hint: string): Value =>
    b.add('cast', { x: b.add('cast', { x }, { dtype: 'bf16' }, `${hint}_bf16`) }, { dtype: 'f32' }, hint);
  const product = b.add('mul', { a: slopesByHead(b, slopes), b: rounded(position, 'key_position_f') }, {}, 'leaning');
  const by = b.add('const', {}, { value: factor }, 'slope_factor');
  return b.add('mul', { a: rounded(product, 'leaning_rounded'), b: by }, {}, 'alibi');
}

/** What is added to scores, f32[h, T, C]. `distance`, i32[T, C]: how many positions keys are ahead of queries. */
export function alibi(b: GraphBuilder, slopes: readonly number[], distance: Value): Value {
  const wide = b.add('cast', { x: distance }, { dtype: 'f32' }, 'distance_f');
  return b.add('mul', { a: slopesByHead(b, slopes), b: wide }, {}, 'alibi');
}

/** f32[h, 1, 1] */
function slopesByHead(b: GraphBuilder, slopes: readonly number[]): Value {
  const values = slopes.map(Math.fround);
  const own = b.add('vector', {}, { label: 'alibi_slopes', values }, 'slopes');
  return b.add('reshape', { x: own }, { shape: [slopes.length, 1, 1] }, 'slope_by_head');
}
