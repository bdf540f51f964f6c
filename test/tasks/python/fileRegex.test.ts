import { describe, expect, it } from 'vitest';
import { FileRegex } from '../../../tasks/python/fileRegex.js';

const fail = (problem: string): Error => new Error(problem);

describe('FileRegex', () => {
  it.each([
    ['optional letters', '[^!]?'.repeat(40) + '!!!'],
    ['bounded repetitions', '[^!]{0,64}'.repeat(8) + '!!!'],
    ['alternatives of different lengths', '(?:a|aa)'.repeat(40) + '!!!'],
    ['a group behind a bracket within a class', '[[a](a+)+!]]'],
  ])('ends with a line where %s take for ever', (_, pattern) => {
    const text = 'a'.repeat(200);
    const regex = new FileRegex(pattern, fail);
    expect(() => regex.first(text)).toThrow('takes more than 1 s to match');
  });

  it('removes what an expression with flags of Python matches', () => {
    expect(new FileRegex('(?s).*#### ', fail).without('two\nlines #### 7')).toBe('7');
  });

  it('finds the numbers of a long text', () => {
    const regex = new FileRegex('(-?[$0-9.,]{2,})|(-?[0-9]+)', fail);
    expect(regex.matches('so 7 of 12 '.repeat(1000))).toHaveLength(2000);
  });
});
