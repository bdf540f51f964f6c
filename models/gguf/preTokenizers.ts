/**
 * How byte-level tokenizers of GGUF files cut texts before they merge: by tokenizer.ggml.pre, which names the tokenizer
 * that a file was made from. Each is described as the tokenizer.json of that tokenizer has it.
 */

export interface PreTokenizer {
  readonly normalizer?: 'NFC';
  /** Cuts texts by an expression. Default: by that of GPT-2, which the library knows. */
  readonly split?: string;
  /** Each digit is a part of its own, before anything else. */
  readonly hasSingleDigits?: boolean;
  /** A part that is a token as a whole is not merged from smaller ones. */
  readonly ignoresMerges?: boolean;
  /** Whether texts begin with BOS where a file does not say. */
  readonly addsBos?: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const WORD = '[^\\r\\n\\p{L}\\p{N}]?\\p{L}+';
const SYMBOLS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*';
const [UPPER, LOWER] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];

/** Words with at most one change from upper to lower case. */
const casedWords = (end: string): string =>
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${end}|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${end}`;

const words = (digits: string): string => [CONTRACTIONS, WORD, digits, SYMBOLS, SPACES].join('|');
const casedText = (end: string, digits: string): string =>
  [casedWords(end), digits, ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*', SPACES].join('|');

const LLAMA_3: PreTokenizer = { split: words('\\p{N}{1,3}'), ignoresMerges: true, addsBos: true };

export const PRE_TOKENIZERS: Readonly<Record<string, PreTokenizer>> = {
  'llama-bpe': LLAMA_3,
  llama3: LLAMA_3,
  'llama-v3': LLAMA_3,
  dbrx: { split: words('\\p{N}{1,3}') },
  qwen2: { normalizer: 'NFC', split: words('\\p{N}') },
  tekken: { split: casedText('', '\\p{N}'), ignoresMerges: true, addsBos: true },
  'gpt-4o': { split: casedText(`${CONTRACTIONS}?`, '\\p{N}{1,3}') },
  'gpt-2': {},
  olmo: { normalizer: 'NFC' },
  starcoder: { hasSingleDigits: true },
  refact: { hasSingleDigits: true },
  smollm: { hasSingleDigits: true },
  'command-r': { normalizer: 'NFC', hasSingleDigits: true },
};
