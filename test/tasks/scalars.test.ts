/** Scalars of YAML, compared with repr() of what yaml.safe_load of PyYAML 6.0.3 makes of them; null: it fails. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { parseYaml } from '../../tasks/definition/yaml.js';
import { repr } from '../../python/show.js';
import type { PyValue } from '../../python/value.js';

const table = JSON.parse(
  readFileSync(fileURLToPath(new URL('pyyamlScalars.json', import.meta.url)), 'utf8'),
) as readonly (readonly [text: string, shown: string | null])[];

const read = (text: string): string => repr(parseYaml(`k: ${text}\n`, 'x.yaml').values.get('k') as PyValue);

describe('a scalar without quotes', () => {
  it.each(table)('%s is %s', (text, shown) => {
    if (shown === null) expect(() => read(text)).toThrow(UserError);
    else expect(read(text)).toBe(shown);
  });

  it('that cannot be read is named with its line', () => {
    expect(() => parseYaml('a: 1\nb: =\n', 'x.yaml')).toThrow('x.yaml:2: "=" is no value in YAML');
    expect(() => read('2001-13-45')).toThrow('x.yaml:1: "2001-13-45": there is no such date or time');
    expect(() => read('1'.repeat(5000))).toThrow('not a whole number that Python reads');
  });

  it('still merges keys with <<, and not with it in quotes', () => {
    const { values } = parseYaml('a: &a {x: 1:30}\nb:\n  <<: *a\n  y: 2\nc:\n  "<<": 3\n', 'x.yaml');
    expect(values.get('b')).toEqual(new Map(Object.entries({ x: 90, y: 2 })));
    expect(values.get('c')).toEqual(new Map([['<<', 3]]));
  });

  it('keeps a date of a task for its results', () => {
    expect(read('2024-05-01')).toBe('datetime.date(2024, 5, 1)');
    expect(String((parseYaml('d: 2024-05-01\n', 'x.yaml').values.get('d') as { text: string }).text)).toBe(
      '2024-05-01',
    );
  });
});
