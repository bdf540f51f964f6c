/** Vocabularies that are scanned are those that JSON.parse reads, to the entry; everything unusual is left to it. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseTokenizerJson, type TokenizerJson, writeTokenizerJson } from '../../models/tokenizer/json.js';
import { scanTokenizer } from '../../models/tokenizer/scan.js';
import { userError } from './support.js';

type Model = Readonly<Record<string, unknown>>;
const file = (model: Model, changes: object = {}): object => ({ version: '1.0', added_tokens: [], model, ...changes });
const bpe = (vocab: object, merges: readonly unknown[]): Model => ({ type: 'BPE', vocab, merges });
const scan = (json: object | string): ReturnType<typeof scanTokenizer> =>
  scanTokenizer(Buffer.from(typeof json === 'string' ? json : JSON.stringify(json)));

/** As Python writes it by default. */
const inAscii = (text: string): string =>
  text.replace(/[^\u0000-\u007f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** The text for the library as an object. */
const modelOf = (json: TokenizerJson): Model =>
  (JSON.parse(writeTokenizerJson(json).toString()) as { readonly model: Model }).model;

const ALPHABET = [...'ab Ġ▁é日"\\/\n\t\u0001#{}[],:0', '\u{1F600}', '\u2028', '__proto__', '#version', 'Ċ'];
const piece = fc.array(fc.constantFrom(...ALPHABET), { minLength: 1, maxLength: 4 }).map((parts) => parts.join(''));
const vocabulary = fc
  .uniqueArray(piece, { minLength: 1, maxLength: 40 })
  .chain((pieces) =>
    fc
      .uniqueArray(fc.nat(200), { minLength: pieces.length, maxLength: pieces.length })
      .map((ids) => JSON.parse(`{${pieces.map((each, i) => `${JSON.stringify(each)}:${ids[i]}`).join()}}`) as object),
  );

describe('a scanned vocabulary', () => {
  it('is the one that JSON.parse reads, however it is written', () => {
    fc.assert(
      fc.property(
        vocabulary,
        fc.array(fc.tuple(piece, piece), { maxLength: 20 }),
        fc.constantFrom(undefined, 2, '\t'),
        fc.boolean(),
        (vocab, pairs, indent, isAscii) => {
          const text = JSON.stringify(file(bpe(vocab, pairs)), null, indent);
          const scanned = scan(isAscii ? inAscii(text) : text);
          expect(scanned).toBeDefined();
          const { pieces, written } = scanned!;
          const read = JSON.parse(`{${Buffer.concat(written).toString()}}`) as { vocab: object; merges: unknown[] };
          expect(read.vocab).toEqual(vocab);
          const mayJoin = pairs.every(([a, b]) => !a.includes(' ') && !b.includes(' ') && !a.startsWith('#version'));
          // A text that begins with # may be a heading where it has escapes.
          const mustJoin = mayJoin && !pairs.some(([a]) => a.startsWith('#'));
          const isJoined = mustJoin || (mayJoin && typeof read.merges[0] === 'string');
          expect(read.merges).toEqual(isJoined ? pairs.map((pair) => pair.join(' ')) : pairs);
          for (const [each, id] of Object.entries(vocab)) expect(pieces.idOf(each)).toBe(id);
          expect(pieces.idOf('absent')).toBeUndefined();
          const ids = Object.values(vocab) as number[];
          expect([pieces.count, pieces.largestId]).toEqual([ids.length, Math.max(...ids)]);
          for (let id = 0; id <= 201; id++) expect(pieces.hasId(id)).toBe(ids.includes(id));
          expect(pieces.crossesLines).toBe(Object.keys(vocab).some((each) => /[\nĊ][A-Za-z]/.test(each)));
        },
      ),
      { numRuns: 400 },
    );
  });

  it('has texts with one space as merges, as older files do', () => {
    const { written } = scan(file(bpe({ a: 0, b: 1, ab: 2 }, ['a b', 'ab\\" b'])))!;
    expect(Buffer.concat(written).toString()).toBe('"vocab":{"a":0,"b":1,"ab":2},"merges":["a b","ab\\\\\\" b"]');
  });

  it.each<[string, object | string]>([
    ['a key twice', '{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}'],
    ['a key twice, once with an escape', '{"model":{"type":"BPE","vocab":{"a":0,"\\u0061":1},"merges":[]}}'],
    ['an id twice', file(bpe({ a: 0, b: 0 }, []))],
    ['a fraction', '{"model":{"vocab":{"a":1.0},"merges":[]}}'],
    ['an exponent', '{"model":{"vocab":{"a":1e1},"merges":[]}}'],
    ['a leading zero', '{"model":{"vocab":{"a":01},"merges":[]}}'],
    ['a negative id', file(bpe({ a: -1 }, []))],
    ['a large id', file(bpe({ a: 1 << 22 }, []))],
    ['a huge id', '{"model":{"vocab":{"a":99999999999999999999999},"merges":[]}}'],
    ['a long piece', file(bpe({ ['a'.repeat(3000)]: 1 }, []))],
    ['half a pair', '{"model":{"vocab":{"\\ud83d":1},"merges":[]}}'],
    ['another half', '{"model":{"vocab":{"\\ud83d\\ud83d":1},"merges":[]}}'],
    ['halves in the wrong order', '{"model":{"vocab":{"\\ude00\\ud83d":1},"merges":[]}}'],
    ['a control character', '{"model":{"vocab":{"\u0001":1},"merges":[]}}'],
    ['an unknown escape', '{"model":{"vocab":{"\\x":1},"merges":[]}}'],
    ['an escape for a space', '{"model":{"vocab":{"a":1},"merges":["a\\u0020b"]}}'],
    ['a merge of three', file(bpe({ a: 1 }, ['a a a']))],
    ['a merge of one', file(bpe({ a: 1 }, ['aa']))],
    ['a merge of nothing', file(bpe({ a: 1 }, [' a']))],
    ['a list of three', file(bpe({ a: 1 }, [['a', 'a', 'a']]))],
    ['merges of both kinds', file(bpe({ a: 1 }, [['a', 'a'], 'a a']))],
    ['two vocabularies', '{"model":{"vocab":{"a":1},"vocab":{"b":1},"merges":[]}}'],
    ['two models', '{"model":{"vocab":{"a":1},"merges":[]},"model":{"vocab":{"a":1},"merges":[]}}'],
    ['a name with an escape', '{"mod\\u0065l":{"vocab":{"a":1}}}'],
    ['a list', file({ type: 'Unigram', vocab: [['a', 0]] })],
    ['text behind the end', '{"model":{"vocab":{"a":1},"merges":[]}} x'],
    ['no end', '{"model":{"vocab":{"a":1},"merges":['],
    ['a comma too many', '{"model":{"vocab":{"a":1,},"merges":[]}}'],
    ['no model', '{}'],
    ['nothing', ''],
  ])('is none with %s', (_, json) => {
    expect(scan(json)).toBeUndefined();
  });

  it('is none in bytes that are not UTF-8', () => {
    const bytes = Buffer.from(JSON.stringify(file(bpe({ ab: 1 }, []))));
    bytes[bytes.indexOf('ab')] = 0xff;
    expect(scanTokenizer(bytes)).toBeUndefined();
  });

  it('is none where pieces were made to be slow to find', () => {
    const size = 2048;
    const alike: string[] = [];
    for (let i = 0; alike.length < 900; i++) {
      let hash = 0x811c9dc5;
      for (const code of Buffer.from(`k${i}`)) hash = Math.imul(hash ^ code, 0x01000193);
      if (((hash ^ (hash >>> 15)) & (size - 1)) === 0) alike.push(`k${i}`);
    }
    const vocab = (texts: readonly string[]): object => Object.fromEntries(texts.map((text, id) => [text, id]));
    expect(scan(file(bpe(vocab(alike), [])))).toBeUndefined();
    expect(scan(file(bpe(vocab(alike.map((_, i) => `k${i}`)), [])))).toBeDefined();
  });

  it('is valid JSON with the same entries in files that were changed at any byte', () => {
    const valid = Buffer.from(
      JSON.stringify(
        file(bpe({ '"a': 10, 'Ġb\\': 11, '▁ab': 12 }, [['"a', 'Ġb\\']]), { decoder: { type: 'Fuse' } }),
        null,
        1,
      ),
    );
    let scanned = 0;
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(valid.length - 1), fc.nat(255)), { minLength: 1, maxLength: 2 }),
        (changes) => {
          const bytes = Buffer.from(valid);
          for (const [at, byte] of changes) bytes[at] = byte;
          const found = scanTokenizer(bytes);
          if (found === undefined) return;
          let rest: unknown;
          try {
            rest = JSON.parse(found.rest);
          } catch {
            expect(() => JSON.parse(bytes.toString()) as unknown).toThrow();
            return;
          }
          scanned++;
          const whole = JSON.parse(bytes.toString()) as { model: { vocab: object; merges: (string | string[])[] } };
          expect(rest).toEqual({
            ...whole,
            model: { ...whole.model, vocab: {}, ...(found.hasMerges ? { merges: [] } : {}) },
          });
          const read = JSON.parse(`{${Buffer.concat(found.written).toString()}}`) as typeof whole.model;
          expect(read.vocab).toEqual(whole.model.vocab);
          if (!found.hasMerges) return;
          const joined = (pair: string | string[]): string => (typeof pair === 'string' ? pair : pair.join(' '));
          expect(read.merges.map(joined)).toEqual(whole.model.merges.map(joined));
        },
      ),
      { numRuns: 4000 },
    );
    expect(scanned).toBeGreaterThan(200);
  });
});

describe('parseTokenizerJson', () => {
  it('gives the library the same model, scanned or not', () => {
    const settings = { type: 'BPE', dropout: null, unk_token: 'a', byte_fallback: true, ignore_merges: false, x: 1 };
    const model = { ...settings, vocab: { a: 0, b: 1, ab: 2 }, merges: [['a', 'b']] };
    const scanned = parseTokenizerJson(JSON.stringify(file(model)), 'x');
    // A fraction is read by JSON.parse alone.
    const parsed = parseTokenizerJson(JSON.stringify(file(model)).replace('"a":0', '"a":0.0'), 'x');
    const { dropout: _, x: __, ...kept } = settings;
    expect(modelOf(scanned)).toEqual({ ...kept, vocab: model.vocab, merges: ['a b'] });
    expect(modelOf(parsed)).toEqual({ ...kept, vocab: model.vocab, merges: [['a', 'b']] });
    for (const { vocabSize, pieces } of [scanned, parsed])
      expect([vocabSize, pieces.count, pieces.idOf('ab'), pieces.hasId(3)]).toEqual([3, 3, 2, false]);
  });

  it('names the merge that is no pair, and its place', () => {
    const refusal = (merges: readonly unknown[]): string =>
      userError(() => parseTokenizerJson(JSON.stringify(file(bpe({ a: 0, b: 1 }, merges))), 'x')).message;
    expect(refusal([['a', 'b'], ['a']])).toBe('x: model.merges: merge 2 of 2 is no pair of pieces: ["a"]');
    expect(refusal(['a b', 'b a', 'a b a'])).toContain('merge 3 of 3 is no pair of pieces: "a b a"');
  });
});
