/** What templates make of a document. Jinja2 3.1.6, set as the public harness sets it, rendered every expected text. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { Float, type PyValue } from '../../../python/value.js';
import { Template } from '../../../tasks/requests/keys.js';

const dict = (entries: Readonly<Record<string, PyValue>>): Map<string, PyValue> => new Map(Object.entries(entries));

const DOC = dict({
  question: '  What\'s "up"?\n',
  text: 'one two three',
  choices: dict({ text: ['a', "b's", 'c"d'], label: ['A', 'B', 'C'] }),
  answerKey: 'B',
  label: '2',
  n: 7,
  neg: -7,
  f: new Float(1),
  g: new Float(2.5e-7),
  big: 12345678901234567890n,
  flag: true,
  none: null,
  items: [dict({ name: 'x', w: 1 }), dict({ name: 'y', w: 2 })],
  sol1: 's1',
  sol2: 's2',
  emoji: 'a\u{1f600}b',
  empty: [],
  uni: '\u00a0x\u2028',
});

const CASES: readonly (readonly [string, string])[] = [
  ['plain\n', 'plain\n'],
  ['{{question}}', '  What\'s "up"?\n'],
  ['{{question.strip()}}\nA. {{choices.text[0]}}\n', 'What\'s "up"?\nA. a\n'],
  ['{{choices.label.index(answerKey)}}', '1'],
  ['{{choices.text}}', "['a', \"b's\", 'c\"d']"],
  ['{{[sol1, sol2]}}', "['s1', 's2']"],
  ['{{ (label|int) - 1 }}', '1'],
  ["{{text.split(' ')[:-1]|join(' ')}}", 'one two'],
  ["{{' '+text.split(' ')[-1]}}", ' three'],
  ["{{choices['text'][2]}}", 'c"d'],
  ["{{ 'ABCD'[answerKey|int - 1] if answerKey|string in '1234' else answerKey }}", 'B'],
  ["{{answer.split('####')[-1].strip() if answer is defined else text}}", 'one two three'],
  ["{% set p = 'Q:\n' %}{{p + 'x\\n' + question}}", 'Q:\nx\n  What\'s "up"?\n'],
  ['{% if choices.text|length > 3 %}D{% elif n == 7 %}seven{% else %}E{% endif %}!', 'seven!'],
  [
    '{% for c in choices.text %}{{loop.index}}. {{c}}{% if not loop.last %}\n{% endif %}{% endfor %}',
    '1. a\n2. b\'s\n3. c"d',
  ],
  ["{% for k, v in [['a',1],['b',2]] %}{{k}}={{v}};{% else %}none{% endfor %}", 'a=1;b=2;'],
  ['{% for x in empty %}{{x}}{% else %}nothing{% endfor %}', 'nothing'],
  ["{{items|map(attribute='name')|list}}", "['x', 'y']"],
  ["{{items|map(attribute='w')|join('+')}}", '1+2'],
  ['{{f}} {{g}} {{big}} {{flag}} {{none}} {{neg}}', '1.0 2.5e-07 12345678901234567890 True None -7'],
  ['{{[f,none,flag,question,uni]}}', "[1.0, None, True, '  What\\'s \"up\"?\\n', '\\xa0x\\u2028']"],
  ["{{ {'a': 1, 'b': [none]} }}", "{'a': 1, 'b': [None]}"],
  ['{{emoji|length}}{{emoji[1]}}{{emoji[::-1]}}{{emoji[1:]}}', '3\ud83d\ude00b\ud83d\ude00a\ud83d\ude00b'],
  [
    "{{neg // 2}} {{neg % 3}} {{n / 2}} {{n * 2}} {{-n + 1}} {{'ab' * 2}} {{ 1 ~ 'x' ~ none }}",
    '-4 2 3.5 148 abab 1xNone',
  ],
  [
    "{{ 1 < 2 < 3 }} {{ 'a' not in 'abc' }} {{ n in [7] }} {{ not flag }} {{ flag and n }} {{ none or 'd' }}",
    'True False True False 7 d',
  ],
  [
    "{{question|trim}}|{{'xxaxx'|trim('x')}}|{{'xxaxx'.strip('x')}}|{{' a '.lstrip()}}|{{' a '.rstrip()}}",
    'What\'s "up"?|a|a|a | a',
  ],
  [
    "{{text|replace('o','0')}} {{text.replace('e','3',1)}} {{text.capitalize()}} {{text|upper}}",
    '0ne tw0 three on3 two three One two three ONE TWO THREE',
  ],
  [
    "{{ ', '.join(choices.label) }} {{text.split()}} {{text.split('e', 1)}} {{'abc'|list}}",
    "A, B, C ['one', 'two', 'three'] ['on', ' two three'] ['a', 'b', 'c']",
  ],
  [
    '{{none is none}} {{n is not none}} {{zzz is defined}} {{zzz is undefined}} {{choices.zzz is defined}}',
    'True True False True False',
  ],
  ['a  {%- if true %}  b {{- n -}}  c {%+ endif -%}\n d {# note #} e {#- x -#} f', 'a  b7c d  ef'],
  ['{{range(3)|list}} {{range(5, 0, -2)|list}}', '[0, 1, 2] [5, 3, 1]'],
  ["{{ 'it\\'s' }} {{ \"q\\\"\" }} {{ '\\u00e9\\x41\\t' }}", 'it\'s q" \u00e9A\t'],
  ["{{ '5'|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ '2.7'|int }} {{ 2.7|int }} {{ ' 4 '|int }}", '5 0 9 2 2 4'],
  ['{{ 1.5 + 1 }} {{ 1e3 }} {{ 10.0 }} {{ 3 == 3.0 }}', '2.5 1000.0 10.0 True'],
  ['{% set x = [] %}{% for i in range(2) %}{% set x = i %}{% endfor %}{{x}}', '[]'],
  ['{{ n if flag }}x', '7x'],
  ['{{ choices.label[-1] }}{{choices.text.0}}', 'Ca'],
  ['{{ text[4:7] }}{{ text[-5:] }}', 'twothree'],
  ['{{ choices.values()|list }}{{choices.keys()|list}}', "[['a', \"b's\", 'c\"d'], ['A', 'B', 'C']]['text', 'label']"],
  ["{{'a' 'b'}}", 'ab'],
  ['line\r\nnext {{n}}', 'line\nnext 7'],
  ['{{text.startswith(\'one\')}} {{text.endswith("x")}} {{text.lower()}}', 'True False one two three'],
  ["{{ [1,2] + [3] }} {{ [0] * 3 }} {{ 'b' > 'a' }} {{ [1,2] < [1,3] }}", '[1, 2, 3] [0, 0, 0] True True'],
  ["{{ '}}' }} { { %} }", '}} { { %} }'],
  ['{% if n %}\n{{n}}\n{% endif %}\n', '\n7\n\n'],
  ["{{ -n|string }}{{ (n|string) + 'x' }}", '-77x'],
  ["{{ '{' ~ '}' }}", '{}'],
  ['{{ true }} {{ False }} {{ None }}', 'True False None'],
  ['{{ n is defined and n > 3 }}', 'True'],
  ['{% set a = 1 %}{% if a == 1 %}{% set a = 2 %}{% endif %}{{a}}', '2'],
  ["{{ {'k':'v'}['k'] }}{{ {'k':'v'}.k }}", 'vv'],
  ["{{ text|replace('', '-') }}", '-o-n-e- -t-w-o- -t-h-r-e-e-'],
];

const render = (source: string): string => new Template(source, 'a.yaml:3: doc_to_text').render(DOC, 'document 5');

describe('Template', () => {
  it.each(CASES)('renders %j', (source, expected) => {
    expect(render(source)).toBe(expected);
  });

  it.each([
    ['{{ missing }}', "UndefinedError: 'missing' is undefined"],
    ['{{ choices.missing }}', "UndefinedError: 'dict object' has no attribute 'missing'"],
    ['{{ choices.text[9] }}', 'UndefinedError: list object has no element 9'],
    ['a\n\n{{ missing }}', 'a.yaml:3: doc_to_text, line 3 of the template, document 5'],
    ['{{ text + 1 }}', 'TypeError: can only concatenate str (not "int") to str'],
    ['{{ n // 0 }}', 'division by zero'],
    ["{{ text.index('z') }}", 'ValueError: substring not found'],
    ['{{ choices.items }}', 'TypeError: .items is a method; call it: .items(…)'],
    ['{{ text.strip }}', '.strip is a method; call it'],
    ["{{ '{}'.format() }}", 'IndexError: Replacement index 0 out of range for positional args tuple'],
    ["{{ text.split(sep=' ', count=1) }}", "TypeError: str.split() got an unexpected keyword argument 'count'"],
    ['{{ text.constructor }}', "UndefinedError: 'str object' has no attribute 'constructor'"],
    ['{{ text.__proto__ }}', "UndefinedError: 'str object' has no attribute '__proto__'"],
    ['{{ choices.__proto__ }}', "UndefinedError: 'dict object' has no attribute '__proto__'"],
    ['{{ constructor }}', "UndefinedError: 'constructor' is undefined"],
    ["{{ items|map('upper') }}", 'TypeError: a generator is shown by its place in memory; add |list'],
    ["{{ items|map('upper')|length }}", "TypeError: object of type 'generator' has no len()"],
    ["{{ text|join(',', by=1) }}", "TypeError: join() got an unexpected keyword argument 'by'"],
    ["{{ text|regex_replace('(', '') }}", 'regex_replace cannot use "("'],
    ["{{ text|regex_replace('a', '\\\\1') }}", 'regex_replace has no group 1'],
    ["{{ text|regex_replace('a', '\\\\q') }}", 'regex_replace cannot read'],
    ['{{ n is odd 3 }}', 'TypeError: test_odd() takes at most 0 arguments (1 given)'],
    [
      '{% for x in choices.text recursive %}',
      "TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following tags: 'endfor' or 'else'.",
    ],
    ['{% for x in [1] if loop.first %}{% endfor %}', "UndefinedError: 'loop' is undefined"],
    ['{% for x in [1] %}{{ loop.previtem }}{% endfor %}', 'UndefinedError: there is no previous item'],
    ['{% set x, y = [1] %}', 'ValueError: not enough values to unpack (expected 2, got 1)'],
    ['{% set x.y = 1 %}', 'TemplateRuntimeError: cannot assign attribute on non-namespace object'],
    ['a\n{% raw %}', 'TemplateSyntaxError: Missing end of raw directive'],
    [
      "{{ ('x' if not flag) + 'y' }}",
      'UndefinedError: the inline if-expression on line 1 evaluated to false and no else section was defined.',
    ],
    [
      "{{ ('x' if not flag)|int }}",
      'UndefinedError: the inline if-expression on line 1 evaluated to false and no else section was defined.',
    ],
    ['{{ [] | first }}', 'UndefinedError: No first item, sequence was empty.'],
    ['{{ [1] + (2,) }}', 'TypeError: can only concatenate list (not "tuple") to list'],
    ['{{ lipsum() }}', 'TemplateRuntimeError: lipsum() writes another text each time: it is not supported'],
    [
      '{% macro x() %}',
      "TemplateSyntaxError: Unexpected end of template. Jinja was looking for the following tags: 'endmacro'.",
    ],
    [
      '{% if n %}',
      "Unexpected end of template. Jinja was looking for the following tags: 'elif' or 'else' or 'endif'.",
    ],
    ['{{ n', "TemplateSyntaxError: unexpected end of template, expected '}}'"],
    ['{# n', 'TemplateSyntaxError: Missing end of comment tag'],
    ['{{ n ? }}', 'TemplateSyntaxError: unexpected char "?"'],
    ['{{ n n }}', 'TemplateSyntaxError: expected token \'end of statement block\', got "n"'],
    ['{{ }}', "TemplateSyntaxError: Expected an expression, got 'end of print statement'"],
    ['{{ 0 ** -1 }}', 'ZeroDivisionError: 0.0 cannot be raised to a negative power'],
    ['{{ (-8) ** 0.5 }}', 'ValueError: powers that are complex numbers are not supported'],
    ["{{ '\\N{BULLET}' }}", 'the escape \\N is not complete or not supported'],
  ])('refuses %j', (source, message) => {
    expect(() => render(source)).toThrow(message);
    expect(() => render(source)).toThrow(UserError);
  });

  it('takes any number of elif', () => {
    const branches = Array.from({ length: 500 }, (_, i) => `{% elif n == ${i + 8} %}${i}`).join('');
    expect(render(`{% if n == 0 %}zero${branches}{% elif n == 7 %}seven{% else %}none{% endif %}`)).toBe('seven');
  });

  it('ends work that has no bounds', () => {
    const loop = '{% for i in range(100000) %}'.repeat(3) + '{% endfor %}'.repeat(3);
    expect(() => render(loop)).toThrow('more than 1000000 steps');
    expect(() => render('{{ range(1000000000)|list }}')).toThrow('larger than MAX_RANGE (100000)');
    expect(() => render("{{ 'a' * 1000000000000 }}")).toThrow('a result is longer than');
    expect(() => render(`{{ ${'n*'.repeat(190)}n }}`)).not.toThrow();
    expect(() => render(`{{ ${'n*'.repeat(5000)}n }}`)).not.toThrow();
    expect(() => render(`{{ n${'[0]'.repeat(5000)} }}`)).toThrow('nests more than 300 deep');
    expect(() => render(`{{ ${'('.repeat(5000)}${')'.repeat(5000)} }}`)).toThrow('nests more than 100 deep');
    expect(() => render('{% if n %}'.repeat(5000))).toThrow('nests more than 100 deep');
    expect(() => render('x'.repeat(1_100_000))).toThrow('longer than 1048576 characters');
  });
});
