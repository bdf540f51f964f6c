/**
 * Random schemas against ajv, another reader of JSON Schema: a value is in the grammar exactly where it is valid, and
 * texts that are drawn from the grammar are valid JSON that is valid.
 */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { followedOrRefused } from '../../support/schemaGrammars.js';
import { isThorough } from '../../support/thorough.js';

type Random = () => number;
type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Schema = Record<string, unknown> | boolean;

function randomFrom(seed: number): Random {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

const pick = <T>(random: Random, from: readonly T[]): T => from[Math.floor(random() * from.length)]!;
const some = <T>(random: Random, most: number, make: () => T): T[] =>
  Array.from({ length: Math.floor(random() * (most + 1)) }, make);

const NAMES = ['a', 'b', 'ab', 'x-1', 'é"'];
const STRINGS = ['', 'a', 'b', 'ab', 'aab', 'x-1', 'é"', '\n\\/', '😀', '12'];
const NUMBERS = [0, 1, 2, 3, -1, -2, 6, 10, 0.5, 1.5, -0.25, 99.75, 1e-7, 123456];
const PATTERNS = ['^a', 'b$', '^a*b?$', '[^a]', '^.{1,2}$', '^(?!a)', '\\d', '^x-|b', '^(a|é)+"?$', '^\\S*$'];

function randomValue(random: Random, depth: number): Json {
  const kind = Math.floor(random() * (depth > 0 ? 8 : 5));
  if (kind === 0) return null;
  if (kind === 1) return random() < 0.5;
  if (kind === 2 || kind === 3) return pick(random, NUMBERS);
  if (kind === 4) return pick(random, STRINGS);
  if (kind === 5) return some(random, 3, () => randomValue(random, depth - 1));
  return Object.fromEntries(some(random, 3, () => [pick(random, NAMES), randomValue(random, depth - 1)]));
}

function randomSchema(random: Random, depth: number): Schema {
  const chance = (probability: number): boolean => random() < probability;
  if (chance(0.06)) return chance(0.7);
  const schema: Record<string, unknown> = {};
  const sub = (): Schema => randomSchema(random, depth - 1);
  const small = (): number => Math.floor(random() * 4);
  const types = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
  if (chance(0.5))
    schema['type'] = chance(0.7) ? pick(random, types) : [...new Set(some(random, 3, () => pick(random, types)))];
  if (Array.isArray(schema['type']) && schema['type'].length === 0) delete schema['type'];
  const add = (probability: number, keyword: string, make: () => unknown): void => {
    if (chance(probability)) schema[keyword] = make();
  };
  add(0.06, 'const', () => randomValue(random, 1));
  add(0.08, 'enum', () => [randomValue(random, 1), ...some(random, 3, () => randomValue(random, 1))]);
  add(0.1, 'minimum', () => pick(random, NUMBERS));
  add(0.1, 'maximum', () => pick(random, NUMBERS));
  add(0.05, 'exclusiveMinimum', () => pick(random, NUMBERS));
  add(0.05, 'exclusiveMaximum', () => pick(random, NUMBERS));
  add(0.05, 'multipleOf', () => pick(random, [1, 2, 3, 0.5, 0.25]));
  add(0.06, 'minLength', small);
  add(0.06, 'maxLength', small);
  add(0.1, 'pattern', () => pick(random, PATTERNS));
  if (depth <= 0) return schema;
  add(0.35, 'properties', () => Object.fromEntries(some(random, 3, () => [pick(random, NAMES), sub()])));
  add(0.2, 'required', () => [...new Set(some(random, 2, () => pick(random, NAMES)))]);
  add(0.2, 'additionalProperties', sub);
  add(0.1, 'patternProperties', () => Object.fromEntries(some(random, 2, () => [pick(random, PATTERNS), sub()])));
  add(0.06, 'propertyNames', sub);
  add(0.06, 'minProperties', small);
  add(0.06, 'maxProperties', small);
  add(0.05, 'dependentRequired', () => ({ [pick(random, NAMES)]: [pick(random, NAMES)] }));
  add(0.05, 'dependentSchemas', () => ({ [pick(random, NAMES)]: sub() }));
  add(0.2, 'items', sub);
  add(0.08, 'prefixItems', () => [sub(), ...some(random, 1, sub)]);
  add(0.08, 'minItems', small);
  add(0.08, 'maxItems', small);
  add(0.05, 'uniqueItems', () => chance(0.5));
  // ajv does not check it beside prefixItems as the standard says.
  if (!('prefixItems' in schema)) add(0.05, 'contains', sub);
  if ('contains' in schema) {
    add(0.3, 'minContains', small);
    add(0.3, 'maxContains', small);
  }
  add(0.12, 'anyOf', () => [sub(), ...some(random, 2, sub)]);
  add(0.1, 'oneOf', () => [sub(), ...some(random, 2, sub)]);
  add(0.1, 'allOf', () => [sub(), ...some(random, 1, sub)]);
  add(0.1, 'not', sub);
  if (chance(0.07)) {
    schema['if'] = sub();
    add(0.8, 'then', sub);
    add(0.5, 'else', sub);
  }
  add(0.06, '$ref', () => pick(random, ['#', '#/$defs/one', '#/$defs/two']));
  return schema;
}

const ajv = new Ajv2020({ strict: false, validateFormats: false, multipleOfPrecision: 9, logger: false });

/** Whether it has a number that ajv takes for a multiple of any other, within its precision. */
const hasTinyNumber = (value: unknown): boolean =>
  typeof value === 'number'
    ? value !== 0 && Math.abs(value) < 1e-8
    : typeof value === 'object' && value !== null && Object.values(value).some(hasTinyNumber);

/** What differs for one seed, and how much was compared. */
function compare(seed: number): {
  readonly wrong: readonly string[];
  readonly isRefused: boolean;
  readonly drawn: number;
} {
  const random = randomFrom(seed);
  const $defs = { one: randomSchema(random, 1), two: randomSchema(random, 2) };
  const root = randomSchema(random, 3);
  const schema = typeof root === 'boolean' ? root : { ...root, $defs };
  const grammar = followedOrRefused(schema);
  const wrong: string[] = [];
  const isValid = (value: unknown): boolean | undefined => {
    try {
      return ajv.validate(schema, value);
    } catch {
      // A schema that refers to itself without end, and some that ajv cannot compile.
      return undefined;
    }
  };
  const values = Array.from({ length: 30 }, () => randomValue(random, 3));
  if (typeof grammar === 'string') {
    if (grammar.startsWith('No value fits') && values.some((value) => isValid(value) === true))
      wrong.push(`${seed}: ${grammar}`);
    return { wrong, isRefused: true, drawn: 0 };
  }
  for (const value of values) {
    const expected = isValid(value);
    if (expected !== undefined && grammar.hasValue(value) !== expected)
      wrong.push(`${seed}: ${JSON.stringify(value)} is ${expected ? '' : 'not '}valid`);
  }
  let drawn = 0;
  for (let i = 0; i < 6; i++) {
    const text = grammar.draw(random, 40);
    if (text === undefined) continue;
    drawn++;
    const value: unknown = JSON.parse(text);
    if (!hasTinyNumber(value) && isValid(value) === false) wrong.push(`${seed}: ${text} was drawn`);
  }
  return { wrong, isRefused: false, drawn };
}

describe('random schemas', () => {
  it('have the values that ajv finds valid', () => {
    const count = isThorough ? 20_000 : 120;
    const wrong: string[] = [];
    let refused = 0;
    let drawn = 0;
    for (let seed = 0; seed < count; seed++) {
      const found = compare(seed);
      wrong.push(...found.wrong);
      refused += found.isRefused ? 1 : 0;
      drawn += found.drawn;
    }
    expect(wrong).toEqual([]);
    expect(refused / count).toBeLessThan(0.5);
    expect(drawn).toBeGreaterThan(count);
  });
});
