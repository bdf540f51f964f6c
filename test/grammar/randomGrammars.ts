/** Random expressions and vocabularies over few letters, from a seed. */
import type { Expression, Grammar, Regular } from '../../grammar/grammar.js';
import { Vocabulary } from '../../grammar/tokens/vocabulary.js';

export type Random = (below: number) => number;

/** Whole numbers below a bound, the same for the same seed. */
export const randomFrom = (seed: number): Random => {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return Math.floor((((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32) * below);
  };
};

export const LETTERS = 'abc';
const byteSet = (letters: string): Uint32Array => {
  const set = new Uint32Array(8);
  for (const byte of Buffer.from(letters)) set[byte >> 5]! |= 1 << (byte & 31);
  return set;
};

const some = (random: Random, most: number, letters = LETTERS): string =>
  Array.from({ length: random(most + 1) }, () => letters[random(letters.length)]).join('');

export const randomRegular = (random: Random, depth: number, hasNot = true): Regular => {
  const kind = depth === 0 ? random(2) : random(hasNot ? 8 : 6);
  const part = (): Regular => randomRegular(random, depth - 1, hasNot);
  const parts = (): Regular[] => Array.from({ length: 1 + random(3) }, part);
  if (kind === 0) return { kind: 'bytes', set: byteSet(some(random, 2)) };
  if (kind === 1) return { kind: 'literal', bytes: Buffer.from(some(random, 2)) };
  if (kind === 2) return { kind: 'choice', of: parts() };
  if (kind <= 4) return kind === 3 ? { kind: 'sequence', of: parts() } : randomRepeat(random, part());
  if (kind === 5) return { kind: 'sequence', of: parts() };
  return kind === 6 ? { kind: 'and', of: parts() } : { kind: 'not', of: part() };
};

const randomRepeat = <T>(random: Random, of: T): { kind: 'repeat'; of: T; min: number; max: number } => {
  const min = random(3);
  return { kind: 'repeat', of, min, max: random(2) === 0 ? Infinity : min + random(3) };
};

/** Rules name each other in any way: to the left, to the right, in circles, and without an end. */
export const randomGrammar = (random: Random, specialTokens: number): Grammar => {
  const count = random(4);
  const expression = (depth: number): Expression => {
    const kind = random(depth === 0 ? 5 : 9);
    const parts = (): Expression[] => Array.from({ length: random(3) + 1 }, () => expression(depth - 1));
    if (kind === 0 && specialTokens > 0) return { kind: 'token', id: random(specialTokens) };
    if (kind <= 2 && count > 0) return { kind: 'rule', rule: random(count) };
    if (kind <= 4) return { kind: 'regular', regular: randomRegular(random, random(3)) };
    if (kind <= 6) return { kind: 'sequence', of: parts() };
    return kind === 7 ? { kind: 'choice', of: parts() } : randomRepeat(random, expression(depth - 1));
  };
  const rules = Array.from({ length: count }, () => expression(2));
  return { rules, start: expression(2) };
};

/** Special tokens first, then the end, then every letter, and random texts, some twice. */
export const randomVocabulary = (random: Random, specialTokens: number, texts = 60): Vocabulary => {
  const special = new Map(Array.from({ length: specialTokens }, (_, id) => [`<${id}>`, id]));
  const bytes: (Uint8Array | undefined)[] = Array.from({ length: specialTokens + 1 }, () => undefined);
  for (const letter of LETTERS) bytes.push(Buffer.from(letter));
  for (let at = 0; at < texts; at++) bytes.push(Buffer.from(some(random, random(8) === 0 ? 30 : 6)));
  return new Vocabulary({ bytes, special, endTokens: [specialTokens] });
};
