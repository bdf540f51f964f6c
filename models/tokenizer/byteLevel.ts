/** Byte-level tokenizers of vocab.json and merges.txt, and the tokenizer.json that they become. */
import { UserError } from '../../errors.js';
import { isRecord, parseJson, quote } from '../../system/json.js';

// Writes the tokenizer.json of a byte-level tokenizer: its pieces are bytes, each as a letter, and merge by a list.

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

// How byte-level tokenizers cut texts before they merge, as the tokenizer.json of each has it. Files that name a rule
// (GGUF), a class (tokenizer_config.json) or an expression (tekken.json) share these.

/** A component of the `pre_tokenizer` of a tokenizer.json. */
type Component = Readonly<Record<string, unknown>>;

export interface ByteLevelRule {
  readonly normalizer?: 'NFC';
  /** What cuts texts, one after the other. One of them turns bytes into letters. */
  readonly cuts: readonly Component[];
  /** A part that is a token as a whole is not merged from smaller ones. */
  readonly ignoresMerges?: boolean;
  /** Whether texts begin with BOS where a file does not say. */
  readonly addsBos?: boolean;
}

const split = (Regex: string): Component => ({
  type: 'Split',
  pattern: { Regex },
  behavior: 'Isolated',
  invert: false,
});
const digits = (isEachApart: boolean): Component => ({ type: 'Digits', individual_digits: isEachApart });
const byteLevel = (hasRegex: boolean): Component => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: hasRegex,
});
/** By GPT-2's expression, which the library knows. */
const GPT_2_CUTS = [byteLevel(true)];
const SINGLE_DIGITS = [digits(true), byteLevel(true)];
const by = (...expressions: readonly string[]): readonly Component[] => [...expressions.map(split), byteLevel(false)];

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const WORD = '[^\\r\\n\\p{L}\\p{N}]?\\p{L}+';
const SYMBOLS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*';
const [UPPER, LOWER] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];

const words = (numbers: string): string => [CONTRACTIONS, WORD, numbers, SYMBOLS, SPACES].join('|');
/** Words with at most one change from upper to lower case. */
const casedWords = (end: string, numbers: string): string =>
  [
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${end}`,
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${end}`,
    numbers,
    ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*',
    SPACES,
  ].join('|');

const ONE_DIGIT = '\\p{N}';
const THREE_DIGITS = '\\p{N}{1,3}';

// Ranges are written by their numbers: normalizing this file would change some of the letters.
const HAN = '\u4e00-\u9fa5';
const KANA = '\u3040-\u309f\u30a0-\u30ff';
const HAN_AND_HANGUL = `[${HAN}\u0800-\u4e00\uac00-\ud7ff]+`;
/** Letters with case, as DeepSeek LLM lists them. */
const CASED_LETTERS =
  'A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373' +
  '\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f' +
  '\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77' +
  '\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-' +
  '\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec' +
  '\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-' +
  '\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3' +
  '\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17' +
  '\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}' +
  '\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}';
const WIDE_SYMBOLS = '[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+';
const ASCII_SYMBOL = '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]';
/** Words with their marks; punctuation and symbols, of which an ASCII one may begin a word. */
const markedWords = (lines: string): string =>
  `${ASCII_SYMBOL}[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+${lines}|\\s+(?!\\S)|\\s+`;
const UNTIL_PUNCTUATION = ' ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+';

export const GPT_2: ByteLevelRule = { cuts: GPT_2_CUTS };
/** GPT-NeoX, MPT, OLMo. */
export const GPT_NEOX: ByteLevelRule = { normalizer: 'NFC', cuts: GPT_2_CUTS };
/** StarCoder, Refact, SmolLM: each digit is a part of its own. */
export const STARCODER: ByteLevelRule = { cuts: SINGLE_DIGITS };
export const COMMAND_R: ByteLevelRule = { normalizer: 'NFC', cuts: SINGLE_DIGITS };
export const DBRX: ByteLevelRule = { cuts: by(words(THREE_DIGITS)) };
export const LLAMA_3: ByteLevelRule = { ...DBRX, ignoresMerges: true, addsBos: true };
/** Qwen 1 to 3, and StableLM 2. */
export const QWEN: ByteLevelRule = { normalizer: 'NFC', cuts: by(words(ONE_DIGIT)) };
/** Grok 2: as Qwen, without its normalization. */
export const GROK_2: ByteLevelRule = { cuts: by(words(ONE_DIGIT)) };
export const QWEN_3_5: ByteLevelRule = {
  normalizer: 'NFC',
  cuts: by(
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`,
  ),
};
/** GPT-4o, gpt-oss. */
export const GPT_4O: ByteLevelRule = { cuts: by(casedWords(`${CONTRACTIONS}?`, THREE_DIGITS)) };
export const LLAMA_4: ByteLevelRule = { ...GPT_4O, ignoresMerges: true, addsBos: true };
export const TEKKEN: ByteLevelRule = { cuts: by(casedWords('', ONE_DIGIT)), ignoresMerges: true, addsBos: true };
export const DEEPSEEK_LLM: ByteLevelRule = {
  cuts: [
    ...['[\\r\\n]', `\\s?[${CASED_LETTERS}]+`, `\\s?${WIDE_SYMBOLS}`, '\\s+$', HAN_AND_HANGUL].map(split),
    digits(true),
    byteLevel(false),
  ],
};
export const DEEPSEEK_CODER: ByteLevelRule = {
  cuts: [...['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', HAN_AND_HANGUL].map(split), digits(true), byteLevel(false)],
};
export const DEEPSEEK_V3: ByteLevelRule = {
  cuts: by(THREE_DIGITS, `[${HAN}${KANA}]+`, markedWords('[\\r\\n]*|\\s*[\\r\\n]+')),
};
export const FALCON: ByteLevelRule = {
  cuts: [{ type: 'Punctuation', behavior: 'Contiguous' }, byteLevel(true), digits(false), split('[0-9][0-9][0-9]')],
};
export const BLOOM: ByteLevelRule = { cuts: by(UNTIL_PUNCTUATION) };
export const VIKING: ByteLevelRule = { cuts: [split(UNTIL_PUNCTUATION), digits(true), byteLevel(false)] };
export const BAILING_MOE: ByteLevelRule = {
  cuts: by(
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*" +
      '|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+',
  ),
};
export const SEED_CODER: ByteLevelRule = {
  cuts: by([CONTRACTIONS, WORD, ONE_DIGIT, ' ?[^\\s\\p{L}\\p{N}\\r\\n]+', SPACES].join('|')),
};
export const MINICPM_5: ByteLevelRule = { cuts: by(THREE_DIGITS, words('\\p{N}+')), ignoresMerges: true };

/** The rule with a space before texts that begin with none. */
export const withSpaceBefore = (rule: ByteLevelRule): ByteLevelRule => ({
  ...rule,
  cuts: rule.cuts.map((cut) => (cut['type'] === 'ByteLevel' ? { ...cut, add_prefix_space: true } : cut)),
});

/** The rule whose only expression is `pattern`, as tekken.json has it; undefined if none is. */
export const ruleOfPattern = (pattern: string): ByteLevelRule | undefined =>
  [TEKKEN].find(({ cuts: [first] }) => isPattern(first, pattern));

const isPattern = (component: Component | undefined, pattern: string): boolean =>
  component?.['type'] === 'Split' && (component['pattern'] as { readonly Regex?: string }).Regex === pattern;

// vocab.json and merges.txt: byte-level pieces and how they merge. How texts are cut is decided by the class of
// transformers that reads them.

/** As many as a tokenizer.json may have. */
const MAX_MERGES = 1 << 20;
const MAX_LINE = 2048;
const USE_JSON = 'put the tokenizer.json of the model beside it: it is used if both exist';
const REFETCH = 'download vocab.json and merges.txt again';

interface TokenizerClass {
  readonly rule: ByteLevelRule;
  /** Tokens that are special where tokenizer_config.json names no others. */
  readonly special: readonly string[];
}

const END_OF_TEXT = '<|endoftext|>';
const CLASSES: Readonly<Record<string, TokenizerClass>> = {
  GPT2Tokenizer: { rule: GPT_2, special: [END_OF_TEXT] },
  CodeGenTokenizer: { rule: GPT_2, special: [END_OF_TEXT] },
  GPTNeoXTokenizer: { rule: GPT_NEOX, special: [END_OF_TEXT, '<|padding|>'] },
  Qwen2Tokenizer: { rule: QWEN, special: [END_OF_TEXT] },
  CohereTokenizer: {
    rule: COMMAND_R,
    special: ['<UNK>', '<BOS_TOKEN>', '<|END_OF_TURN_TOKEN|>', '<PAD>', '<CLS>', '<SEP>', '<MASK_TOKEN>'],
  },
};
/** The class that transformers takes for a `model_type` where no tokenizer_config.json names one. */
const CLASS_OF: Readonly<Record<string, string>> = {
  codegen: 'GPT2Tokenizer',
  cohere: 'CohereTokenizer',
  cohere2: 'CohereTokenizer',
  gpt2: 'GPT2Tokenizer',
  gpt_neo: 'GPT2Tokenizer',
  gpt_neox: 'GPTNeoXTokenizer',
  gptj: 'GPT2Tokenizer',
  mpt: 'GPTNeoXTokenizer',
  opt: 'GPT2Tokenizer',
  phi: 'GPT2Tokenizer',
  qwen2: 'Qwen2Tokenizer',
  qwen2_moe: 'Qwen2Tokenizer',
  qwen3: 'Qwen2Tokenizer',
  qwen3_moe: 'Qwen2Tokenizer',
  starcoder2: 'GPT2Tokenizer',
};

/** What a checkpoint says beside such files. */
export interface BpeFacts {
  /** `tokenizer_class` of tokenizer_config.json. */
  readonly className?: string;
  /** `model_type` of config.json. */
  readonly modelType?: string;
  /** `add_prefix_space` of tokenizer_config.json. */
  readonly addsSpace?: boolean;
  /** Whether no file beside them gives tokens ids that vocab.json lacks. */
  readonly isAlone?: boolean;
}

const of = <T>(table: Readonly<Record<string, T>>, key: string): T | undefined =>
  Object.hasOwn(table, key) ? table[key] : undefined;

/** The name of the class of transformers that reads such files; undefined if none is known. */
export const classNameOf = ({ className, modelType }: BpeFacts): string | undefined =>
  className?.replace(/Fast$/, '') ?? of(CLASS_OF, modelType ?? '');

function classOf(facts: BpeFacts, where: string): TokenizerClass {
  const { className, modelType } = facts;
  const name = classNameOf(facts);
  const found = name === undefined ? undefined : of(CLASSES, name);
  if (found !== undefined) return found;
  const known = Object.keys(CLASSES).join(', ');
  const why =
    name === undefined
      ? `tokenizer_config.json names no tokenizer_class, and none is known for model_type ${quote(modelType)}`
      : `it is for the tokenizer_class ${quote(className)}`;
  throw new UserError(`${where}: ${why}; vocab.json and merges.txt are read for ${known}`, USE_JSON);
}

/** The pairs of a merges.txt, a pair a line, the best first. Throws UserError. */
function readMerges(
  text: string,
  where: string,
  vocab: Readonly<Record<string, unknown>>,
): readonly (readonly [string, string])[] {
  const merges: [string, string][] = [];
  for (let at = 0, line = 1; at < text.length; line++) {
    const end = text.indexOf('\n', at);
    const next = end === -1 ? text.length : end;
    const content = text.slice(at, text[next - 1] === '\r' ? next - 1 : next);
    at = next + 1;
    if (content.startsWith('#version')) continue;
    const fail = (what: string): never => {
      throw new UserError(`${where}: line ${line}: ${what}`, REFETCH);
    };
    const space = content.indexOf(' ');
    const pair: [string, string] = [content.slice(0, Math.max(space, 0)), content.slice(space + 1)];
    if (content.length > MAX_LINE || pair[0] === '' || pair[1] === '' || pair[1].includes(' '))
      fail(`${quote(content)} is no pair of pieces with a space between them`);
    const stray = [...pair, pair[0] + pair[1]].find((piece) => !Object.hasOwn(vocab, piece));
    if (stray !== undefined) fail(`${quote(content)} needs ${quote(stray)}, which is not in vocab.json`);
    if (merges.push(pair) > MAX_MERGES) fail(`more than ${MAX_MERGES} merges`);
  }
  return merges;
}

/** The texts and places of both files. */
export interface BpeFiles {
  readonly vocab: string;
  readonly vocabPath: string;
  readonly merges: string;
  readonly mergesPath: string;
}

/** The tokenizer.json (its text) that gives the tokens of these files. Throws UserError. */
export function convertBpeFiles({ vocab: text, vocabPath, merges, mergesPath }: BpeFiles, facts: BpeFacts): string {
  const { rule, special } = classOf(facts, vocabPath);
  const vocab = parseJson(text, vocabPath, REFETCH);
  if (!isRecord(vocab)) throw new UserError(`${vocabPath}: expected an object of pieces and their ids`, REFETCH);
  const ids = Object.values(vocab).filter((id) => typeof id === 'number');
  if (ids.length !== Object.keys(vocab).length)
    throw new UserError(`${vocabPath}: expected a number for the id of each piece`, REFETCH);
  let next = ids.reduce((most, id) => Math.max(most, id), -1) + 1;
  const pieces = vocab as Readonly<Record<string, number>>;
  const added = special.flatMap((content) => {
    const id = of(pieces, content) ?? (facts.isAlone === true ? next++ : undefined);
    return id === undefined ? [] : [{ id, content, special: true }];
  });
  return writeByteLevel({
    vocab: pieces,
    merges: readMerges(merges.trimEnd(), mergesPath, pieces),
    added,
    rule: facts.addsSpace === true ? withSpaceBefore(rule) : rule,
  });
}
