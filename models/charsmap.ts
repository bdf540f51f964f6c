/**
 * The table of characters of a `Precompiled` normalizer, checked before the tokenizer library reads it: the library
 * follows its offsets without looking, and ends the process where one leaves the table.
 *
 * Layout (SentencePiece's precompiled_charsmap, little-endian): u32 bytes of the trie; the trie; the replacements,
 * UTF-8 strings that end in NUL. The trie is a double array of u32 units, as Darts-clone writes it:
 *
 *     bits 0-7 label | bit 8 has a leaf | bit 9 offset counts blocks of 256 | bits 10-30 offset | bit 31 is a leaf
 *
 * A node whose unit is at `at` has its children at `at ^ offset ^ label`; its leaf is at `at ^ offset` and holds, in
 * its low 31 bits, the byte at which the replacement begins.
 */

/** SentencePiece's largest own table (NFKC with case folding) has 0.3 MB. */
const MAX_BYTES = 4 << 20;

const offsetOf = (unit: number): number => (unit >>> 10) << ((unit & 0x200) >>> 6);
const hasLeaf = (unit: number): boolean => (unit & 0x100) !== 0;

/** What a table may do to a text, or why it cannot be used. */
export type CharsmapVerdict =
  | { readonly problem: string; readonly longest?: never }
  | {
      readonly problem?: never;
      /** UTF-16 units of the longest replacement. */
      readonly longest: number;
    };

/** Checks a table in base64: every walk of the trie stays inside it, and every replacement is a whole string. */
export function checkCharsmap(base64: string): CharsmapVerdict {
  if (base64.length > Math.ceil(MAX_BYTES / 3) * 4) return { problem: `it has more than ${MAX_BYTES} bytes` };
  const bytes = Buffer.from(base64, 'base64');
  if (bytes.toString('base64') !== base64) return { problem: 'it is not base64' };
  const trieBytes = bytes.length < 4 ? 0 : bytes.readUInt32LE(0);
  if (trieBytes === 0 || trieBytes % 4 !== 0 || trieBytes > bytes.length - 4)
    return { problem: `a trie of ${trieBytes} bytes in a table of ${bytes.length}` };
  const units = Uint32Array.from({ length: trieBytes / 4 }, (_, i) => bytes.readUInt32LE(4 + 4 * i));
  const replacements = bytes.subarray(4 + trieBytes);
  if (replacements.at(-1) !== 0) return { problem: 'its replacements do not end in NUL' };
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(replacements);
  } catch {
    return { problem: 'its replacements are not UTF-8' };
  }

  let longest = 0;
  const isSeen = new Uint8Array(units.length);
  const open = [0];
  isSeen[0] = 1;
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const unit = units[at]!;
    const base = at ^ offsetOf(unit);
    if (base >= units.length) return { problem: `unit ${at} of its trie leads out of the trie` };
    if (at !== 0 && hasLeaf(unit)) {
      const start = units[base]! & 0x7fff_ffff;
      if (start >= replacements.length || (replacements[start]! & 0xc0) === 0x80)
        return { problem: `unit ${base} of its trie names no replacement` };
      longest = Math.max(longest, replacements.toString('utf8', start, replacements.indexOf(0, start)).length);
    }
    for (let label = 1; label < 256; label++) {
      const child = base ^ label;
      if (child >= units.length) return { problem: `unit ${at} of its trie leads out of the trie` };
      if ((units[child]! & 0x8000_00ff) !== label || isSeen[child] === 1) continue;
      isSeen[child] = 1;
      open.push(child);
    }
  }
  return { longest };
}
