/** Writes the tokenizer.json of a byte-level tokenizer: its pieces are bytes, each as a letter, and merge by a list. */
import type { ByteLevelRule } from './rules.js';

/** The letter that stands for each byte: itself where it can be seen, else one from U+0100 on (GPT-2). */
export const BYTE_LETTERS: readonly string[] = (() => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const isSeen = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    return String.fromCharCode(isSeen ? byte : next++);
  });
})();

/** The piece of bytes that are written as the characters U+0000 to U+00FF. */
export function pieceOf(bytes: string): string {
  let piece = '';
  for (let i = 0; i < bytes.length; i++) piece += BYTE_LETTERS[bytes.charCodeAt(i)]!;
  return piece;
}

/** A token that is found in a text before anything else. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Whether texts that are shown leave it out. */
  readonly special: boolean;
}

export interface ByteLevelTokenizer {
  /** Without added tokens, or with them. */
  readonly vocab: Readonly<Record<string, number>>;
  readonly merges: readonly (string | readonly [left: string, right: string])[];
  readonly added: readonly AddedToken[];
  readonly rule: ByteLevelRule;
  /** Tokens before and after every text. */
  readonly before?: readonly Pick<AddedToken, 'id' | 'content'>[];
  readonly after?: readonly Pick<AddedToken, 'id' | 'content'>[];
}

/**
 * The vocabulary with the added tokens: the library numbers those anew that its model lacks. No prototype: a piece may
 * be called __proto__.
 */
function withAdded({ vocab, added }: ByteLevelTokenizer): Readonly<Record<string, number>> {
  const all = Object.assign(Object.create(null) as Record<string, number>, vocab);
  for (const { content, id } of added) all[content] = id;
  return all;
}

/** The text of its tokenizer.json. */
export function writeByteLevel(tokenizer: ByteLevelTokenizer): string {
  const { merges, added, rule, before = [], after = [] } = tokenizer;
  const special = (tokens: typeof before): unknown[] =>
    tokens.map(({ content }) => ({ SpecialToken: { id: content } }));
  return JSON.stringify({
    version: '1.0',
    added_tokens: added.map((token) => ({ ...token, normalized: false })),
    normalizer: rule.normalizer === undefined ? null : { type: rule.normalizer },
    pre_tokenizer: { type: 'Sequence', pretokenizers: rule.cuts },
    post_processor: {
      type: 'TemplateProcessing',
      single: [...special(before), { Sequence: { id: 'A' } }, ...special(after)],
      special_tokens: Object.fromEntries([...before, ...after].map(({ content, id }) => [content, { ids: [id] }])),
    },
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: rule.ignoresMerges ?? false,
      vocab: withAdded(tokenizer),
      merges,
    },
  });
}
