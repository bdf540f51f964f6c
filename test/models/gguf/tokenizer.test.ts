/** Tokenizers in the metadata of GGUF files give the tokens of those that they were made from. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { findChatTemplate } from '../../../models/chat/template.js';
import { BYTE_LETTERS, type ByteLevelRule } from '../../../models/tokenizer/byteLevel.js';
import { describeTokenizer } from '../../../models/tokenizer/files.js';
import { PRE_TOKENIZERS, preTokenizerOf } from '../../../models/tokenizer/gguf.js';
import {
  convertSentencePiece,
  parseSentencePiece,
  type SentencePieceModel,
} from '../../../models/tokenizer/sentencepiece.js';
import { createTokenizer, type Tokenizer } from '../../../models/tokenizer/tokenizer.js';
import { type Random, randomOf } from '../../fuzz/mutate.js';
import { asByteLevel, byteLevelPairs, ggufFile, type GgufPairs, piecePairs } from '../../support/gguf.js';
import { isThorough } from '../../support/thorough.js';
import { DEMO, hasShared, SHARED, skipReason, temporaryFolder, userError } from '../support.js';

const path = (pairs: GgufPairs): string => {
  const file = join(temporaryFolder(), 'model.gguf');
  writeFileSync(file, ggufFile({ pairs, tensors: [] }));
  return file;
};
const ofGguf = (pairs: GgufPairs): Tokenizer => createTokenizer(describeTokenizer(path(pairs)).spec);
const ofJson = (json: unknown): Tokenizer =>
  createTokenizer({ kind: 'json', text: JSON.stringify(json), where: 'tokenizer.json' });
const refusal = (pairs: GgufPairs): string => userError(() => ofGguf(pairs)).message;

/** Words, digits, spaces, marks, letters of several scripts, accents in both forms, and any character at all. */
function randomText(random: Random): string {
  const pick = (from: string): string => from[Math.floor(random() * from.length)]!;
  const kinds: readonly (() => string)[] = [
    () => pick('abcdefghijklmnopqrstuvwxyz'),
    () => pick('ABCDEFGHIJKLMNOPQRSTUVWXYZ'),
    () => pick('0123456789'),
    () => pick(' \t\n\r  '),
    () => pick('.,;:!?\'"()[]{}<>|/\\-_=+*&^%$#@~`'),
    () => pick("'’ʼ") + pick('stdmrvl'),
    () => pick('äéßçñøłžж字語한あ١٢Ⅷǅ٠'),
    () => `${pick('aeiou')}\u0301`,
    () => String.fromCodePoint([0x1f600, 0x1d7d8, 0x10400, 0x2028, 0xfeff][Math.floor(random() * 5)]!),
    () => {
      const code = Math.floor(random() * 0x2fff);
      return String.fromCodePoint(code === 0 ? 65 : code);
    },
  ];
  let text = '';
  for (let i = Math.floor(random() * 60); i >= 0; i--) text += kinds[Math.floor(random() ** 1.5 * kinds.length)]!();
  return text;
}
const randomTexts = (seed: number, count = isThorough ? 500 : 150): string[] => {
  const random = randomOf(seed);
  return Array.from({ length: count }, () => randomText(random));
};

/** Contexts and endings of HellaSwag. */
const hellaswag = (): string[] =>
  gunzipSync(readFileSync(join(SHARED, 'data', 'hellaswag_val.jsonl.gz')))
    .toString('utf8')
    .split('\n')
    .filter((line, i) => line !== '' && i % (isThorough ? 100 : 1000) === 0)
    .flatMap((line) => {
      const { ctx, endings } = JSON.parse(line) as { ctx: string; endings: string[] };
      return [ctx, ...endings.map((ending) => `${ctx} ${ending}`)];
    });

async function expectSameTokens(got: Tokenizer, want: Tokenizer, texts: readonly string[]): Promise<void> {
  const [ids, wanted] = [await got.encodeBatch(texts), await want.encodeBatch(texts)];
  const at = ids.findIndex((each, i) => Array.from(each).join() !== Array.from(wanted[i]!).join());
  if (at !== -1) expect([texts[at], Array.from(ids[at]!)]).toEqual([texts[at], Array.from(wanted[at]!)]);
}

const demo = JSON.parse(readFileSync(join(DEMO, 'tokenizer.json'), 'utf8')) as Record<string, unknown>;

describe('a byte-level tokenizer', () => {
  const pairs = byteLevelPairs(asByteLevel(demo), 'llama-bpe', '<s>');

  it('has the tokens of the tokenizer.json that it was made from', async () => {
    const texts = [...randomTexts(1), ...(hasShared ? hellaswag() : [])];
    await expectSameTokens(ofGguf(pairs), ofJson(demo), texts);
    const ids = await ofGguf(pairs).encode('A text, of ten tokens…');
    expect(ids[0]).toBe(1);
    expect(ofGguf(pairs).detokenizer().decode(ids)).toBe('A text, of ten tokens…');
  });

  it('has at most as many tokens as the model', () => {
    const file = path(pairs);
    const { vocabSize } = describeTokenizer(file);
    expect(describeTokenizer(file, vocabSize).vocabSize).toBe(vocabSize);
    expect(userError(() => describeTokenizer(file, vocabSize - 1)).message).toContain(
      `model.gguf: tokenizer.ggml.tokens has ${vocabSize} tokens, and token_embd.weight ${vocabSize - 1} rows`,
    );
  });

  const split = (Regex: string): unknown => ({
    type: 'Split',
    pattern: { Regex },
    behavior: 'Isolated',
    invert: false,
  });
  const bytes = (regex: boolean): unknown => ({
    type: 'ByteLevel',
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: regex,
  });
  const digits = { type: 'Digits', individual_digits: true };
  // As the published tokenizer.json files have them.
  const QWEN =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" +
    '|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
  const TEKKEN =
    '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+' +
    '|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*' +
    '|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
  const O200K =
    '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+' +
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?" +
    '|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*' +
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?" +
    '|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

  it.each<[string, 'NFC' | undefined, readonly unknown[]]>([
    ['qwen2', 'NFC', [split(QWEN), bytes(false)]],
    ['tekken', undefined, [split(TEKKEN), bytes(false)]],
    ['gpt-4o', undefined, [split(O200K), bytes(false)]],
    ['gpt-2', undefined, [bytes(true)]],
    ['olmo', 'NFC', [bytes(true)]],
    ['smollm', undefined, [digits, bytes(true)]],
    ['command-r', 'NFC', [digits, bytes(true)]],
  ])('is cut as the original of %s cuts', async (pre, form, pretokenizers) => {
    const json = {
      ...demo,
      normalizer: form === undefined ? null : { type: form },
      pre_tokenizer: { type: 'Sequence', pretokenizers },
    };
    const own = byteLevelPairs(asByteLevel(json), pre, '<s>');
    await expectSameTokens(ofGguf(own), ofJson(json), randomTexts(2, 300));
  });

  it.each([
    ['llama-bpe', ['falcon3', 'falcon-h1', 'lfm2', 'llama3', 'llama-v3', 'midm-2.0', 'pixtral']],
    ['qwen2', ['deepseek-r1-qwen', 'f2llmv2', 'hunyuan', 'kormo', 'megrez', 'stablelm2']],
    ['gpt-4o', ['kanana2', 'llama4', 'minimax-m2', 'talkie']],
    ['gpt-2', ['a.x-4.0', 'exaone4', 'gigachat', 'granite-docling', 'jais', 'mellum', 'phi-2', 'trillion']],
    ['olmo', ['mpt']],
    ['smollm', ['starcoder', 'refact', 'codeshell', 'exaone', 'mellum2', 'minerva-7b']],
    ['dbrx', ['glm4', 'chatglm-bpe', 'smaug-bpe']],
    ['deepseek-v3', ['hunyuan-dense', 'hy_v4', 'joyai-llm']],
  ])('is cut as by %s where another name stands for its rule', (known, names) => {
    const rule = (name: string): ByteLevelRule => preTokenizerOf(name) ?? expect.fail(`${name} is not known`);
    for (const name of names) expect(rule(name), name).toBe(rule(known));
  });

  it.each<[string, string, readonly string[]]>([
    ['llama-bpe', "I'LL see\n\n 12345", ['I', "'LL", 'Ġsee', 'ĊĊ', 'Ġ', '123', '45']],
    ['qwen35', 'e\u0323 12', ['áº¹', 'Ġ', '1', '2']],
    ['deepseek-llm', 'Ab.12\r\n字a', ['Ab', '.', '1', '2', 'č', 'Ċ', 'åŃĹ', 'a']],
    ['deepseek-coder', 'ab  cd_1.', ['ab', 'Ġ', 'Ġcd', '_', '1', '.']],
    ['deepseek-v3', ' ab1234\n.x', ['Ġab', '123', '4', 'Ċ', '.x']],
    ['falcon', "a--b 1234 don't", ['a', '--', 'b', 'Ġ', '123', '4', 'Ġdon', "'", 't']],
    ['viking', 'ab, cd12', ['ab', ',', 'Ġcd', '1', '2']],
    ['bloom', 'ab, cd12', ['ab', ',', 'Ġcd12']],
    ['bailingmoe', "x'lL\n\n", ['x', "'lL", 'ĊĊ']],
    ['seed-coder', '.\n\n1', ['.', 'ĊĊ', '1']],
    ['minicpm5', '1234a', ['123', '4', 'a']],
    ['grok-2', 'e\u0323', ['e', 'Ì£']],
  ])('cuts by %s', async (pre, text, parts) => {
    // Each part is made letter by letter, and neighbouring parts would merge where nothing cuts between them.
    const pieces = [...BYTE_LETTERS];
    const merge = (left: string, right: string): string => {
      if (!pieces.includes(left + right)) pieces.push(left + right);
      return `${left} ${right}`;
    };
    const within = parts.flatMap((part) => [...part].slice(1).map((letter, i) => merge(part.slice(0, i + 1), letter)));
    const across = parts.slice(1).map((part, i) => merge(parts[i]!, part));
    const merges = [...new Set([...within, ...across])];
    const own: GgufPairs = {
      'tokenizer.ggml.model': { text: 'gpt2' },
      'tokenizer.ggml.pre': { text: pre },
      'tokenizer.ggml.tokens': { texts: pieces },
      'tokenizer.ggml.token_type': { i32s: pieces.map(() => 1) },
      'tokenizer.ggml.merges': { texts: merges },
      'tokenizer.ggml.add_bos_token': { flag: false },
    };
    const ids = await ofGguf(own).encode(text);
    expect(ids.map((id) => pieces[id])).toEqual(parts);
  });

  it('is read for the names that docs/families.md lists', () => {
    const doc = readFileSync(join(import.meta.dirname, '..', '..', '..', 'docs', 'families.md'), 'utf8');
    const rows = (doc.split('### In GGUF files\n')[1] ?? '').split('\n').filter((line) => line.startsWith('| '));
    const names = rows.slice(1).flatMap((row) =>
      row
        .split('|')[2]!
        .split(/[,;]/)
        .map((name) => name.trim()),
    );
    expect(names.sort()).toEqual([...PRE_TOKENIZERS].sort());
  });

  it.each(PRE_TOKENIZERS.filter((_, i) => isThorough || i % 6 === 0))('is read where pre is %s', async (pre) => {
    const own = byteLevelPairs(asByteLevel(demo), pre, '<s>');
    const read = ofGguf(own);
    expect(read.detokenizer().decode(await read.encode('Ab 12.'))).toBe('Ab 12.');
  });

  it.each<[string, GgufPairs, string]>([
    [
      'cuts in an unknown way',
      { 'tokenizer.ggml.pre': { text: 'kimi-k2' } },
      'tokenizer.ggml.pre "kimi-k2" names a rule for cutting texts that is not known (docs/families.md lists',
    ],
    ['is of another kind', { 'tokenizer.ggml.model': { text: 't5' } }, 'tokenizer.ggml.model "t5" is not supported'],
    ['lacks types', { 'tokenizer.ggml.token_type': { i32s: [1] } }, 'token_type has 1 entries for 4096 tokens'],
    ['has numbers for pieces', { 'tokenizer.ggml.tokens': { i32s: [1] } }, 'expected a list of texts, got a list of 1'],
    ['begins with no token', { 'tokenizer.ggml.bos_token_id': { u32: 4096 } }, 'is 4096, and there are 4096 tokens'],
    [
      'removes spaces',
      { 'tokenizer.ggml.remove_extra_whitespaces': { flag: true } },
      'is true, which is not supported',
    ],
  ])('is refused where it %s', (_, change, wanted) => {
    const message = refusal({ ...pairs, ...change });
    expect(message).toContain(wanted);
    expect(message).not.toContain('\n');
  });

  it('brings the chat template', () => {
    const file = path({
      ...pairs,
      'tokenizer.chat_template': { text: '{{ bos_token }}' },
      'tokenizer.chat_template.tools': { text: 'tools' },
    });
    expect(findChatTemplate(file)).toEqual({ text: '{{ bos_token }}', special: { bos_token: '<s>' }, where: file });
    expect(findChatTemplate(file, 'tools')?.text).toBe('tools');
    expect(userError(() => findChatTemplate(file, 'rag')).hint).toBe('There are default, tools');
    expect(findChatTemplate(path(pairs))).toBeUndefined();
  });
});

const CHARACTERS = ['a', 'b', 'c', '▁', '.', 'é'];

/** Pieces of up to four characters with scores of their own. */
function toyModel(random: Random, addDummyPrefix: boolean): SentencePieceModel {
  const normal = new Set<string>(CHARACTERS);
  while (normal.size < 30) {
    const parts = [...normal];
    const piece = parts[Math.floor(random() * parts.length)]! + parts[Math.floor(random() * parts.length)]!;
    if (piece.length <= 4) normal.add(piece);
  }
  const scores = [...normal].map((_, i) => -i).sort(() => random() - 0.5);
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  return {
    pieces: [
      { piece: '<unk>', score: 0, type: 2 },
      { piece: '<s>', score: 0, type: 3 },
      { piece: '</s>', score: 0, type: 3 },
      ...(addDummyPrefix ? ['<go>', 'acab'] : ['<go>', '▁▁▁', 'acab']).map((piece) => ({ piece, score: 0, type: 4 })),
      { piece: '[PAD]', score: -1000, type: 5 },
      ...bytes.map((piece) => ({ piece, score: 0, type: 6 })),
      ...[...normal].map((piece, i) => ({ piece, score: scores[i]!, type: 1 })),
    ],
    byteFallback: true,
    addDummyPrefix,
    bosId: 1,
    eosId: 2,
  };
}

/** Tokens as SentencePiece finds them: user-defined pieces first, then the best pair, the leftmost of equal ones. */
function toyTokens({ pieces, addDummyPrefix }: SentencePieceModel, text: string): number[] {
  const idOf = (piece: string, type: number): number =>
    pieces.findIndex((each) => each.piece === piece && each.type === type);
  const fixed = pieces.flatMap(({ piece, type }) => (type === 4 ? [piece] : [])).sort((a, b) => b.length - a.length);
  const whole = text.replaceAll(' ', '▁');
  const ids = [1];
  const merge = (part: string): void => {
    const symbols = [...(addDummyPrefix ? `▁${part}` : part)];
    for (;;) {
      let best = -1;
      let score = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const id = idOf(symbols[i]! + symbols[i + 1]!, 1);
        if (id !== -1 && pieces[id]!.score > score) [best, score] = [i, pieces[id]!.score];
      }
      if (best === -1) break;
      symbols.splice(best, 2, symbols[best]! + symbols[best + 1]!);
    }
    for (const symbol of symbols) {
      const id = idOf(symbol, 1);
      if (id !== -1) ids.push(id);
      else
        for (const byte of Buffer.from(symbol))
          ids.push(idOf(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`, 6));
    }
  };
  let start = 0;
  for (let at = 0; at < whole.length;) {
    const found = fixed.find((piece) => whole.startsWith(piece, at));
    if (found === undefined) at++;
    else {
      if (at > start) merge(whole.slice(start, at));
      ids.push(idOf(found, 4));
      start = at += found.length;
    }
  }
  if (start < whole.length) merge(whole.slice(start));
  return ids;
}

describe('a tokenizer of scored pieces', () => {
  it.runIf(hasShared && isThorough)(
    skipReason('has the tokens of the tokenizer.model that it was made from'),
    async () => {
      const file = join(SHARED, 'data', 'llama_tokenizer.model');
      const model = readFileSync(file);
      const want = createTokenizer({
        kind: 'json',
        text: convertSentencePiece(model, file, { addBos: true, addEos: false }),
        where: file,
      });
      await expectSameTokens(ofGguf(piecePairs(parseSentencePiece(model, file))), want, [
        ...randomTexts(4),
        ...hellaswag(),
      ]);
    },
  );

  it.each([true, false])('finds user-defined pieces first, space before texts: %s', async (addDummyPrefix) => {
    const random = randomOf(addDummyPrefix ? 5 : 6);
    for (let round = 0; round < 5; round++) {
      const model = toyModel(random, addDummyPrefix);
      const tokenizer = ofGguf(piecePairs(model));
      const parts = ['a', 'b', 'c', ' ', '.', 'é', 'ab', '   ', '<go>', 'acab', '[PAD]', '漢', 'aca'];
      const texts = Array.from({ length: 40 }, () =>
        Array.from({ length: 1 + Math.floor(random() * 12) }, () => parts[Math.floor(random() * parts.length)]).join(
          '',
        ),
      );
      const ids = await tokenizer.encodeBatch(texts);
      texts.forEach((text, i) => {
        expect([text, ...Array.from(ids[i]!)]).toEqual([text, ...toyTokens(model, text)]);
      });
    }
  });

  it('has the usual tokens that begin and end texts, unless its file names others', () => {
    const {
      'tokenizer.ggml.bos_token_id': _,
      'tokenizer.ggml.eos_token_id': __,
      ...bare
    } = piecePairs(toyModel(randomOf(9), true));
    expect(describeTokenizer(path(bare))).toMatchObject({ bos: { id: 1, text: '<s>' }, eos: { id: 2, text: '</s>' } });
    const named = { ...bare, 'tokenizer.ggml.eos_token_id': { u32: 1 } };
    expect(describeTokenizer(path(named))).toMatchObject({ bos: { id: 1 }, eos: { id: 1 } });
  });

  it('may be padded by tokens that are called unknown, as that of Phi 3 is', async () => {
    const model = toyModel(randomOf(8), true);
    const padded = { ...model, pieces: [...model.pieces, { piece: '[PAD9]', score: -1000, type: 2 }] };
    const texts = ['ab c', ' ca', '<go>a'];
    expect(await ofGguf(piecePairs(padded)).encodeBatch(texts)).toEqual(
      await ofGguf(piecePairs(model)).encodeBatch(texts),
    );
    const none = { ...model, pieces: model.pieces.map((piece) => (piece.type === 2 ? { ...piece, type: 5 } : piece)) };
    expect(refusal(piecePairs(none))).toContain('0 unknown pieces; expected 1');
  });

  it('is refused where two pieces have one score, or a piece is there twice', () => {
    const model = toyModel(randomOf(7), true);
    const same = { ...model, pieces: model.pieces.map((piece) => ({ ...piece, score: -1000 })) };
    expect(refusal(piecePairs(same))).toContain(': the order of merges is not known');
    const twice = { ...model, pieces: [...model.pieces, { piece: 'a', score: -99, type: 1 }] };
    expect(refusal(piecePairs(twice))).toContain('are both "a"');
  });
});
