/** Texts of single tokens, as they read in the middle of a text. */
import type { Tokenizer } from './tokenizer.js';

/** Calls of the tokenizer that are under way at a time. */
const AT_ONCE = 256;

/**
 * The text of each of these tokens; null for one without: a special token. Part of a character is U+FFFD. Decoders
 * treat the beginning of a text specially, so a token is decoded behind another of its kind. Throws UserError where the
 * tokenizer's decoder is not supported.
 */
export async function tokenTexts(
  tokenizer: Pick<Tokenizer, 'decode'>,
  ids: Iterable<number>,
): Promise<ReadonlyMap<number, string | null>> {
  const all = [...new Set(ids)];
  const texts = new Map<number, string | null>();
  for (let at = 0; at < all.length; at += AT_ONCE)
    await Promise.all(
      all.slice(at, at + AT_ONCE).map(async (id) => {
        const [one, two] = await Promise.all([tokenizer.decode([id]), tokenizer.decode([id, id])]);
        texts.set(id, two === '' ? null : two.startsWith(one) && two.length > one.length ? two.slice(one.length) : one);
      }),
    );
  return texts;
}
