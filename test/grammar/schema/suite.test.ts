/**
 * The public test suite of JSON Schema (draft 4, json-schema-test-suite): instances that do not fit are in no grammar,
 * and instances that do are. What is refused is listed, so that a keyword that is refused no longer is seen.
 */
import { createRequire } from 'node:module';
import { describe, expect, it } from 'vitest';
import { followedOrRefused } from '../../support/schemaGrammars.js';

interface Suite {
  readonly name: string;
  readonly schemas: readonly {
    readonly description: string;
    readonly schema: unknown;
    readonly tests: readonly { readonly description: string; readonly data: unknown; readonly valid: boolean }[];
  }[];
}

const suites = (createRequire(import.meta.url)('json-schema-test-suite') as { draft4(): readonly Suite[] }).draft4();

describe('the public suite', () => {
  it('is judged right, or refused', () => {
    const wrong: string[] = [];
    const refused: string[] = [];
    const counts = { right: 0, groups: 0 };
    for (const { name, schemas } of suites)
      for (const { description, schema, tests } of schemas) {
        const draft =
          typeof schema === 'object' ? { $schema: 'http://json-schema.org/draft-04/schema#', ...schema } : schema;
        const grammar = followedOrRefused(draft);
        counts.groups++;
        if (typeof grammar === 'string') {
          refused.push(`${name}: ${description}: ${grammar}`);
          continue;
        }
        for (const { data, valid, description: what } of tests)
          if (grammar.hasValue(data) === valid) counts.right++;
          else wrong.push(`${name}: ${description}: ${what} ${valid ? 'refused' : 'ACCEPTED'}`);
      }
    const short = (texts: readonly string[]): string[] => texts.map((text) => text.slice(0, 100));
    expect(short(wrong)).toMatchInlineSnapshot(`
      [
        "bignum: integer: a bignum is an integer refused",
        "bignum: integer: a negative bignum is an integer refused",
        "bignum: integer comparison: comparison works for high numbers refused",
        "bignum: integer comparison: comparison works for very negative numbers refused",
        "format: validation of URIs: a valid protocol-relative URI refused",
        "zeroTerminatedFloats: some languages do not distinguish between different types of numeric value: a ",
      ]
    `);
    expect(short(refused)).toMatchInlineSnapshot(`
      [
        "definitions: valid definition: "http://json-schema.org/draft-04/schema#" refers to another document;",
        "definitions: invalid definition: "http://json-schema.org/draft-04/schema#" refers to another documen",
        "multipleOf: by number: "multipleOf" of 1.5 is not supported. at """,
        "ref: remote ref, containing refs itself: "http://json-schema.org/draft-04/schema#" refers to another",
        "refRemote: remote ref: "http://localhost:1234/integer.json" refers to another document; only local o",
        "refRemote: fragment within remote ref: "http://localhost:1234/subSchemas.json#/integer" refers to an",
        "refRemote: ref within remote ref: "http://localhost:1234/subSchemas.json#/refToInteger" refers to an",
        "refRemote: change resolution scope: "folderInteger.json" refers to another document; only local ones",
        "uniqueItems: uniqueItems validation: "uniqueItems" is supported where items are of at most 10 values",
      ]
    `);
    expect(counts).toMatchInlineSnapshot(`
      {
        "groups": 89,
        "right": 261,
      }
    `);
  });
});
