import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import {
  convertSentencePiece,
  parseSentencePiece,
  protoFields,
  type SentencePieceModel,
} from '../../models/tokenizer/sentencepiece.js';
import { createTokenizer, openTokenizer, type Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { piece, sentencePieceModel, toyPieces, varint } from './sentencepieceWriter.js';
import { hasShared, SHARED, skipReason, userError } from './support.js';
import { tokenizerFolder } from './tokenizerFolder.js';
import { isThorough, thorough } from '../support/thorough.js';

const BOS = { addBos: true, addEos: false };

interface Json {
  added_tokens: { id: number; content: string }[];
  normalizer: { normalizers: unknown[] };
  model: {
    vocab: Record<string, number>;
    merges: [string, string][];
    byte_fallback: boolean;
    fuse_unk: boolean;
    unk_token: string;
  };
}
const convert = (model: Uint8Array, special = BOS): Json =>
  JSON.parse(convertSentencePiece(model, 'tokenizer.model', special)) as Json;
const tokenizer = (model: Uint8Array, special = BOS): Tokenizer =>
  createTokenizer({
    kind: 'json',
    text: convertSentencePiece(model, 'tokenizer.model', special),
    where: 'tokenizer.model',
  });

/**
 * SentencePiece's BPE by its definition, in quadratic time: merge the adjacent pair whose union has the highest score,
 * the leftmost of equals, until no union is a normal piece; then replace what is not a piece by bytes (or one unknown
 * for each run).
 */
function reference(model: SentencePieceModel): (text: string) => number[] {
  const ids = new Map(model.pieces.map(({ piece: text }, id) => [text, id]));
  const score = (text: string): number | undefined => {
    const found = model.pieces[ids.get(text) ?? -1];
    return found?.type === 1 ? found.score : undefined;
  };
  const unknown = model.pieces.findIndex(({ type }) => type === 2);
  return (text) => {
    if (text === '') return [model.bosId];
    const symbols = [...`${model.addDummyPrefix ? '▁' : ''}${text.replaceAll(' ', '▁')}`];
    for (;;) {
      let best = -1;
      let bestScore = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const joined = score(`${symbols[i]}${symbols[i + 1]}`);
        if (joined !== undefined && joined > bestScore) [best, bestScore] = [i, joined];
      }
      if (best === -1) break;
      symbols.splice(best, 2, `${symbols[best]}${symbols[best + 1]}`);
    }
    const out = [model.bosId];
    for (const symbol of symbols) {
      if (score(symbol) !== undefined) out.push(ids.get(symbol) ?? unknown);
      else if (model.byteFallback)
        out.push(
          ...[...Buffer.from(symbol)].map(
            (byte) => ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`) ?? unknown,
          ),
        );
      else if (out.at(-1) !== unknown) out.push(unknown);
    }
    return out;
  };
}

describe('convertSentencePiece', () => {
  it('lists every split as a merge, by score, then by ids', () => {
    // ids: a 3, b 4, c 5, ab 6, bc 7, abc 8; scores chosen so that abc comes first and bc before ab.
    const model = sentencePieceModel({
      pieces: [...toyPieces, ['a', -9], ['b', -9], ['c', -9], ['ab', -2], ['bc', -1], ['abc', 0]],
    });
    const json = convert(model);
    expect(json.model.merges).toEqual([
      ['a', 'bc'],
      ['ab', 'c'],
      ['b', 'c'],
      ['a', 'b'],
    ]);
    expect(json.model).toMatchObject({ byte_fallback: false, fuse_unk: true, unk_token: '<unk>' });
    expect(json.added_tokens.map(({ id, content }) => [id, content])).toEqual([
      [0, '<unk>'],
      [1, '<s>'],
      [2, '</s>'],
    ]);
    expect(json.normalizer.normalizers).toEqual([
      { type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    ]);
  });

  it('adds what the settings say around every text', async () => {
    const model = sentencePieceModel({ pieces: [...toyPieces, ['▁', -1], ['a', -2], ['▁a', -3]] });
    expect(await tokenizer(model).encode('a a')).toEqual([1, 5, 5]);
    expect(await tokenizer(model, { addBos: true, addEos: true }).encode('a')).toEqual([1, 5, 2]);
    expect(await tokenizer(model, { addBos: false, addEos: false }).encode('')).toEqual([]);
    expect(await tokenizer(model).encode('a\u{1F600}\u{1F601}a')).toEqual([1, 5, 0, 4]);
    const bare = sentencePieceModel({
      pieces: [...toyPieces, ['▁', -1], ['a', -2], ['▁a', -3]],
      addDummyPrefix: false,
    });
    expect(await tokenizer(bare).encode('a a')).toEqual([1, 4, 5]);
  });

  it('keeps pieces whose names are awkward in JavaScript', () => {
    const json = convert(
      sentencePieceModel({ pieces: [...toyPieces, ['__proto__', -1], ['7', -2], ['constructor', -3]] }),
    );
    expect(
      Object.entries(json.model.vocab)
        .sort((a, b) => a[1] - b[1])
        .slice(3),
    ).toEqual([
      ['__proto__', 3],
      ['7', 4],
      ['constructor', 5],
    ]);
  });

  it('tokenizes as SentencePiece does, on made-up vocabularies', async () => {
    const letters = ['▁', 'a', 'b', 'c'];
    const words = fc.uniqueArray(
      fc.array(fc.constantFrom(...letters), { minLength: 2, maxLength: 4 }).map((parts) => parts.join('')),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(
        words,
        fc.array(fc.constantFrom(' ', 'a', 'b', 'c', 'd', 'é'), { maxLength: 24 }),
        async (pieces, parts) => {
          const model = sentencePieceModel({
            pieces: [...toyPieces, ...[...letters, ...pieces].map((text, i): [string, number] => [text, -i])],
          });
          const text = parts.join('');
          expect(await tokenizer(model).encode(text)).toEqual(reference(parseSentencePiece(model, 'm'))(text));
        },
      ),
      { numRuns: isThorough ? 300 : 120 },
    );
  });

  it.each([true, false])('finds user-defined pieces first and whole, space before texts: %s', async (isSpaced) => {
    const letters = ['▁', 'a', 'b', 'c', 'd'];
    const fixed = ['[X]', '▁a', 'bc', 'bcd', '▁▁', 'd'];
    const normal = [...letters.filter((letter) => letter !== 'd'), 'ab', 'ca', '▁b', 'aa', 'bca', '▁ab', 'abc', 'c▁'];
    const pieces: (readonly [string, number, number?])[] = [
      ...toyPieces,
      ['[INST]', 0, 3],
      ...fixed.map((text): [string, number, number] => [text, 0, 4]),
      ...normal.map((text, i): [string, number] => [text, -i]),
    ];
    const model = sentencePieceModel({ pieces, addDummyPrefix: isSpaced });
    const plain = reference({
      ...parseSentencePiece(model, 'm'),
      pieces: parseSentencePiece(model, 'm').pieces.map((each) => (each.type === 4 ? { ...each, type: 3 } : each)),
      addDummyPrefix: false,
    });
    const idOf = (text: string): number => pieces.findIndex(([piece]) => piece === text);
    /** SentencePiece: at each place the longest user-defined piece; all between is merged by itself. */
    const wanted = (text: string): number[] => {
      const whole = `${isSpaced && text !== '' ? '▁' : ''}${text.replaceAll(' ', '▁')}`;
      const ids = [1];
      let rest = '';
      const flush = (): void => {
        ids.push(...plain(rest).slice(1));
        rest = '';
      };
      for (let at = 0; at < whole.length;) {
        const [found] = fixed.filter((piece) => whole.startsWith(piece, at)).sort((a, b) => b.length - a.length);
        if (found === undefined) rest += whole[at++];
        else {
          flush();
          ids.push(idOf(found));
          at += found.length;
        }
      }
      flush();
      return ids;
    };
    const opened = openTokenizer(tokenizerFolder({ 'tokenizer.model': model }));
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom(' ', 'a', 'b', 'c', 'd', '[X]', '  ', 'bc'), { maxLength: 16 }),
        async (parts) => {
          expect(await opened.encode(parts.join(''))).toEqual(wanted(parts.join('')));
        },
      ),
      { numRuns: isThorough ? 300 : 120 },
    );
    // A text that begins with a control token has its words behind that: no space is put before it.
    expect(await opened.encodeWritten('<s>[INST] b[X]')).toEqual([1, 3, idOf('▁b'), idOf('[X]')]);
    expect(await opened.encodeBatch(['b\nbc', 'b\na'])).toEqual([
      await opened.encode('b\nbc'),
      await opened.encode('b\na'),
    ]);
  });

  it.each([
    ['a unigram model', { modelType: 1 }, 'its model type is unigram, not BPE'],
    ['a table of characters', { charsmap: true }, 'it normalizes characters by a table'],
    ['dropped spaces', { removeExtraWhitespaces: true }, 'it removes repeated white space'],
    ['an unused piece', { pieces: [...toyPieces, ['x', 0, 5]] }, 'piece 3 ("x") is unused'],
    ['two equal pieces', { pieces: [...toyPieces, ['x', 0], ['x', -1]] }, 'pieces 3 and 4 are both "x"'],
    ['no unknown piece', { pieces: toyPieces.slice(1) }, '0 unknown pieces; expected 1'],
    ['no BOS', { pieces: toyPieces.slice(0, 1) }, 'bos id 1 is not a control piece'],
    ['missing bytes', { byteFallback: true }, 'some of the 256 byte pieces are missing'],
    ['no pieces', { pieces: [] }, 'no pieces: not a SentencePiece model'],
    ['an empty piece', { pieces: [...toyPieces, ['', 0]] }, 'piece 3: 0 characters'],
    ['a long piece', { pieces: [...toyPieces, ['x'.repeat(513), 0]] }, 'piece 3: 513 characters'],
    ['a score that is none', { pieces: [...toyPieces, ['x', Number.NaN]] }, 'score NaN'],
  ] satisfies [string, Parameters<typeof sentencePieceModel>[0], string][])('refuses %s', (_, options, expected) => {
    const error = userError(() => convertSentencePiece(sentencePieceModel(options), 'tokenizer.model', BOS));
    expect(error.message).toContain(expected);
    expect(error.message).toMatch(/^tokenizer\.model: /);
    expect(error.hint).toContain('tokenizer.json');
  });
});

describe('damaged files', () => {
  const good = sentencePieceModel({ pieces: [...toyPieces, ['▁', -1], ['a', -2], ['▁a', -3]] });
  const check = (bytes: Uint8Array): void => {
    try {
      convertSentencePiece(bytes, 'f', BOS);
    } catch (error) {
      expect(error).toBeInstanceOf(UserError);
    }
  };

  it('end in a UserError or a tokenizer', () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), check), { numRuns: 500 });
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.nat(255), (at, byte) => {
        const changed = Uint8Array.from(good);
        changed[at] = byte;
        check(changed);
      }),
      { numRuns: isThorough ? 1000 : 300 },
    );
  });

  it('say where they end too early', () => {
    expect(userError(() => parseSentencePiece(good.subarray(0, good.length - 1), 'f')).message).toMatch(
      /^f: damaged protobuf: a field of \d+ bytes runs past the end at byte \d+$/,
    );
  });

  it.each([
    ['a length past 2^53', [0x0a, ...varint(2n ** 63n)], 'runs past the end'],
    ['an endless number', [0x08, ...Array<number>(11).fill(0xff)], 'a number of more than 10 bytes'],
    ['a group', [0x0b], 'wire type 3'],
    ['field 0', [0x00, 0x00], 'field number 0'],
    ['a cut fixed64', [0x09, 1, 2, 3], 'a field of 8 bytes runs past the end'],
    ['a cut fixed32', [0x0d, 1, 2, 3], 'a field of 4 bytes runs past the end'],
  ])('refuse %s', (_, bytes, expected) => {
    expect(userError(() => [...protoFields(Uint8Array.from(bytes), 'f')]).message).toContain(expected);
  });

  it('keep integers exact', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (value) => {
        expect([...protoFields(Uint8Array.from([0x08, ...varint(value)]), 'f')]).toEqual([
          { number: 1, wire: 'varint', value },
        ]);
      }),
    );
    expect(piece('a', -1.5)).toEqual([0x0a, 1, 0x61, 0x15, 0, 0, 0xc0, 0xbf]);
  });
});

describe.skipIf(!hasShared)(skipReason("LLaMA's own tokenizer.model"), () => {
  let bytes: Buffer;
  let llama: Tokenizer;
  let exact: (text: string) => number[];
  beforeAll(() => {
    bytes = readFileSync(join(SHARED, 'data', 'llama_tokenizer.model'));
    const text = convertSentencePiece(bytes, 'tokenizer.model', BOS);
    llama = createTokenizer({ kind: 'json', text, where: 'tokenizer.model' });
    exact = reference(parseSentencePiece(bytes, 'tokenizer.model'));
  });

  it('has the 61,249 merges of the published tokenizer.json', () => {
    const { model } = convert(bytes);
    expect(Object.keys(model.vocab)).toHaveLength(32000);
    expect(model.merges).toHaveLength(61249);
    expect(model.merges.slice(0, 4)).toEqual([
      ['▁', 't'],
      ['e', 'r'],
      ['i', 'n'],
      ['▁', 'a'],
    ]);
  });

  it.each([
    ['Hello world', [1, 15043, 3186]],
    ['', [1]],
    ['\n\t', [1, 29871, 13, 12]],
    ['\u{1F600}', [1, 29871, 243, 162, 155, 131]],
  ])('tokenizes %j as published', async (text, ids) => {
    expect(await llama.encode(text)).toEqual(ids);
    expect(exact(text)).toEqual(ids);
  });

  thorough('tokenizes any text as SentencePiece does', async () => {
    const text = fc
      .oneof(
        fc.string({ unit: 'binary', maxLength: 40 }),
        fc
          .array(
            fc.constantFrom(
              ' ',
              '  ',
              'the',
              'The',
              'ing',
              'er',
              'aaaa',
              '    ',
              '\n',
              '…',
              'é',
              'e\u0301',
              '漢字',
              "'s",
              '.',
              ',',
              '10',
              '▁',
              '\u{1F468}\u200D\u{1F469}',
            ),
            { maxLength: 20 },
          )
          .map((parts) => parts.join('')),
      )
      .filter((s) => !/<unk>|<\/?s>/.test(s));
    await fc.assert(
      fc.asyncProperty(text, async (s) => {
        expect(await llama.encode(s)).toEqual(exact(s));
      }),
      { numRuns: isThorough ? 400 : 150 },
    );
  });
});
