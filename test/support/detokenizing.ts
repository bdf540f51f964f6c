/** Whether tables of tokens give the texts of the tokenizer library. */
import type { Tokenizer as NativeTokenizer } from 'tokenizers';
import { expect } from 'vitest';
import { byteOfPiece } from '../../models/tokenizer/byteStages.js';
import type { Detokenizer, ShownTokens } from '../../models/tokenizer/detokenizer.js';
import { jsonOf, type TokenizerSpec } from '../../models/tokenizer/files.js';
import { createNative, createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { Utf8 } from '../../models/tokenizer/utf8.js';
import { pick, type Random, randomOf } from '../fuzz/mutate.js';

export interface Both {
  readonly native: NativeTokenizer;
  readonly own: Detokenizer;
  readonly encode: (text: string) => Promise<number[]>;
}

export function both(spec: TokenizerSpec): Both {
  const { tokenizer: native } = createNative(jsonOf(spec), 'tokenizer', spec.tokens ?? []);
  const tokenizer = createTokenizer(spec);
  return { native, own: tokenizer.detokenizer(), encode: (text) => tokenizer.encode(text) };
}

const streamed = (own: Detokenizer, ids: readonly number[], shown?: ShownTokens): string => {
  const stream = own.stream(shown);
  return ids.map((id) => stream.push(id)).join('') + stream.end();
};

/** Whether a run of bytes has characters before it turns out to be no UTF-8. */
function breaksLate(pieces: readonly string[]): boolean {
  let run: number[] = [];
  for (const piece of [...pieces, '']) {
    const byte = byteOfPiece(piece);
    if (byte !== undefined) {
      run.push(byte);
      continue;
    }
    const utf8 = new Utf8();
    const texts = run.map((each) => (utf8.isBroken ? '' : utf8.push(each)));
    const last = utf8.end();
    if (utf8.isBroken && (last === '' ? texts.join('').length > 1 : texts.join('') !== '')) return true;
    run = [];
  }
  return false;
}

export async function compare(
  { native, own }: Both,
  lists: readonly (readonly number[])[],
  special: string[],
): Promise<void> {
  const wanted = await native.decodeBatch(
    lists.map((ids) => [...ids]),
    true,
  );
  const withSpecial = await native.decodeBatch(
    lists.map((ids) => [...ids]),
    false,
  );
  for (const [i, ids] of lists.entries()) {
    expect([ids, own.decode(ids)]).toEqual([ids, wanted[i]]);
    const all = ids.flatMap((id) => native.idToToken(id) ?? []);
    const pieces = all.filter((piece) => !special.includes(piece));
    if (!breaksLate(pieces)) expect([ids, streamed(own, ids)]).toEqual([ids, wanted[i]]);
    if (!breaksLate(all)) expect([ids, streamed(own, ids, 'all')]).toEqual([ids, withSpecial[i]]);
  }
}

export const randomIds = (random: Random, count: number, most: number): number[] =>
  Array.from({ length: Math.floor(random() * most) }, () => Math.floor(random() * count));

const TEXT = 'Grüße, 世界! 👩‍👩‍👧 naïve\tcafé\n\n  12 ½ don’t – ﷺ 𝔘 \u0000 ';

/** Random tokens, tokens that stand for few bytes, and tokens of texts. */
export async function compareTokenizer(spec: TokenizerSpec, count: number): Promise<void> {
  const tokenizer = both(spec);
  const random = randomOf(count);
  const size = 1 + Math.max(...Object.values(tokenizer.native.getVocab(true)));
  const few = Array.from({ length: size }, (_, id) => id).filter((id) => tokenizer.own.bytesOf(id).length <= 1);
  const special = Array.from({ length: size }, (_, id) => id).flatMap((id) =>
    tokenizer.own.bytesOf(id).length === 0 ? (tokenizer.native.idToToken(id) ?? []) : [],
  );
  const lists = Array.from({ length: count }, () => [
    randomIds(random, size + 3, 40),
    Array.from({ length: Math.floor(random() * 30) }, () => pick(random, few)),
  ]).flat();
  for (let i = 0; i < count / 4; i++) {
    const from = Math.floor(random() * 20);
    lists.push(await tokenizer.encode(TEXT.slice(from, from + Math.floor(random() * 30))));
  }
  await compare(tokenizer, lists, special);
}
