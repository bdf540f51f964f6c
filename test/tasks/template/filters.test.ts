/** Filters and methods of templates. Jinja2 3.1.6, set as the public harness sets it, rendered every expected text. */
import { describe, expect, it } from 'vitest';
import type { Value } from '../../../tasks/python/value.js';
import { Template } from '../../../tasks/template/template.js';

const dict = (entries: Readonly<Record<string, Value>>): Map<string, Value> => new Map(Object.entries(entries));

const DOC = dict({
  ch: ['a', "b's", 'c"d'],
  n: 7,
  none: null,
  d: dict({ x: 1, k: dict({ z: [1, 2] }) }),
  lst: [dict({ k: 'v1', n: 1 }), dict({ k: 'v2', n: 2 })],
  z: [
    [1, 2],
    [3, 4],
  ],
  uni: 'ΑΣ ﬁx ǆa',
});

const GROUPS: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
  [
    'filters',
    [
      ['{{ missing|default }}', ''],
      ["{{ missing|default('x', true) }}", 'x'],
      ["{{ ''|default('x', true) }}", 'x'],
      ["{{ ''|default('x') }}", ''],
      ['{{ 0|d(boolean=true, default_value=3) }}', '3'],
      ["{{ d.nope|d('q') }}", 'q'],
      ["{{ none|default('x') }}", 'None'],
      ["{{ ['b', 'A', 'c']|sort }}", "['A', 'b', 'c']"],
      ["{{ ['b', 'A', 'c']|sort(true) }}", "['c', 'b', 'A']"],
      ["{{ ['b', 'A']|sort(case_sensitive=true) }}", "['A', 'b']"],
      ["{{ lst|sort(attribute='n', reverse=true) }}", "[{'k': 'v2', 'n': 2}, {'k': 'v1', 'n': 1}]"],
      ['{{ d|sort }}', "['k', 'x']"],
      ["{{ ['b', 'A', 'a', 'B']|unique|list }}", "['b', 'A']"],
      ['{{ [1, 1.0, true, 2]|unique|list }}', '[1, 2]'],
      ["{{ lst|unique(attribute='k')|list|length }}", '2'],
      ['{{ [(1, 2), (1, 2)]|unique|list }}', '[(1, 2)]'],
      ["{{ 'abc'|reverse }}", 'cba'],
      ['{{ [1, 2]|reverse|list }}', '[2, 1]'],
      ["{{ 'abc'|first }}", 'a'],
      ["{{ 'abc'|last }}", 'c'],
      ['{{ d|first }}', 'x'],
      ['{{ []|first is defined }}', 'False'],
      ["{{ ch|map('upper')|list }}", "['A', \"B'S\", 'C\"D']"],
      ["{{ ch|map('replace', 'a', 'X')|join('-') }}", 'X-b\'s-c"d'],
      ["{{ lst|map(attribute='zz', default='w')|list }}", "['w', 'w']"],
      ['{{ z|map(attribute=1)|list }}', '[2, 4]'],
      ["{{ z|map('sum')|list }}", '[3, 7]'],
      ["{% if []|map('upper') %}y{% endif %}{{ none|map('upper')|list }}", 'y[]'],
      ["{{ 'hello wOrld-foo (bar) x_y it\\'s'|title }}", "Hello World-Foo (Bar) X_y It's"],
      ["{{ 'wOrld-foo it\\'s x2y'.title() }}", "World-Foo It'S X2Y"],
      ['{{ uni.title() }}', 'Ας Fix ǅa'],
      ['{{ uni|title }}', 'Ασ FIx Ǆa'],
      ["{{ 'ΑΣ\u0361'.title() }}", 'Ας\u0361'],
      ["{{ 'one two,three it\\'s a_b é'|wordcount }}", '7'],
      ['{{ 5|upper }}', '5'],
      ['{{ none|capitalize }}', 'None'],
      [
        "{{ {'b': 1, 'a': [1.0, none, true, \"<&'>é😀\"]}|tojson }}",
        '{"a": [1.0, null, true, "\\u003c\\u0026\\u0027\\u003e\\u00e9\\ud83d\\ude00"], "b": 1}',
      ],
      ['{{ [1, 2]|tojson(2) }}', '[\n  1,\n  2\n]'],
      ['{{ {}|tojson(indent=2) }}', '{}'],
      ["{{ {'b': {'c': []}}|tojson(indent=1) }}", '{\n "b": {\n  "c": []\n }\n}'],
      ["{{ (1, 2)|tojson ~ '<' }}", '[1, 2]<'],
      ["{{ 'a  b'|regex_replace('\\\\s+', '_') }}", 'a_b'],
      ["{{ 'abc'|regex_replace('(?P<x>b)', '\\\\g<x>\\\\g<1>\\\\g<0>\\\\n\\\\1|') }}", 'abbb\nb|c'],
      ["{{ 'aaa'|regex_replace('a', 'b', 1) }}", 'baa'],
      ["{{ 'abxd'|regex_replace('x*', '-') }}", '-a-b--d-'],
      ["{{ 'a'|regex_replace('(b)?a', '<\\\\1>$&') }}", '<>$&'],
      ["{{ 'a'|regex_replace('a', '\\\\. \\\\\\\\ \\\\-') }}", '\\. \\ \\-'],
      ["{{ lst|join(', ', attribute='k') }}", 'v1, v2'],
      ["{{ [1, 2]|join(d='-') }}", '1-2'],
      ['{{ [3, 1, 2]|max }}', '3'],
      ['{{ [3, 1]|min }}', '1'],
      ["{{ lst|sum(attribute='n') }}", '3'],
      ['{{ [3, 1.5]|sum }}', '4.5'],
      ["{{ lst|selectattr('n', 'equalto', 1)|list }}", "[{'k': 'v1', 'n': 1}]"],
      ["{{ lst|rejectattr('n', 'gt', 1)|map(attribute='k')|join }}", 'v1'],
      ["{{ [1, 2, 3]|select('odd')|list }}", '[1, 3]'],
      ["{{ [0, 1, '']|select|list }}", '[1]'],
    ],
  ],
  [
    'methods',
    [
      ["{{ ' a  b c '.split(none, 1) }}", "['a', 'b c ']"],
      ["{{ ' a  b c '.split(none, 3) }}", "['a', 'b', 'c']"],
      ["{{ 'a,b,c'.split(',', maxsplit=1) }}", "['a', 'b,c']"],
      ["{{ 'a,b,c'.rsplit(',', 1) }}", "['a,b', 'c']"],
      ["{{ 'a\\nb\\r\\nc\\x0bd\\x85f\\n'.splitlines() }}", "['a', 'b', 'c', 'd', 'f']"],
      ["{{ 'a\\nb'.splitlines(true) }}", "['a\\n', 'b']"],
      ["{{ ''.splitlines() }}", '[]'],
      ["{{ '{} {}'.format(1, none) }}", '1 None'],
      ["{{ '{0}{1}{0}'.format('a', 'b') }}", 'aba'],
      ["{{ '{x}{{}}'.format(x=1.0) }}", '1.0{}'],
      ["{{ '{}'.format([1, 'a']) }}", "[1, 'a']"],
      ["{{ 'abcabc'.find('c') }}", '2'],
      ["{{ 'abc'.find('c', 1) }}", '2'],
      ["{{ 'abcabc'.rfind('c') }}", '5'],
      ["{{ 'abcabc'.count('bc') }}", '2'],
      ["{{ 'abc'.count('') }}", '4'],
      ["{{ 'x'.find('y') }}", '-1'],
      ['{{ [1, 2, 1].count(1) }}', '2'],
      ["{{ d.get('x') }}", '1'],
      ["{{ d.get('zz') }}", 'None'],
      ["{{ d.get('zz', 3) }}", '3'],
      ["{{ 'a'.startswith(('b', 'a')) }}", 'True'],
      ["{{ 'abc'.removeprefix('a') }}", 'bc'],
      ["{{ 'abc'.removesuffix('c') }}", 'ab'],
    ],
  ],
];

describe.each(GROUPS)('%s', (_group, cases) => {
  it.each(cases)('renders %j', (source, expected) => {
    expect(new Template(source, 'a.yaml:3: doc_to_text').render(DOC, 'document 5')).toBe(expected);
  });
});
