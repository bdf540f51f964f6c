/**
 * How byte-level tokenizers cut texts before they merge, as the tokenizer.json of each has it. Files that name a rule
 * (GGUF), a class (tokenizer_config.json) or an expression (tekken.json) share these.
 */

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
