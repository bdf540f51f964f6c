/** Hostile tiktoken files, tekken.json, vocab.json with merges.txt, and SentencePiece models. */
import { convertTekken, convertTiktoken } from '../../models/tokenizer/byRank.js';
import { BYTE_LETTERS, convertBpeFiles } from '../../models/tokenizer/byteLevel.js';
import { parseTokenizerJson } from '../../models/tokenizer/json.js';
import { convertSentencePiece } from '../../models/tokenizer/sentencepiece.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { sentencePieceModel, toyPieces } from '../models/sentencepieceWriter.js';
import { base64, randomRanks, tiktokenLines } from '../models/tokenizers/byRank.js';
import { mutateBytes, mutateText, pick, type Random, randomOf, several } from './mutate.js';
import { expectRefusal } from './refusals.js';

const RANKS = randomRanks(randomOf(1), 30, 'ab .1é');
const LINES = tiktokenLines(RANKS).join('\n');
const PATTERN =
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+' +
  '|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*' +
  '|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const TEKKEN = {
  config: { pattern: PATTERN, default_vocab_size: RANKS.size + 4, default_num_special_tokens: 4, version: 'v13' },
  vocab: [...RANKS].map(([token, rank]) => ({ rank, token_bytes: base64(token), token_str: null })),
  special_tokens: ['<unk>', '<s>', '</s>'].map((name, rank) => ({ rank, token_str: name, is_control: true })),
};
const VOCAB = Object.fromEntries([...BYTE_LETTERS, 'ab', 'Ġa', '<|endoftext|>'].map((piece, id) => [piece, id]));
const MODEL = sentencePieceModel({
  pieces: [...toyPieces, ['[X]', 0, 4], ['▁a', 0, 4], ['▁', -1], ['a', -2], ['b', -3], ['ab', -4]],
});
const PARTS = ['IQ== 5', ' 0', '== ', '\n\n', 'a b', '#version', '\0', '9999999', 'YWI= 286', '__proto__'];
const TEXTS = ['', 'a', ' a  b\n', 'é\u0301\ud83d\ude00 ab ab', '1'.repeat(300), '[X] a<s>', '<|endoftext|>'];
const FACTS = [{ vocabSize: RANKS.size + 256 }, { vocabSize: RANKS.size + 257, isScaled: false }, {}];
const CLASSES = ['GPT2Tokenizer', 'Qwen2TokenizerFast', 'constructor', 'GPTNeoXTokenizer'];

function hostile(random: Random): string {
  const where = 'file';
  switch (pick(random, ['tiktoken', 'tekken', 'bpe', 'sentencepiece'] as const)) {
    case 'tiktoken':
      return convertTiktoken(Buffer.from(mutateText(LINES, random, PARTS)), where, pick(random, FACTS));
    case 'tekken':
      return convertTekken(JSON.stringify(random() < 0.1 ? TEKKEN : several(TEKKEN, random, PARTS)), where);
    case 'bpe': {
      const merges = mutateText('#version: 0.2\na b\nĠ a\n', random, PARTS);
      const vocab = JSON.stringify(random() < 0.5 ? VOCAB : several(VOCAB, random, PARTS));
      const facts = { className: pick(random, CLASSES), addsSpace: random() < 0.5, isAlone: random() < 0.5 };
      return convertBpeFiles({ vocab, vocabPath: where, merges, mergesPath: where }, facts);
    }
    default:
      return convertSentencePiece(mutateBytes(MODEL, random), where, { addBos: true, addEos: false });
  }
}

export const tokenizers = {
  about: 'tiktoken files, tekken.json, vocab.json with merges.txt, and SentencePiece models',
  rounds: 600,
  round: async (random: Random): Promise<void> => {
    try {
      const text = hostile(random);
      const { vocabSize } = parseTokenizerJson(text, 'file');
      for (const ids of await createTokenizer({ kind: 'json', text, where: 'file' }).encodeBatch(TEXTS))
        for (let i = 0; i < ids.length; i++)
          if (!(ids[i]! >= 0 && ids[i]! < vocabSize)) throw new Error(`token ${ids[i]} of ${vocabSize}: ${text}`);
    } catch (error) {
      expectRefusal(error);
    }
  },
};
