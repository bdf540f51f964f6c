import { describe, expect, it } from 'vitest';
import { isDeeperThan, MAX_JSON_DEPTH, parseJson, parsePythonJson, printPythonJson, quote } from '../../system/json.js';
import { isThorough } from '../support/thorough.js';

const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

describe('parseJson', () => {
  it('parses what real files contain', () => {
    expect(parseJson('{"a":[1,{"b":"[[[{"}]}', 'x.json')).toEqual({ a: [1, { b: '[[[{' }] });
    expect(parseJson(nested(MAX_JSON_DEPTH), 'x.json')).toHaveLength(1);
  });

  it('refuses deep nesting before parsing it, and says where', () => {
    for (const depth of [MAX_JSON_DEPTH + 1, 50_000]) {
      expect(() => parseJson(nested(depth), 'set.jsonl:7', 'look')).toThrow('set.jsonl:7: nested more than 200 deep');
      expect(() => parseJson(`{"x":${nested(depth)}}`, 'set.jsonl:7')).toThrow(/nested/);
    }
    // This is not even valid: a header of nothing but brackets costs one pass.
    expect(() => parseJson('['.repeat(20_000_000), 'x')).toThrow(/nested/);
  });

  it('counts only brackets outside strings', () => {
    expect(isDeeperThan(`["${'['.repeat(300)}"]`, 200)).toBe(false);
    expect(isDeeperThan(`["\\"${'['.repeat(300)}\\\\", "]"]`, 200)).toBe(false);
    expect(isDeeperThan(`["\\\\", ${nested(300)}]`, 200)).toBe(true);
    expect(isDeeperThan(`"${'['.repeat(300)}`, 200)).toBe(false);
    expect(isDeeperThan('[],'.repeat(1000), 200)).toBe(false);
  });

  it('says what is wrong on one safe line', () => {
    expect(() => parseJson('{"a": \u001b[31m}', 'x.json')).toThrow(/^x\.json: not valid JSON: [^\u001b\n]*$/);
  });
});

describe('parsePythonJson', () => {
  it('reads the words that Python writes as the numbers that they are, and no other', () => {
    const text = '{"a": NaN, "b": [Infinity, -Infinity , NaN], "NaN": "NaN, Infinity", "c": "\\"NaN", "d": {"e": NaN}}';
    expect(parsePythonJson(text, 'x')).toEqual({
      a: NaN,
      b: [Infinity, -Infinity, NaN],
      NaN: 'NaN, Infinity',
      c: '"NaN',
      d: { e: NaN },
    });
    expect(parsePythonJson('NaN', 'x')).toBeNaN();
    expect(parsePythonJson('-Infinity', 'x')).toBe(-Infinity);
    expect(parsePythonJson('["NaN", "1e999", NaN]', 'x')).toEqual(['NaN', '1e999', NaN]);
  });

  it.each([
    '-NaN',
    '+NaN',
    'nan',
    'NaNs',
    'inf',
    'INFINITY',
    'Infinity5',
    '5Infinity',
    '1.Infinity',
    '{NaN: 1}',
    '{ NaN : 1}',
    '{Infinity: 1}',
    '[NaN',
    'NaN NaN',
    '"NaN',
    '[-, NaN]',
  ])('refuses %s, as Python does', (text) => {
    expect(() => parsePythonJson(text, 'x.json', 'look')).toThrow(/^x\.json: not valid JSON: [^\n]*$/);
  });

  it('takes the last of equal keys and leaves prototypes alone', () => {
    const text = '{"a": 1, "__proto__": {"polluted": NaN}, "constructor": Infinity, "a": NaN}';
    const value = parsePythonJson(text, 'x') as Record<string, unknown>;
    expect(Object.keys(value)).toEqual(['a', '__proto__', 'constructor']);
    expect(value['a']).toBeNaN();
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(Reflect.get({}, 'polluted')).toBeUndefined();
  });

  it('reads what printPythonJson writes', () => {
    const value = { a: [NaN, -Infinity, 1e-7], b: { c: Infinity, d: 'NaN' }, e: null };
    expect(printPythonJson(value)).toBe('{"a":[NaN,-Infinity,1e-7],"b":{"c":Infinity,"d":"NaN"},"e":null}');
    expect(parsePythonJson(printPythonJson(value, 2), 'x')).toEqual(value);
  });

  it('is bounded in words', () => {
    const words = (count: number): string => `[${'NaN,'.repeat(count)}0]`;
    const many = isThorough ? 1 << 20 : 1 << 14;
    expect(parsePythonJson(words(many), 'x')).toHaveLength(many + 1);
    expect(() => parsePythonJson(words((1 << 20) + 1), 'x')).toThrow('x: NaN or Infinity more than 1048576 times');
  });

  it('is bounded in depth', () => {
    const deep = `${'['.repeat(MAX_JSON_DEPTH)}NaN${']'.repeat(MAX_JSON_DEPTH)}`;
    expect(parsePythonJson(deep, 'x')).toHaveLength(1);
    expect(() => parsePythonJson(`[${deep}]`, 'x')).toThrow('x: nested more than 200 deep');
  });
});

describe('quote', () => {
  it('shows values that cannot be printed', () => {
    expect(quote(JSON.parse(nested(100_000)))).toBe('(nested too deeply to show)');
    expect(quote(undefined)).toBe('nothing');
    expect(quote(JSON.parse('[1e400, -1e400, "Infinity"]'))).toBe('[Infinity,-Infinity,"Infinity"]');
    expect(quote('\u202eabc')).toBe('"\\u202eabc"');
  });
});
