import { describe, expect, it } from 'vitest';
import { FileRegex } from '../../python/regex.js';
import { expectLinear } from '../support/growth.js';
import { casesHere } from '../support/thorough.js';

const fail = (problem: string): Error => new Error(problem);

describe('FileRegex', () => {
  const ENDLESS: readonly (readonly [string, string])[] = [
    ['optional letters', '[^!]?'.repeat(40) + '!!!'],
    ['bounded repetitions', '[^!]{0,64}'.repeat(8) + '!!!'],
    ['alternatives of different lengths', '(?:a|aa)'.repeat(40) + '!!!'],
    ['a group behind a bracket within a class', '[[a](a+)+!]]'],
  ];
  it.each(casesHere(ENDLESS, 0))('ends with a line where %s take for ever', (_, pattern) => {
    const text = 'a'.repeat(200);
    const regex = new FileRegex(pattern, fail);
    expect(() => regex.first(text)).toThrow('takes more than 1 s to match');
  });

  it('removes what an expression with flags of Python matches', () => {
    expect(new FileRegex('(?s).*#### ', fail).without('two\nlines #### 7')).toBe('7');
  });

  // What CPython 3.11 gives.
  it.each([
    ['.*?', 'ab', ['', 'a', '', 'b', '']],
    ['a*?', 'aab', ['', 'a', '', 'a', '', '']],
    ['(|a)\\1', 'aa', ['', 'a', '']],
    ['(?P<x>|a)', 'aa', ['', 'a', '', 'a', '']],
    ['a*', 'baac', ['', 'aa', '', '']],
    ['$', '\u{1f600}\u{1f600}x', ['']],
    ['(?m)^', '\u{1f600}\n\u{1f600}', ['', '']],
    ['x{,}', 'axx', ['', 'xx', '']],
    ['\\B', '', []],
    ['\\B', 'ab', ['']],
  ])('goes on behind an empty match as Python does: %s in %j', (pattern, text, found) =>
    expect(new FileRegex(pattern, fail).findAll(text)).toEqual(found),
  );

  it('removes what follows an empty match at the same place', () =>
    expect(new FileRegex('.*?', fail).without('all of it')).toBe(''));

  it('goes on behind empty matches of a long text in time that grows with it, or says that it takes too long', () => {
    // An empty match that compared what is left of the text would make this quadratic.
    expectLinear((size) => () => new FileRegex('x?', fail).without('a'.repeat(size)), 20_000);
    expect(new FileRegex('x?', fail).without('a'.repeat(1000))).toBe('a'.repeat(1000));
    // 10^12 steps, whatever the machine.
    expect(() => new FileRegex('x?(?<!b)', fail).without('a'.repeat(1_000_000))).toThrow('takes more than 1 s');
  });

  it('finds the numbers of a long text', () => {
    const regex = new FileRegex('(-?[$0-9.,]{2,})|(-?[0-9]+)', fail);
    expect(regex.matches('so 7 of 12 '.repeat(1000))).toHaveLength(2000);
  });
});
