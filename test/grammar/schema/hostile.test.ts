/** Schemas that are made to cost much are refused, or cheap: every bound is one of steps and sizes. */
import { expect, it } from 'vitest';
import { GrammarError } from '../../../grammar/grammar.js';
import { schemaGrammar } from '../../../grammar/schema/schemaGrammar.js';
import { followed } from '../../support/schemaGrammars.js';
import { thorough } from '../../support/thorough.js';

type Schema = Record<string, unknown>;

const many = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const named = (count: number, make: (i: number) => readonly [string, unknown]): Schema =>
  Object.fromEntries(many(count, make));
const nested = (levels: number, wrap: (schema: Schema) => Schema): Schema => {
  let schema: Schema = { type: 'integer' };
  for (let i = 0; i < levels; i++) schema = wrap(schema);
  return schema;
};
const chain = (count: number, link: (next: Schema) => Schema): Schema => ({
  $ref: '#/$defs/d0',
  $defs: named(count + 1, (i) => [`d${i}`, i === count ? true : link({ $ref: `#/$defs/d${i + 1}` })]),
});

/** Rules of its grammar, or why it is refused. */
function outcomeOf(schema: unknown): string {
  try {
    return `${schemaGrammar(schema).rules.length > 100 ? 'many' : 'few'} rules`;
  } catch (error) {
    if (error instanceof GrammarError) return `${error.message} ${error.where ?? ''}`.trim();
    throw error;
  }
}

thorough('bounds what a schema may cost', () => {
  const circle = { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } } };
  const endless = { type: 'object', required: ['a'], properties: { a: { $ref: '#' } } };
  const cases: Record<string, unknown> = {
    'ten thousand levels': nested(10_000, (items) => ({ items })),
    'joined levels': nested(240, (schema) => ({ not: schema })),
    'a product of choices': {
      allOf: many(20, (i) => ({ anyOf: [{ required: [`a${i}`] }, { required: [`b${i}`] }] })),
    },
    dependencies: { dependentRequired: named(30, (i) => [`a${i}`, [`b${i}`]]) },
    'a circle': circle,
    'a circle through allOf': { allOf: [{ $ref: '#' }] },
    'a chain of references': chain(3000, (next) => ({ allOf: [next] })),
    'a chain of properties': chain(1000, (x) => ({ type: 'object', required: ['x'], properties: { x } })),
    'no end': endless,
    'many properties': { properties: named(40_000, (i) => [`name${i}`, { type: 'string' }]) },
    'many values': { enum: many(20_000, (i) => `value${i}`) },
    'many patterns': { patternProperties: named(11, (i) => [`a.{${i}}${'bcdefghijkl'[i]}`, { type: 'integer' }]) },
    'a count in a pattern': { type: 'string', minLength: 1e9, pattern: '^a{1,1000000}b' },
    'counts in counts': { minItems: 2 ** 31, items: { type: 'array', minItems: 2 ** 31 } },
    'a large divisor': { type: 'integer', multipleOf: 999_983 },
  };
  expect(Object.entries(cases).map(([name, schema]) => `${name}: ${outcomeOf(schema)}`)).toMatchInlineSnapshot(`
    [
      "ten thousand levels: The schema is nested deeper than 256 levels.",
      "joined levels: Schemas are joined too deep.",
      "a product of choices: The schema has too many combinations.",
      "dependencies: The schema has too many combinations.",
      "a circle: The schema refers to itself without anything between. /$defs/a",
      "a circle through allOf: The schema refers to itself without anything between.",
      "a chain of references: Schemas are joined too deep. /$defs/d151",
      "a chain of properties: many rules",
      "no end: No value fits the schema.",
      "many properties: There are too many properties, or numbers of them, to be counted.",
      "many values: few rules",
      "many patterns: what is asked of the text takes too long to follow",
      "a count in a pattern: what is asked of the text takes too long to follow",
      "counts in counts: few rules",
      "a large divisor: The number of "multipleOf" is too large.",
    ]
  `);
});

it('takes names that objects have of themselves for names', () => {
  const schema = JSON.parse(
    '{"type":"object","properties":{"__proto__":{"type":"integer"},"constructor":{"type":"string"}},' +
      '"required":["__proto__"],"additionalProperties":false}',
  ) as unknown;
  const grammar = followed(schema);
  expect(grammar.has('{"__proto__":1,"constructor":"a"}')).toBe(true);
  expect(grammar.has('{"constructor":"a"}')).toBe(false);
  expect(grammar.has('{"__proto__":1,"toString":"a"}')).toBe(false);
});

it('has no white space but a space behind colons and commas, and each listed name once', () => {
  const grammar = followed({ type: 'object', properties: { a: { type: 'integer' }, b: {} } });
  expect(['{"a":1,"b":[1, 2]}', '{"a": 1, "b": 2, "c": 3}', '{}'].filter((text) => !grammar.has(text))).toEqual([]);
  const others = [
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
    '{ "a":1}',
    '{"a":1 }',
    '{"a":  1}',
    '{"b":1,"a":2}',
    '{"a":01}',
  ];
  expect(others.filter((text) => grammar.has(text))).toEqual([]);
});
