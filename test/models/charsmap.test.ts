import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { checkCharsmap } from '../../models/tokenizer/vocabulary.js';
import { charsmapOf, charsmapParts, printCharsmap } from './charsmapWriter.js';
import { thorough } from '../support/thorough.js';

const RULES = { '①': '1', ﬁ: 'fi', '\u00a0': ' ', x: '', é: 'E' };
/** A Unigram tokenizer of single characters (id i is the i-th) that normalizes by `table`. */
const tokenize = async (table: string, text: string): Promise<string> => {
  const pieces = ['?', ...'1fiE abx'];
  const json = {
    normalizer: { type: 'Precompiled', precompiled_charsmap: table },
    model: { type: 'Unigram', unk_id: 0, vocab: pieces.map((piece, i) => [piece, -i]) },
  };
  const ids = await createTokenizer({ kind: 'json', text: JSON.stringify(json), where: 'x' }).encode(text);
  return ids.map((id) => pieces[id]).join('');
};

describe('checkCharsmap', () => {
  it('accepts a sound table, which then works', async () => {
    expect(checkCharsmap(charsmapOf(RULES))).toEqual({ longest: 2 });
    expect(await tokenize(charsmapOf(RULES), 'a①xﬁ\u00a0éb')).toBe('a1fi Eb');
  });

  it.each([
    ['text that is not base64', '***', 'it is not base64'],
    ['nothing', '', 'a trie of 0 bytes'],
    ['a trie that is longer than the table', Buffer.from([255, 255, 255, 127, 0]).toString('base64'), 'a trie of'],
    ['half a unit', Buffer.from([6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).toString('base64'), 'a trie of 6 bytes'],
    ['a table beyond all size', 'A'.repeat(6 << 20), 'more than'],
  ])('refuses %s', (_, table, problem) => {
    expect(checkCharsmap(table).problem).toContain(problem);
  });

  it.each([
    ['no NUL at the end', { replacements: Buffer.from('1') }, 'do not end in NUL'],
    ['replacements that are not UTF-8', { replacements: Buffer.from([255, 0]) }, 'not UTF-8'],
    ['replacements that are cut off', { replacements: Buffer.from('1\0') }, 'names no replacement'],
    ['a replacement from the middle of a character', { replacements: Buffer.from('1é\0abcdef\0') }, 'names no'],
    ['a trie that is cut off', { units: charsmapParts(RULES).units.subarray(0, 300) }, 'leads out of the trie'],
    ['a root outside', { units: Uint32Array.of(0xffff_fc00) }, 'leads out of the trie'],
    ['a root with nothing below it', { units: Uint32Array.of(0) }, 'leads out of the trie'],
  ])('refuses %s', (_, change, problem) => {
    const table = printCharsmap({ ...charsmapParts(RULES), ...change });
    expect(checkCharsmap(table).problem).toContain(problem);
  });

  thorough('accepts nothing that crashes the process', async () => {
    const { units, replacements } = charsmapParts(RULES);
    const unit = fc.oneof(
      fc.nat(2 ** 32 - 1),
      fc.nat(255),
      fc.nat(units.length / 256).map((block) => (block << 10) | 0x300),
    );
    const at = fc.oneof(fc.nat(units.length - 1), fc.constantFrom(...[...units.keys()].filter((i) => units[i] !== 0)));
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(at, unit), { minLength: 1, maxLength: 3 }), async (changes) => {
        const changed = units.slice();
        for (const [i, value] of changes) changed[i] = value;
        const table = printCharsmap({ units: changed, replacements });
        if (checkCharsmap(table).problem === undefined) await tokenize(table, '①xaﬁéé\u00a0e\u0301\u{1f468}');
      }),
      { numRuns: 300 },
    );
  });
});
