/** What a template cannot make a run do: values whose size grows faster than what is written of them. */
import { describe, expect, it } from 'vitest';
import { bytesOf } from '../../../tasks/python/shown.js';
import type { Value } from '../../../tasks/python/value.js';
import { Template } from '../../../tasks/template/template.js';

const FIELDS = new Map<string, Value>([
  ['x', bytesOf(Buffer.alloc(100_000))],
  ['big', 'b'.repeat(4_000_000)],
]);
const tuple = (depth: number): string => (depth === 0 ? '1' : `(${tuple(depth - 1)},)`);

describe('work that is bounded', () => {
  it.each([
    ['bytes that share memory', '{{ ([x] * 10000)|string }}', 'more than 1000000 steps'],
    ['bytes as JSON', '{{ x|tojson }}', 'bytes is nothing that JSON has'],
    ['long paths', "{{ range(100)|map(attribute='.' * 1000, default=0)|list }}", 'named by more than 256 letters'],
    ['a filter of long texts', "{{ ([big] * 1000)|map('trim')|list|length }}", 'more than 1000000 steps'],
    ['many groups', `{{ ('a' * 400)|regex_replace('a()', '\\\\1' * 300000) }}`, 'at most 256 parts'],
    ['groups of many matches', `{{ ('a' * 100000)|regex_replace('a()', '\\\\1' * 100) }}`, 'longer than 16777216'],
  ])('%s', (_what, template, message) => {
    const started = performance.now();
    expect(() => new Template(template, 'a.yaml:1').render(FIELDS, 'document 0')).toThrow(message);
    expect(performance.now() - started).toBeLessThan(5000);
  });

  it('nested tuples that are told apart', () => {
    const template = new Template(`{{ [${tuple(40)}, ${tuple(40)}]|unique|list|length }}`, 'a.yaml:1');
    expect(template.render(FIELDS, 'document 0')).toBe('1');
  });

  it('writes bytes as Python does', () => {
    expect(bytesOf(Buffer.from("it's\n\u00e9")).code).toBe(`b"it's\\n\\xc3\\xa9"`);
    expect(bytesOf(Buffer.from(`'"`)).text).toBe(`b'\\'"'`);
  });
});
