/** Seeded mutations of JSON values and of bytes. */

/** A number in [0, 1). */
export type Random = () => number;

/** mulberry32: 32 bits of state, the same numbers on every machine. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const pick = <T>(random: Random, list: readonly T[]): T => list[Math.floor(random() * list.length)]!;

/** Values that readers often handle badly. */
const NASTY: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  0.5,
  1e308,
  1e-320,
  2 ** 31,
  2 ** 53,
  '',
  'a',
  '\u0000',
  '\ud800',
  '__proto__',
  'x'.repeat(3000),
  [],
  {},
  [[]],
  [null],
];

/** `value` with one place changed: replaced by a difficult value or by one of `parts`, removed, or doubled. */
export function mutateJson(value: unknown, random: Random, parts: readonly unknown[] = []): unknown {
  if (typeof value !== 'object' || value === null || random() < 0.15) return pick(random, [...NASTY, ...parts]);
  const keys = Object.keys(value);
  const key = keys.length === 0 ? 'new' : pick(random, keys);
  const entry: unknown = Reflect.get(value, key);
  if (Array.isArray(value)) {
    const list: unknown[] = [...(value as unknown[])];
    const at = Number(key) || 0;
    if (random() < 0.15) list.splice(at, 1);
    else if (random() < 0.15) list.splice(at, 0, entry ?? null);
    else list[at] = mutateJson(entry, random, parts);
    return list;
  }
  const { [key]: removed, ...others } = value as Record<string, unknown>;
  if (random() < 0.1) return others;
  return { ...others, [random() < 0.05 ? '__proto__x' : key]: mutateJson(removed, random, parts) };
}

/** `value` with one to three places changed. */
export function several(value: unknown, random: Random, parts?: readonly unknown[]): unknown {
  let mutated = value;
  for (let i = Math.floor(random() * 3); i >= 0; i--) mutated = mutateJson(mutated, random, parts);
  return mutated;
}

/** `text` with up to four of its words or symbols removed, doubled, or replaced by others of its own or by `parts`. */
export function mutateText(text: string, random: Random, parts: readonly string[]): string {
  const words = text.split(/(\s+|\b)/);
  for (let i = Math.floor(random() * 4); i >= 0; i--) {
    const at = Math.floor(random() * words.length);
    const word = pick(random, [pick(random, words), pick(random, words), pick(random, parts)]);
    words.splice(at, random() < 0.8 ? 1 : 0, ...(random() < 0.2 ? [] : [word]));
  }
  return words.join('');
}

/** `bytes` with some of them changed, or the end cut off. */
export function mutateBytes(bytes: Uint8Array, random: Random): Buffer {
  const copy = Buffer.from(bytes);
  for (let i = Math.floor(random() * 4); i >= 0; i--)
    copy[Math.floor(random() * copy.length)] = Math.floor(random() * 256);
  return random() < 0.2 ? copy.subarray(0, Math.floor(random() * copy.length)) : copy;
}
