/**
 * Templates, with what Jinja2 3.1.6 makes of them in transformers' environment; those without a text are refused. They
 * were drawn at random: expressions over all types with every filter, test and method, and blocks within blocks.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CHAT_ENVIRONMENT, JinjaTemplate, TemplateProblem } from '../../../python/jinja/template.js';
import { parseJsonValue } from '../../../python/literal.js';
import { type Dict, isDict } from '../../../python/value.js';
import { isThorough } from '../../support/thorough.js';

const TEXT = readFileSync(new URL('jinja2.json', import.meta.url), 'utf8');
const { templates } = JSON.parse(TEXT) as { templates: readonly (readonly [string, string?])[] };

function variables(): Dict {
  const file = parseJsonValue(TEXT);
  const found = isDict(file) ? file.get('variables') : undefined;
  if (found === undefined || !isDict(found)) throw new Error('jinja2.json has no variables');
  return found;
}

const GIVEN = variables();
const render = (source: string, given: Dict = GIVEN): string =>
  new JinjaTemplate(source, CHAT_ENVIRONMENT).render(given, () => new Date(2026, 10, 5, 9, 7, 3));

const STEPS = 'more than 20000000 steps';
const UPPERS = "{% set s = 'a' * 16000000 %}{% for i in range(1000) %}{% set t = s|upper %}{% endfor %}";
const LONG_WORK: readonly [string, string] = [UPPERS, STEPS];

describe('JinjaTemplate', () => {
  it('makes of templates what Jinja2 makes of them', () => {
    const made = templates.map(([source, wanted]) => {
      try {
        return [source, render(source)];
      } catch (error) {
        if (!(error instanceof TemplateProblem) || wanted !== undefined) throw new Error(source, { cause: error });
        return [source];
      }
    });
    expect(made).toEqual(templates);
  });

  it('tells the time in English', () => {
    const format = '%d %b %Y|%B %-d, %y|%A %a|%H:%M:%S|%I %p|%j|%F %T|%%|%e|%Q';
    expect(render(`{{ strftime_now('${format}') }}`)).toBe(
      '05 Nov 2026|November 5, 26|Thursday Thu|09:07:03|09 AM|309|2026-11-05 09:07:03|%| 5|%Q',
    );
  });

  it.each([
    ["{{ raise_exception('roles must alternate') }}", 'roles must alternate', 1],
    ['a\n{{ x.y.z }}', "UndefinedError: 'int object' has no attribute 'y'", 2],
    ['a\n\n{% if x %}\n{{ x + "b" }}\n{% endif %}', 'TypeError: unsupported operand', 4],
    ['{{ x }}\n{% nope %}', "TemplateSyntaxError: Encountered unknown tag 'nope'", 2],
    ['{{ x|nope }}', "TemplateAssertionError: No filter named 'nope'", 1],
    ["{% include 'other' %}", 'no loader', 1],
    ['{{ l.append(1) }}', "SecurityError: access to attribute 'append' of 'list' object is unsafe", 1],
    ["{{ ''.__class__.__mro__ }}", 'SecurityError', 1],
    ['{{ (1).constructor() }}', "'int object' has no attribute 'constructor'", 1],
  ])('says what is wrong with %j, and where', (source, message, line) => {
    let error: unknown;
    try {
      render(source);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(TemplateProblem);
    expect(error).toMatchObject({ line, message: expect.stringContaining(message) as string });
  });

  it.each([
    ["{{ 'a' * 10**9 }}", 'longer than'],
    ['{{ range(10**12)|list }}', 'Range too big'],
    // A second's work; the case of `indent` below is bounded by the same count.
    ...(isThorough ? [LONG_WORK] : []).map(([source, message]): [string, string] => [source, message]),
    ['{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}', 'nests more than 400 deep'],
    ['{{ 9**(9**9) }}', 'too large'],
    ['{{ 10**5000 * 10**5000 }}', 'too large'],
    ["{{ '{:>1000000000}'.format(1) }}", 'longer than'],
    ["{{ '%1000000000d' % 1 }}", 'longer than'],
    ["{{ '{:.999999}'.format(1.5) }}", 'a format of more than'],
    ["{{ 'a'.center(10**10) }}", 'longer than'],
    ["{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}", 'longer than'],
    ["{{ ('a\\n' * 10**6)|indent(10**6) }}", STEPS],
    ['{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}', 'nests'],
    [
      '{% set ns = namespace(v=[]) %}{% for i in range(100000) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}',
      'nests more',
    ],
    ["{% set ns = namespace(v='ab') %}{% for i in range(60) %}{% set ns.v = ns.v + ns.v %}{% endfor %}", 'longer than'],
    ['{{ [1]|batch(1, 0)|list }}{{ [1]|batch(10**12, 0)|list }}', 'more than 1048576 items'],
    ['{{ x' + "|default('a')".repeat(2000) + ' }}', 'nests more than 300 deep'],
    ['{{ ' + '-'.repeat(3000) + '1 }}', 'nests more than 100 deep'],
    ['{% if x %}'.repeat(3000), 'nests more than 100 deep'],
    ['{{ x' + '[0]'.repeat(5000) + ' }}', 'nests more than 300 deep'],
  ])('ends work, case %#', (source, message) => {
    expect(() => render(source)).toThrow(message);
  });

  it('reaches keys, and nothing of JavaScript', () => {
    const given = parseJsonValue('{"d": {"__proto__": 1, "constructor": 2, "items": 3}, "t": {"2": 1.0, "1": 1}}');
    if (!isDict(given)) throw new Error('no dictionary');
    expect(render('{{ d.__proto__ }}{{ d["constructor"] }}{{ d["items"] }}{{ d|length }}', given)).toBe('1233');
    expect(render('{{ d.toString is defined }}{{ {}.__proto__ is defined }}{{ toString is defined }}', given)).toBe(
      'FalseFalseFalse',
    );
    expect(render('{{ t }}{{ t|tojson }}', given)).toBe(`{'2': 1.0, '1': 1}{"2": 1.0, "1": 1}`);
  });
});
