/** Hostile GGUF files: read, or refused in one clear line. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { parseGgufHeader } from '../../models/gguf/file.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { ggufFile, ggufPairs, type GgufPairs, ggufTensors, type GgufValue, piecePairs } from '../support/gguf.js';
import { mutateBytes, pick, type Random } from './mutate.js';
import { expectRefusal, refusedWell } from './refusals.js';
import { scratch } from './scratch.js';

const CONFIG = {
  ...{ model_type: 'llama', hidden_size: 8, intermediate_size: 12, num_hidden_layers: 2, vocab_size: 9 },
  ...{ num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 32, rms_norm_eps: 1e-5 },
};
const TENSORS = ggufTensors(
  describeModel(CONFIG, 'config.json').tensors.map(({ name, shape }) => ({
    name,
    shape,
    values: new Float64Array(shape.reduce((a, b) => a * b, 1)),
  })),
  CONFIG,
  () => 'F32',
);
const PIECES: readonly (readonly [string, number])[] = [
  ['<unk>', 2],
  ['<s>', 3],
  ['</s>', 3],
  ['a', 1],
  ['b', 1],
  ['▁', 1],
  ['ab', 1],
  ['▁a', 1],
  ['aab', 4],
];
const PAIRS: GgufPairs = {
  ...ggufPairs(CONFIG),
  ...piecePairs({
    pieces: PIECES.map(([piece, type], i) => ({ piece, type, score: -i })),
    ...{ byteFallback: false, addDummyPrefix: true, bosId: 1, eosId: 2 },
  }),
  'tokenizer.ggml.merges': { texts: ['a b', '▁ a'] },
};
const VALUES: readonly GgufValue[] = [
  { u32: 0 },
  { u32: 0xffffffff },
  { u64: 2n ** 63n },
  { f32: NaN },
  { f32: -1 },
  { flag: true },
  { text: 'gpt2' },
  { text: 'llama-bpe' },
  { text: 'gemma3' },
  { texts: [] },
  { texts: ['a', '', 'a', 'b', '\ud800', '<s>', '▁', 'ab', 'c'] },
  { i32s: [1, 2, 3, 4, 5, 6, 1, 1, 1] },
  { i32s: [-1] },
  { f32s: [0, 0, 0, 0, NaN, 0, 0, 0, Infinity] },
  { flags: [true] },
];
const TEXTS = ['', 'a', ' ab  aab<s>', 'é', 'b'.repeat(200)];

/** A sound file with some values or tensors changed. */
function changed(random: Random): Buffer {
  const pairs = Object.entries(PAIRS).flatMap(([key, value]): [string, GgufValue][] =>
    random() < 0.04 ? [] : [[key, random() < 0.05 ? pick(random, VALUES) : value]],
  );
  const tensors = TENSORS.flatMap((tensor) => {
    const { shape } = tensor;
    if (random() < 0.01) return [];
    if (random() < 0.01) return [{ ...tensor, type: Math.floor(random() * 42) }];
    return [random() < 0.01 ? { ...tensor, shape: [...shape].reverse() } : tensor];
  });
  return ggufFile({ pairs, tensors, version: random() < 0.02 ? Math.floor(random() * 5) : 3 });
}

/** What is said of weights that do not fit lists them. */
const isListing = (error: unknown): boolean =>
  error instanceof UserError && error.message.split('\n')[0]!.endsWith('that its metadata describes:');

export const gguf = {
  about: 'GGUF files: headers, settings and tokenizers',
  rounds: 150,
  round: async (random: Random): Promise<void> => {
    const sound = changed(random);
    const file = random() < 0.5 ? sound : mutateBytes(sound, random);
    refusedWell(() => parseGgufHeader((at, length) => file.subarray(at, at + length), file.length, 'x.gguf'));
    const path = join(scratch(), 'fuzzed.gguf');
    writeFileSync(path, file);
    try {
      openCheckpoint(path);
    } catch (error) {
      if (!isListing(error)) expectRefusal(error);
    }
    try {
      const { spec, vocabSize } = describeTokenizer(path, CONFIG.vocab_size);
      for (const ids of await createTokenizer(spec).encodeBatch(TEXTS))
        for (let i = 0; i < ids.length; i++)
          if (!(ids[i]! >= 0 && ids[i]! < vocabSize)) throw new Error(`token ${ids[i]} of ${vocabSize}`);
    } catch (error) {
      expectRefusal(error);
    }
  },
};
