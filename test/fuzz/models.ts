/** Hostile config.json, tokenizer.json and safetensors headers: read, or refused in one clear line. */
import { describeModel } from '../../models/config.js';
import { parseTokenizerJson } from '../../models/tokenizer/json.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { parseSafetensorsHeader } from '../../models/weights/safetensors.js';
import { charsmapParts, printCharsmap } from '../models/charsmapWriter.js';
import { mutateBytes, pick, type Random, several } from './mutate.js';
import { expectRefusal, refusedWell } from './refusals.js';

const CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 40,
  rope_theta: 10_000,
  rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 128 },
  eos_token_id: [2, 3],
  attention_bias: true,
};
const QWEN = { ...CONFIG, architectures: ['Qwen2ForCausalLM'], model_type: 'qwen2', use_sliding_window: false };

const WRAPPED = {
  architectures: ['LlavaForConditionalGeneration'],
  model_type: 'llava',
  text_config: { ...CONFIG, auto_map: { AutoModelForCausalLM: 'modeling_llama.LlamaForCausalLM' }, is_causal: true },
};
/** Values that Python writes, and names of models that are something else. */
const STATED: readonly unknown[] = [
  NaN,
  Infinity,
  -Infinity,
  [NaN],
  'LlamaModel',
  'LlamaForCausalLMEagle3',
  'LlamaForSequenceClassification',
  'XForCausalLM',
  'bert',
  '*'.repeat(300),
  { model_type: 'llama' },
];

/** Throws if some number in `value` is none: it would be computed with. */
function refuseNaN(value: unknown): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error(`${value} in a configuration that is read`);
  if (typeof value === 'object' && value !== null) Object.values(value).forEach(refuseNaN);
}

const HEADER = {
  __metadata__: { format: 'pt' },
  a: { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24] },
  b: { dtype: 'BF16', shape: [5], data_offsets: [24, 34] },
};

const PIECES = ['<s>', '<unk>', 'a', 'b', 'ab', ' ', '▁', '▁a', 'é', '<0x0A>'];
const TOKENIZER = {
  added_tokens: [{ id: 0, content: '<s>', special: true, normalized: false }],
  normalizer: {
    type: 'Sequence',
    normalizers: [
      { type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    ],
  },
  pre_tokenizer: { type: 'Split', pattern: { Regex: '\\s+(?!\\S)|\\p{L}+|.' }, behavior: 'Isolated', invert: false },
  post_processor: {
    type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
    special_tokens: { '<s>': { id: '<s>', ids: [0], tokens: ['<s>'] } },
  },
  model: {
    type: 'BPE',
    unk_token: '<unk>',
    fuse_unk: true,
    byte_fallback: true,
    vocab: Object.fromEntries(PIECES.map((piece, id) => [piece, id])),
    merges: [
      ['a', 'b'],
      ['▁', 'a'],
    ],
  },
};
const UNIGRAM = {
  ...TOKENIZER,
  pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
  model: { type: 'Unigram', unk_id: 1, byte_fallback: false, vocab: PIECES.map((piece, id) => [piece, -id]) },
};
const WORD_PIECE = {
  ...TOKENIZER,
  normalizer: {
    type: 'BertNormalizer',
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  model: {
    type: 'WordPiece',
    unk_token: '<unk>',
    continuing_subword_prefix: '##',
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries([...PIECES, '##a', '##b'].map((piece, id) => [piece, id])),
  },
};
const CHARSMAP = charsmapParts({ a: 'b', é: 'E', 'e\u0301': 'é', '\ud83d\ude00': '', ' ': '  ' });

/** A table of characters with some units changed, or with bytes changed anywhere. */
function charsmap(random: Random): string {
  const units = CHARSMAP.units.slice();
  const used = [...units.keys()].filter((at) => units[at] !== 0);
  for (let i = Math.floor(random() * 3); i > 0; i--) {
    const at = pick(random, used);
    units[at] = random() < 0.5 ? units[at]! ^ (1 << Math.floor(random() * 32)) : Math.floor(random() * 2 ** 32);
  }
  const table = printCharsmap({ ...CHARSMAP, units });
  return random() < 0.7 ? table : mutateBytes(Buffer.from(table, 'base64'), random).toString('base64');
}

/** Components that have crashed the process, or might. */
const PARTS: readonly unknown[] = [
  { type: 'Precompiled', precompiled_charsmap: 'AAAA' },
  { type: 'Replace', pattern: { String: '' }, content: 'b' },
  { type: 'Replace', pattern: { Regex: '(a+)+b' }, content: '' },
  { type: 'Replace', pattern: { Regex: 'a*' }, content: 'aa' },
  { type: 'Replace', pattern: { String: 'a' }, content: 'aa' },
  { type: 'Sequence', normalizers: new Array(21).fill({ type: 'Replace', pattern: { String: 'a' }, content: 'aa' }) },
  { type: 'NFKD' },
  { type: 'Strip', strip_left: true, strip_right: true },
  { type: 'ByteLevel', add_prefix_space: true, use_regex: true },
  { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true },
  { type: 'Metaspace', replacement: '', prepend_scheme: 'always' },
  { type: 'Digits', individual_digits: true },
  { type: 'Punctuation', behavior: 'Contiguous' },
  { type: 'Split', pattern: { Regex: '(x|y)*z' }, behavior: 'Removed', invert: true },
  { type: 'Unigram', unk_id: 9, vocab: [] },
  { type: 'WordLevel', unk_token: '<unk>', vocab: { a: 1 } },
  { type: 'BertProcessing', sep: ['</s>', 99], cls: ['<s>', 0] },
  { SpecialToken: { id: '</s>' } },
  '\\p{L}*\\p{Lu}*x',
  '[[a-z]&&[^b]]+',
  '(?i:a|b)?',
];
const TEXTS = ['', 'a', ' a  b\n', 'é\u0301\ud83d\ude00 ab ab', 'a'.repeat(300), ' '.repeat(300), '<s>ab<unk>'];

async function tokenizer(random: Random): Promise<void> {
  const unigram = { ...UNIGRAM, normalizer: { type: 'Precompiled', precompiled_charsmap: charsmap(random) } };
  const whole = pick(random, [TOKENIZER, TOKENIZER, unigram, WORD_PIECE]);
  const text = JSON.stringify(random() < 0.1 ? whole : several(whole, random, PARTS));
  const spec = { kind: 'json', text, where: 'tokenizer.json' } as const;
  try {
    const { vocabSize } = parseTokenizerJson(text, 'tokenizer.json');
    for (const ids of await createTokenizer(spec).encodeBatch(TEXTS))
      for (let i = 0; i < ids.length; i++)
        if (!(ids[i]! >= 0 && ids[i]! < vocabSize)) throw new Error(`token ${ids[i]} of ${vocabSize}: ${text}`);
  } catch (error) {
    expectRefusal(error);
  }
}

export const models = {
  about: 'config.json, tokenizer.json and safetensors headers',
  rounds: 600,
  round: async (random: Random): Promise<void> => {
    const kind = pick(random, ['config', 'header', 'bytes', 'tokenizer', 'tokenizer'] as const);
    switch (kind) {
      case 'config': {
        const json = several(pick(random, [CONFIG, QWEN, WRAPPED]), random, STATED);
        refusedWell(() => {
          refuseNaN(describeModel(json, 'config.json').config);
        });
        return;
      }
      case 'header': {
        const json = Buffer.from(JSON.stringify(several(HEADER, random)));
        refusedWell(() => parseSafetensorsHeader(json, 34, 'x.safetensors'));
        return;
      }
      case 'bytes': {
        const json = mutateBytes(Buffer.from(JSON.stringify(HEADER)), random);
        refusedWell(() => parseSafetensorsHeader(json, 34, 'x.safetensors'));
        return;
      }
      case 'tokenizer':
        return tokenizer(random);
      default:
        return kind satisfies never;
    }
  },
};
