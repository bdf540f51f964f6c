/** Makers of regular languages, which keep them small: what is empty vanishes, and what is nested becomes flat. */
import type { Regular } from '../grammar.js';

/** The empty text alone. */
export const EPSILON: Regular = { kind: 'sequence', of: [] };
/** No text at all. */
export const NOTHING: Regular = { kind: 'choice', of: [] };

const encoder = new TextEncoder();

export const isNothing = (regular: Regular): boolean => regular.kind === 'choice' && regular.of.length === 0;
const isEpsilon = (regular: Regular): boolean => regular.kind === 'sequence' && regular.of.length === 0;

/** The bytes of a text in UTF-8, as they stand. */
export const literal = (text: string): Regular =>
  text === '' ? EPSILON : { kind: 'literal', bytes: encoder.encode(text) };

/** One byte of these ranges, each from its first to its last. */
export function byteSet(...ranges: readonly (readonly [number, number])[]): Regular {
  const set = new Uint32Array(8);
  for (const [first, last] of ranges)
    for (let byte = first; byte <= last; byte++) set[byte >> 5] = (set[byte >> 5] ?? 0) | (1 << (byte & 31));
  return { kind: 'bytes', set };
}

export const digits = (first: number, last: number): Regular => byteSet([0x30 + first, 0x30 + last]);

export function sequence(...parts: readonly Regular[]): Regular {
  const of = parts.flatMap((part) => (part.kind === 'sequence' ? part.of : [part]));
  if (of.some(isNothing)) return NOTHING;
  return of.length === 1 && of[0] !== undefined ? of[0] : { kind: 'sequence', of };
}

export function choice(...parts: readonly Regular[]): Regular {
  const of = parts.flatMap((part) => (part.kind === 'choice' ? part.of : [part]));
  return of.length === 1 && of[0] !== undefined ? of[0] : { kind: 'choice', of };
}

export function repeat(of: Regular, min: number, max = Infinity): Regular {
  if (max < min) return NOTHING;
  if (max === 0 || isEpsilon(of)) return EPSILON;
  if (isNothing(of)) return min === 0 ? EPSILON : NOTHING;
  return min === 1 && max === 1 ? of : { kind: 'repeat', of, min, max };
}

export const optional = (of: Regular): Regular => repeat(of, 0, 1);

export function both(a: Regular, b: Regular): Regular {
  if (a === b || isNothing(a)) return a;
  if (isNothing(b)) return b;
  return { kind: 'and', of: [...(a.kind === 'and' ? a.of : [a]), ...(b.kind === 'and' ? b.of : [b])] };
}

/** What `a` accepts and `b` does not. */
export const without = (a: Regular, b: Regular): Regular => (isNothing(b) ? a : both(a, { kind: 'not', of: b }));
