/** Text of growing lists of tokens: characters in several tokens, and stop strings across tokens. */
import { describe, expect, it } from 'vitest';
import { TextStream, type TokenText } from '../../engine/textStream.js';
import { randomOf } from '../fuzz/mutate.js';

/** Token n is text n. */
const texts = (all: readonly string[], end = ''): TokenText => ({
  push: (id) => all[id]!,
  end: () => end,
  isWhole: (id) => all[id]!.startsWith('</'),
});

interface Streamed {
  readonly parts: readonly string[];
  readonly text: string;
  readonly at: number;
}

function stream(pieces: readonly string[], stops: readonly string[], end?: string): Streamed {
  const out = new TextStream(texts(pieces, end), stops);
  const parts: string[] = [];
  for (const at of pieces.keys()) {
    const { added, isStopped } = out.push(at);
    parts.push(added);
    if (isStopped) return { parts, text: out.text, at };
  }
  parts.push(out.end());
  return { parts, text: out.text, at: pieces.length };
}

describe('the text of tokens', () => {
  it('has what tokens add, and what is left at the end', () => {
    expect(stream(['a', '', '€', 'b'], [], '\uFFFD').parts).toEqual(['a', '', '€', 'b', '\uFFFD']);
    expect(stream(['a', 'b'], ['bc'], '\uFFFD').parts).toEqual(['a', '', 'b\uFFFD']);
  });

  it('ends before the first stop string, none of which is ever shown', () => {
    expect(stream([...'one\n\ntwo'], ['\n\n'])).toMatchObject({ text: 'one', at: 4 });
    expect(stream([...'abcabd'], ['abd', 'zzz'])).toMatchObject({ text: 'abc', at: 5 });
    expect(stream([...'ab'], ['abc'])).toMatchObject({ text: 'ab', at: 2 });
  });

  it('finds a stop string inside a token', () => {
    expect(stream(['one t', 'wo three'], ['two'])).toMatchObject({ parts: ['one ', ''], text: 'one ', at: 1 });
    expect(stream(['one two three'], ['two'])).toMatchObject({ text: 'one ', at: 0 });
  });

  it('ends where strings that overlap cut it one after the other, as the public harness does', () => {
    expect(stream([...'one\nQ: two'], ['Q:', '\nQ:'])).toMatchObject({ text: 'one\n', at: 5 });
    expect(stream([...'one\nQ: two'], ['\nQ:', 'Q:'])).toMatchObject({ text: 'one', at: 5 });
    // The second is whole before what the first leaves.
    expect(stream(['a, b; c'], ['; c', ','])).toMatchObject({ text: 'a', at: 0 });
  });

  it('goes on behind stop strings that may not end it yet', () => {
    const out = new TextStream(texts(['a', 'X', 'Y', 'X', 'X', 'Y']), ['XX', 'XY']);
    expect([0, 1, 2].map((id) => out.push(id, false))).toEqual(
      ['a', '', 'XY'].map((added) => ({ added, isStopped: false })),
    );
    expect(out.push(3)).toEqual({ added: '', isStopped: false });
    expect(out.push(4)).toEqual({ added: '', isStopped: true });
    expect(out.text).toBe('aXY');
  });

  it('shows a mark as a whole or not at all', () => {
    expect(stream(['a', '</think>', '\n', 'b'], ['>\n\n']).parts).toEqual(['a', '', '', '</think>\nb', '']);
    expect(stream(['a', '</think>', '\n', '\n', 'b'], ['>\n\n'])).toMatchObject({ text: 'a</think', at: 3 });
    expect(stream(['</a>', '</b>', '>'], ['>>>']).parts).toEqual(['', '</a>', '', '</b>>']);
  });

  it('is cut as a search of the whole text would cut it', () => {
    const random = randomOf(5);
    const letters = (most: number): string =>
      Array.from({ length: 1 + Math.floor(random() * most) }, () => 'ab\n'[Math.floor(random() * 3)]).join('');
    for (let i = 0; i < 3000; i++) {
      const pieces = Array.from({ length: 12 }, () => letters(3));
      const stops = Array.from({ length: 1 + Math.floor(random() * 3) }, () => letters(5));
      const { parts, text, at } = stream(pieces, stops);
      expect(parts.join('')).toBe(text);
      const count = [...pieces.keys()].find((n) => {
        const all = pieces.slice(0, n + 1).join('');
        return stops.some((stop) => all.includes(stop));
      });
      const all = pieces.slice(0, (count ?? pieces.length) + 1).join('');
      const wanted = stops.reduce((cut, stop) => cut.split(stop)[0]!, all);
      expect([pieces, stops, text, at]).toEqual([pieces, stops, wanted, count ?? pieces.length]);
    }
  });
});
