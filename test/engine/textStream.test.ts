/** Text of growing lists of tokens: characters in several tokens, and stop strings across tokens. */
import { describe, expect, it } from 'vitest';
import { TextStream } from '../../engine/textStream.js';

/** Token n is byte n. */
const bytes = (ids: readonly number[]): Promise<string> => Promise.resolve(Buffer.from(ids).toString('utf8'));

async function stream(text: string, stops: readonly string[]): Promise<{ parts: string[]; text: string; at: number }> {
  const out = new TextStream(bytes, stops);
  const parts: string[] = [];
  const ids = [...Buffer.from(text)];
  for (const [at, id] of ids.entries()) {
    const { added, isStopped } = await out.push(id);
    parts.push(added);
    if (isStopped) return { parts, text: out.text, at };
  }
  parts.push(await out.end());
  return { parts, text: out.text, at: ids.length };
}

describe('the text of tokens', () => {
  it('shows whole characters only', async () => {
    const { parts, text } = await stream('aé€😀', []);
    expect(text).toBe('aé€😀');
    expect(parts.filter((part) => part !== '')).toEqual(['a', 'é', '€', '😀']);
  });

  it('shows bytes that never become a character at the end', async () => {
    const out = new TextStream(bytes);
    expect(await out.push(0xe2)).toEqual({ added: '', isStopped: false });
    expect(await out.end()).toBe('\uFFFD');
  });

  it('ends before the first stop string, none of which is ever shown', async () => {
    expect(await stream('one\n\ntwo', ['\n\n'])).toMatchObject({ text: 'one', at: 4 });
    expect(await stream('abcabd', ['abd', 'zzz'])).toMatchObject({ text: 'abc', at: 5 });
    expect(await stream('ab', ['abc'])).toMatchObject({ text: 'ab', at: 2 });
  });

  it('ends where strings that overlap cut it one after the other, as the public harness does', async () => {
    expect(await stream('one\nQ: two', ['Q:', '\nQ:'])).toMatchObject({ text: 'one\n', at: 5 });
    expect(await stream('one\nQ: two', ['\nQ:', 'Q:'])).toMatchObject({ text: 'one', at: 5 });
    // The second is whole before what the first leaves.
    const out = new TextStream((ids) => Promise.resolve(ids.length === 0 ? '' : 'a, b; c'), ['; c', ',']);
    expect(await out.push(0)).toEqual({ added: 'a', isStopped: true });
  });
});
