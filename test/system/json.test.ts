import { describe, expect, it } from 'vitest';
import { isDeeperThan, MAX_JSON_DEPTH, parseJson, quote } from '../../system/json.js';

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

describe('quote', () => {
  it('shows values that cannot be printed', () => {
    expect(quote(JSON.parse(nested(100_000)))).toBe('(nested too deeply to show)');
    expect(quote(undefined)).toBe('nothing');
    expect(quote(JSON.parse('[1e400, -1e400, "Infinity"]'))).toBe('[Infinity,-Infinity,"Infinity"]');
    expect(quote('\u202eabc')).toBe('"\\u202eabc"');
  });
});
