/** How Python 3.11 shows values, and how ast.literal_eval reads them back. */
import { describe, expect, it } from 'vitest';
import { literalEval } from '../../python/literal.js';
import { bytesOf, dumpJson, repr, showFloat } from '../../python/show.js';
import { Float, isEqual, type PyValue } from '../../python/value.js';

describe('values as Python shows them', () => {
  it.each([
    [1, '1.0'],
    [0.1, '0.1'],
    [-0, '-0.0'],
    [1e16, '1e+16'],
    [123456789012345680, '1.2345678901234568e+17'],
    [1234567890123456, '1234567890123456.0'],
    [0.0001, '0.0001'],
    [0.00012345, '0.00012345'],
    [0.00001, '1e-05'],
    [1e300, '1e+300'],
    [Infinity, 'inf'],
  ])('float %d is %s', (value, expected) => {
    expect(showFloat(value)).toBe(expected);
  });

  const values: readonly (readonly [PyValue, string])[] = [
    [['a', "it's", 'say "x"', `both ' and "`], `['a', "it's", 'say "x"', 'both \\' and "']`],
    ['\n\t\\\x00\x7f\u00a0é\u200b\u2028😀', `'\\n\\t\\\\\\x00\\x7f\\xa0é\\u200b\\u2028😀'`],
    [
      new Map<string, PyValue>([
        ['k', null],
        ['l', [true, 1, new Float(1)]],
      ]),
      `{'k': None, 'l': [True, 1, 1.0]}`,
    ],
    [12345678901234567890n, '12345678901234567890'],
  ];
  it.each(values)('repr %#', (value, expected) => {
    expect(repr(value)).toBe(expected);
    expect(isEqual(literalEval(expected), value)).toBe(true);
  });

  it('dumps JSON with two spaces', () => {
    expect(dumpJson(new Map<string, PyValue>([['a', ['é"\u0001', []]]]))).toBe(
      '{\n  "a": [\n    "é\\"\\u0001",\n    []\n  ]\n}',
    );
  });
});

describe('literalEval', () => {
  it.each([
    ["('a', )", ['a']],
    ["('a')", 'a'],
    ['\'a\' "b"', 'ab'],
    ['[-1, +2, 0]', [-1, 2, 0]],
    ["r'\\n'", '\\n'],
    ["'\\x41\\u00e9\\101'", 'AéA'],
  ])('reads %s', (text, expected) => {
    expect(literalEval(text)).toEqual(expected);
  });

  it.each([
    ['007', 'does not start with 0'],
    ['[1, 2', '"]" is missing'],
    ['[1 2]', '"]" is missing'],
    ['a', 'is no literal'],
    ['print(1)', 'is no literal'],
    ['1 + 1', 'follows the literal'],
    ['', 'ends too early'],
    ["'a", 'is no literal'],
    ['[]'.replace('[', '['.repeat(100)), 'nests more than 50 deep'],
  ])('refuses %j', (text, message) => {
    expect(() => literalEval(text)).toThrow(SyntaxError);
    expect(() => literalEval(text)).toThrow(message);
  });
});

it('bytes are written as Python writes them', () => {
  expect(bytesOf(Buffer.from("it's\n\u00e9")).code).toBe(`b"it's\\n\\xc3\\xa9"`);
  expect(bytesOf(Buffer.from(`'"`)).text).toBe(`b'\\'"'`);
});
