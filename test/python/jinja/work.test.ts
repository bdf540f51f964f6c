/** What a template may take: each of these is refused before it takes memory, and soon. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { bytesOf } from '../../../python/show.js';
import type { PyValue } from '../../../python/value.js';
import { Template } from '../../../tasks/requests/keys.js';

const DOC = new Map<string, PyValue>([
  ['x', 5],
  ['bytes', bytesOf(Buffer.alloc(100_000))],
]);
const render = (source: string): string => new Template(source, 'a.yaml:3: doc_to_text').render(DOC, 'document 5');

const STEPS = 'more than 1000000 steps';
const LONG = 'a result is longer than 16777216 characters';
const ITEMS = 'a result has more than 1048576 items';
/** A list that shares its parts: small, and endless to whoever visits each part as often as it occurs. */
const SHARED = '{% set a = [1] %}' + '{% set a = [a, a] %}'.repeat(40);
const text = (part: string, length = 16_000_000): string => `('${part}' * ${length})`;
const tuple = (depth: number): string => (depth === 0 ? '1' : `(${tuple(depth - 1)},)`);
const often = (work: string): string => `{% for i in range(30000) %}{% set y = ${work} %}{% endfor %}`;

/** A text and a part of it that is found at no place, or at the last one looked at, after long beginnings of it. */
const alike = (search: string): string =>
  `{% set x = ${text('a', 2_000_000)} %}{% set y = x[:500000] %}{{ ${search} }}`;

describe('a search', () => {
  it.each([
    ["x.find(y ~ 'b' ~ y)", '-1'],
    ["x.find(y ~ 'b')", '-1'],
    ["x.rfind(y ~ 'b')", '-1'],
    ["x.rfind('b' ~ y)", '-1'],
    ["x.count(y ~ 'b' ~ y)", '0'],
    ["(y ~ 'b' ~ y) in x", 'False'],
    ["x.replace(y ~ 'b', '')|length", '2000000'],
    ["x.rsplit(y ~ 'b', 1)|length", '1'],
    ["x.rpartition(y ~ 'b')|map('length')|list", '[0, 0, 2000000]'],
    ['x.count(y)', '4'],
    ['x.rfind(y)', '1500000'],
    ["('<!--' * 250000)|striptags|length", '1000000'],
    ["('<' * 1000000)|striptags|length", '1000000'],
  ])('takes time of both lengths added: %s', (search, found) => {
    expect(render(alike(search))).toBe(found);
  });
});

describe('Template', () => {
  it.each([
    ['{% set y = [[1]*1000]*1000 %}{% set z = [y]*1000 %}{{ z|string|length }}', STEPS],
    [`${SHARED}{{ a }}`, STEPS],
    [`${SHARED}{{ a|tojson }}`, STEPS],
    [`${SHARED}{% set b = a + [] %}{{ a == b }}`, STEPS],
    [`${SHARED}{{ a < a + [] }}`, STEPS],
    [`${SHARED}{{ [a + [], a + []]|sort }}`, STEPS],
    [`{% set a = 1 %}${'{% set a = [a] %}'.repeat(5000)}{{ a }}`, 'a value nests more than 250 deep'],
    [`{{ ${text('a')}.replace('a', ${text('b')}) }}`, STEPS],
    [`{{ ${text('a', 100_000)}.replace('a', ${text('b')}) }}`, LONG],
    [`{{ ${text('a', 100_000)}|replace('', ${text('b')}) }}`, LONG],
    [`{{ ${text('b', 1_000_000)}.join(${text('a', 1_000_000)}) }}`, LONG],
    [`{{ ${text('a', 1_000_000)}|join(${text('b', 1_000_000)}) }}`, LONG],
    [`{{ ${text('{0}', 100)}.format(${text('b', 1_000_000)}) }}`, LONG],
    [`{{ ${text('a')} ~ ${text('a')} }}`, LONG],
    [`{{ ${text('a')}|list|length }}`, ITEMS],
    [`{{ [1] * 1000000000 }}`, ITEMS],
    [`{{ ${text('a,', 8_000_000)}.split(',')|length }}`, STEPS],
    [`{{ ${text('a ', 8_000_000)}.split()|length }}`, STEPS],
    [`{{ ${text('\\n')}.splitlines()|length }}`, STEPS],
    [`{{ ${text('a ', 8_000_000)}|wordcount }}`, STEPS],
    [`{{ ([${text('a', 1_000_000)}] * 1000)|sort|length }}`, STEPS],
    [`{{ ${text('a', 1_000_000)}|regex_replace('', ${text('b', 1000)}) }}`, LONG],
    [`{{ (${text('a', 30)} ~ 'c')|regex_replace('(a+)+$', 'x') }}`, 'regex_replace takes more than 1 s'],
    ['{{ ([bytes] * 10000)|string }}', STEPS],
    ['{{ bytes|tojson }}', 'Object of type bytes is not JSON serializable'],
    ["{{ range(100)|map(attribute='.' * 1000, default=0)|list }}", 'a path of more than 256 letters'],
    [`{% set x = ${text('b', 4_000_000)} %}{{ ([x] * 1000)|map('trim')|list|length }}`, STEPS],
    [`{{ ${text('a', 400)}|regex_replace('a()', ${text('\\\\1', 300_000)}) }}`, 'at most 256 parts'],
    [`{{ ${text('a', 100_000)}|regex_replace('a()', ${text('\\\\1', 100)}) }}`, LONG],
    ['{{ 10 ** 10000000 }}', 'a number is too large'],
    ['{{ 1e300 ** 2 }}', 'a number is too large'],
    ['{{ 1.5 ** 1000000 }}', 'Numerical result out of range'],
    [`{% set x = ${text('a', 1_000_000)} %}${often("x.replace('', 'b')")}`, STEPS],
    [`{% set x = ${text('a', 1_000_000)} %}${often('x.upper()')}`, STEPS],
    [`{% set x = ${text('a', 1_000_000)} %}${often('x|trim')}`, STEPS],
    [`${SHARED}{% set b = a + [] %}{{ [a].count(b) }}`, STEPS],
    [`${SHARED}{% set b = a + [] %}{{ [a].index(b) }}`, STEPS],
    [`{% set a = (1,) %}${'{% set a = (a, a) %}'.repeat(40)}{{ {a: 1} }}`, STEPS],
    [`{% set a = (1,) %}${'{% set a = (a, a) %}'.repeat(40)}{{ {}[a] is defined }}`, STEPS],
    [`{% set a = (1,) %}${'{% set a = (a, a) %}'.repeat(40)}{{ {}.get(a) }}`, STEPS],
    [`{% set a = (1,) %}${'{% set a = (a, a) %}'.repeat(40)}{{ a is filter }}`, STEPS],
    [`${SHARED}{% set b = a + [] %}{% for c in [a, b] %}{{ loop.changed(c) }}{% endfor %}`, STEPS],
    [`{% set x = range(100000)|list %}${often("x.count('a')")}`, STEPS],
    [`{% set x = ${text('a', 1_000_000)} %}{{ x ~ 'b' in [x ~ 'c'] * 1000000 }}`, STEPS],
    ...['x|length', 'x[0]', 'x[0:1]', 'x.isspace()', "x.startswith(x ~ 'b')", "x.removeprefix(x ~ 'b')"].map(
      (work): [string, string] => [`{% set x = ${text(' ', 1_000_000)} %}${often(work)}`, STEPS],
    ),
    [`{% set x = ${text('a', 1_000_000)} %}${often('x|wordwrap(10)')}`, STEPS],
    [`{% set x = ${text('\u00e9', 1_000_000)} %}${often('x|urlencode')}`, STEPS],
    [`{% set x = ${text('9', 4300)} %}${often('x|int')}`, STEPS],
    [often('9999999 ** 600 * 9999999 ** 60'), STEPS],
    [`{{ ${'[x is in '.repeat(500)}x${']'.repeat(500)} }}`, 'nests more than 100 deep'],
    [`{% for ${'('.repeat(500)}x${')'.repeat(500)} in x %}`, 'nests more than 100 deep'],
  ])('ends work, case %#', (source, message) => {
    let error: unknown;
    try {
      render(source);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(UserError);
    expect((error as UserError).message).toMatch(/^a\.yaml:3: doc_to_text/);
    expect((error as UserError).message).toContain(message);
  });

  it('tells nested tuples apart in time that grows with them', () => {
    expect(render(`{{ [${tuple(40)}, ${tuple(40)}]|unique|list|length }}`)).toBe('1');
  });
});
