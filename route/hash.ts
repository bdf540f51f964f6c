/** Places of names on a ring: numbers that are the same in every process and version, so that routers agree. */

/** 32 bits of a text, each of which depends on every character (murmur3's rounds over UTF-16 units). */
export function hashText(text: string, seed = 0): number {
  let hash = seed | 0;
  for (let i = 0; i < text.length; i++) {
    let unit = Math.imul(text.charCodeAt(i), 0xcc9e2d51);
    unit = (unit << 15) | (unit >>> 17);
    hash ^= Math.imul(unit, 0x1b873593);
    hash = (hash << 13) | (hash >>> 19);
    hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
  }
  return finish(hash ^ text.length);
}

/** 32 bits of two numbers. */
export const hashPair = (a: number, b: number): number =>
  finish(Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(b | 0, 0xc2b2ae35) ^ (b >>> 15));

/** Spreads a number over 32 bits, one to one. */
function finish(value: number): number {
  let hash = value | 0;
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x85ebca6b);
  hash ^= hash >>> 13;
  hash = Math.imul(hash, 0xc2b2ae35);
  hash ^= hash >>> 16;
  return hash >>> 0;
}
