/** Tables of tokens give the texts of the tokenizer library, whole and as streams. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Decoder } from '../../models/tokenizer/decoders.js';
import type { Detokenizer } from '../../models/tokenizer/detokenizer.js';
import { describeTokenizer, type TokenizerSpec } from '../../models/tokenizer/files.js';
import { parseSentencePiece } from '../../models/tokenizer/sentencepiece.js';
import { Utf8 } from '../../models/tokenizer/utf8.js';
import { pick, type Random, randomOf } from '../fuzz/mutate.js';
import { both, compare, compareTokenizer, randomIds } from '../support/detokenizing.js';
import { asByteLevel, byteLevelPairs, ggufFile, piecePairs } from '../support/gguf.js';
import { TOY, tokenizerFolder } from './tokenizerFolder.js';
import { DEMO } from './support.js';

const hex = (byte: number): string => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;

/** Pieces that decoders look for, and parts of them. */
const PIECES = [
  ..."a|b|é|日|😀|▁|▁▁|▁a|a▁|▁▁b| |  | a|a | .| ,|'| n't| do not|##|##a|#|#a|</w>|a</w>|</|w>|a</w></w>b".split('|'),
  ...'<0x|<0xG1>|<0x+4>|<0x4|1>|<|Ġ|Ġa|Ċ|Ã|©|ðŁ|ĺĢ|â|âĤ|¬|.|no|xx|xy|x|y|\uFFFD|\u0000'.split('|'),
  ...[0x41, 0x0a, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xff, 0xc0, 0xed, 0xa0].map(hex),
];

const BYTE_LEVEL: Decoder = { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true };

const DECODERS: readonly ((random: Random) => Decoder)[] = [
  () => ({ type: 'ByteFallback' }),
  () => ({ type: 'Fuse' }),
  () => BYTE_LEVEL,
  (random) => ({
    type: 'Strip',
    content: pick(random, [' ', 'a', '▁', '😀']),
    start: pick(random, [0, 1, 3]),
    stop: 0,
  }),
  (random) => ({
    type: 'Replace',
    pattern: { String: pick(random, ['▁', '▁▁', 'a', 'xx', 'xy', 'xxy', '😀', '\uFFFD']) },
    content: pick(random, [' ', '', 'xx', '$1', '▁', '<0x41>']),
  }),
  (random) => ({ type: 'WordPiece', prefix: pick(random, ['##', '▁']), cleanup: random() < 0.5 }),
  (random) => ({ type: 'BPEDecoder', suffix: pick(random, ['</w>', 'a']) }),
  (random) => ({
    type: 'Metaspace',
    replacement: '▁',
    prepend_scheme: pick(random, ['always', 'never', 'first'] as const),
  }),
];
const LLAMA: readonly Decoder[] = [
  { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
  { type: 'ByteFallback' },
  { type: 'Fuse' },
  { type: 'Strip', content: ' ', start: 1, stop: 0 },
];

const SPECIAL = ['<s>', '</s>'];

function small(decoders: readonly Decoder[]): TokenizerSpec {
  const added = [...SPECIAL, '<think>'].map((content, i) => ({
    ...{ id: PIECES.length + i, content, special: content !== '<think>', normalized: false },
    ...{ single_word: false, lstrip: false, rstrip: false },
  }));
  const decoder = decoders.length === 0 ? null : { type: 'Sequence', decoders };
  const vocab = Object.fromEntries(PIECES.map((piece, id) => [piece, id]));
  const model = { type: 'BPE', unk_token: null, fuse_unk: false, byte_fallback: false, vocab, merges: [] };
  const text = JSON.stringify({ version: '1.0', added_tokens: added, decoder, model });
  return { kind: 'json', text, where: 'tokenizer.json' };
}

describe('the text of tokens', () => {
  it('is that of the library with any decoders', async () => {
    const random = randomOf(11);
    for (let i = 0; i < 60; i++) {
      const decoders =
        i % 5 === 0 ? LLAMA : Array.from({ length: Math.floor(random() * 5) }, () => pick(random, DECODERS)(random));
      const tokenizer = both(small(decoders));
      const lists = Array.from({ length: 12 }, () => randomIds(random, PIECES.length + 5, 10));
      await compare(tokenizer, lists, SPECIAL).catch((error: unknown) => {
        throw new Error(JSON.stringify(decoders), { cause: error });
      });
    }
  });

  const demo = (): Record<string, unknown> =>
    JSON.parse(readFileSync(join(DEMO, 'tokenizer.json'), 'utf8')) as Record<string, unknown>;
  const gguf = (pairs: Parameters<typeof ggufFile>[0]['pairs']): string =>
    join(tokenizerFolder({ 'model.gguf': ggufFile({ pairs, tensors: [] }) }), 'model.gguf');

  it.each([
    ['models/demo', () => DEMO],
    ['a tokenizer.model', () => tokenizerFolder({ 'tokenizer.model': TOY })],
    ['the pieces of a GGUF file', () => gguf(piecePairs(parseSentencePiece(TOY, 'tokenizer.model')))],
    ['a byte-level GGUF file', () => gguf(byteLevelPairs(asByteLevel(demo()), 'llama-bpe', '<s>'))],
  ])('is that of the library for %s', async (_, folder) => {
    await compareTokenizer(describeTokenizer(folder()).spec, 60);
  });
});

/** The tokens of these pieces. */
const idsOf = (pieces: readonly string[]): number[] => pieces.map((piece) => PIECES.indexOf(piece));

describe('a stream of tokens', () => {
  const llama = (): Detokenizer => both(small(LLAMA)).own;
  const parts = (own: Detokenizer, pieces: readonly string[]): string[] => {
    const stream = own.stream();
    return [...idsOf(pieces).map((id) => stream.push(id)), stream.end()];
  };

  it('shows characters of several tokens with the last of them', () => {
    expect(parts(llama(), [hex(0xe2), hex(0x82), hex(0xac), hex(0x41), 'a'])).toEqual(['', '', '€', 'A', 'a', '']);
    const bytes = both(small([BYTE_LEVEL])).own;
    expect(parts(bytes, ['ðŁ', 'ĺĢ', 'a', 'âĤ'])).toEqual(['', '😀', 'a', '', '\uFFFD']);
  });

  it('goes on behind bytes that are no character', () => {
    expect(parts(llama(), [hex(0xe2), 'a', hex(0xff), hex(0x41), 'b'])).toEqual([
      '',
      '\uFFFDa',
      '\uFFFD',
      '\uFFFD',
      'b',
      '',
    ]);
    // Characters that were shown stand; the library would replace the whole run.
    expect(parts(llama(), [hex(0x41), hex(0xf0), hex(0xff), 'b'])).toEqual(['A', '', '\uFFFD\uFFFD', 'b', '']);
    const bytes = both(small([BYTE_LEVEL])).own;
    expect(parts(bytes, ['âĤ', 'a', '¬', 'b'])).toEqual(['', '\uFFFDa', '\uFFFD', 'b', '']);
  });

  it('drops the space before a text, and no other', () => {
    expect(parts(llama(), ['▁a', '▁a'])).toEqual(['a', ' a', '']);
    expect(
      parts(both(small([{ type: 'Metaspace', replacement: '▁', prepend_scheme: 'always' }])).own, ['▁', '▁▁b']),
    ).toEqual(['', '  b', '']);
  });

  it('has the special tokens that are asked for, and may not show them in parts', () => {
    const own = both(small([BYTE_LEVEL])).own;
    const [begin, end] = [PIECES.length, PIECES.length + 1];
    const stream = own.stream(new Set(['</s>']));
    expect([...idsOf(['a', 'âĤ']), begin, end, ...idsOf(['b'])].map((id) => stream.push(id))).toEqual([
      ...['a', '', '', '\uFFFD</s>', 'b'],
    ]);
    expect([stream.isWhole(end), own.specialText(end), own.specialText(0), own.specialText(-1)]).toEqual([
      ...[true, '</s>', undefined, undefined],
    ]);
    expect(own.stream().push(end)).toBe('');
  });

  it('takes characters from the end of a text where the decoder does', () => {
    const own = both(small([{ type: 'Fuse' }, { type: 'Strip', content: ' ', start: 0, stop: 2 }])).own;
    expect(parts(own, ['a ', '  ', 'b', '  ', ' '])).toEqual(['a', ' ', '  b', '', ' ', '']);
    // The library ends the process where a piece is shorter than what is taken from it.
    expect(own.decode([])).toBe('');
    expect(own.decode(idsOf([' ']))).toBe('');
  });
});

describe('the bytes of a token', () => {
  const bytes = (decoders: readonly Decoder[], piece: string): string =>
    Buffer.from(both(small(decoders)).own.bytesOf([...PIECES, ...SPECIAL, '<think>'].indexOf(piece))).toString(
      'latin1',
    );

  it('are those that it adds in the middle of a text', () => {
    expect(bytes(LLAMA, hex(0xe2))).toBe('\u00e2');
    expect(bytes(LLAMA, '▁a')).toBe(' a');
    expect(bytes([BYTE_LEVEL], 'Ġa')).toBe(' a');
    expect(bytes([BYTE_LEVEL], 'âĤ')).toBe('\u00e2\u0082');
    expect(bytes([{ type: 'WordPiece', prefix: '##', cleanup: true }], 'a')).toBe(' a');
    expect(bytes([], 'a')).toBe(' a');
    expect(bytes(LLAMA, '<think>')).toBe('<think>');
  });

  it('are none for special tokens, and for those that do not exist', () => {
    expect(bytes(LLAMA, '<s>')).toBe('');
    const { own } = both(small(LLAMA));
    for (const id of [PIECES.length + 3, -1, 0.5, NaN, 2 ** 32]) expect(own.bytesOf(id)).toHaveLength(0);
    expect([own.isWhole(PIECES.length + 2), own.isWhole(0)]).toEqual([true, false]);
  });
});

it('UTF-8 is read as WHATWG says, byte by byte', () => {
  const random = randomOf(3);
  const edges = [
    0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff,
  ];
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  for (let i = 0; i < 3000; i++) {
    const bytes = Uint8Array.from({ length: Math.floor(random() * 9) }, () =>
      random() < 0.7 ? pick(random, edges) : Math.floor(random() * 256),
    );
    const utf8 = new Utf8();
    let text = '';
    for (const byte of bytes) text += utf8.push(byte);
    expect([bytes, text + utf8.end()]).toEqual([bytes, decoder.decode(bytes)]);
  }
});
