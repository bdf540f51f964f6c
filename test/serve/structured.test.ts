import { describe, expect, it } from 'vitest';
import { ApiError } from '../../serve/apiError.js';
import { readStructure } from '../../serve/structured.js';

const refusal = (body: Record<string, unknown>): unknown => {
  try {
    return readStructure(body);
  } catch (error) {
    if (error instanceof ApiError) return `${error.status} ${error.options.param}: ${error.message.slice(0, 80)}`;
    throw error;
  }
};

describe('what the text of an answer is asked to be', () => {
  const schema = { type: 'object', properties: { a: { type: 'integer' } } };

  it('is a schema, by each of its names', () => {
    const expected = { kind: 'schema', schema };
    expect(
      readStructure({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema, strict: true } } }),
    ).toEqual(expected);
    expect(readStructure({ guided_json: schema })).toEqual(expected);
    expect(readStructure({ guided_json: JSON.stringify(schema) })).toEqual(expected);
    expect(readStructure({ structured_outputs: { json: schema, regex: null } })).toEqual(expected);
  });

  it('is any object, a regular expression or one of some texts', () => {
    expect(readStructure({ response_format: { type: 'json_object' } })).toEqual({ kind: 'json' });
    expect(readStructure({ structured_outputs: { json_object: true } })).toEqual({ kind: 'json' });
    expect(readStructure({ guided_regex: 'a+' })).toEqual({ kind: 'regex', pattern: 'a+' });
    expect(readStructure({ guided_choice: ['yes', 'no'] })).toEqual({
      kind: 'choice',
      of: [
        { kind: 'text', text: 'yes' },
        { kind: 'text', text: 'no' },
      ],
    });
  });

  it('is nothing in particular where nothing is asked for', () => {
    expect(readStructure({})).toBeUndefined();
    expect(readStructure({ response_format: { type: 'text' }, guided_json: null })).toBeUndefined();
    expect(readStructure({ structured_outputs: { json_object: false } })).toBeUndefined();
  });

  it('is refused by the name of its field', () => {
    expect([
      refusal({ response_format: { type: 'json_schema', json_schema: { name: 'x' } } }),
      refusal({ response_format: 'json' }),
      refusal({ response_format: { type: 'json_object' }, guided_regex: 'a' }),
      refusal({ guided_json: '{' }),
      refusal({ guided_json: 3 }),
      refusal({ guided_regex: ['a'] }),
      refusal({ guided_choice: [] }),
      refusal({ guided_choice: ['a', 1] }),
      refusal({ guided_grammar: 'root ::= "a"' }),
      refusal({ structured_outputs: { grammar: 'root ::= "a"' } }),
      refusal({ structured_outputs: { regex: 'a', choice: ['a'] } }),
      refusal({ structured_outputs: { json_object: 1 } }),
      refusal({ structured_outputs: [] }),
    ]).toMatchInlineSnapshot(`
      [
        "400 response_format: response_format: expected {"type": "text"}, {"type": "json_object"}, or {"type":",
        "400 response_format: response_format: expected {"type": "text"}, {"type": "json_object"}, or {"type":",
        "400 guided_regex: guided_regex: not beside response_format",
        "400 guided_json: guided_json: expected a JSON Schema, and this text is not JSON",
        "400 guided_json: guided_json: expected a JSON Schema",
        "400 guided_regex: guided_regex: expected a regular expression",
        "400 guided_choice: guided_choice: expected a list of texts",
        "400 guided_choice: guided_choice: expected a list of texts",
        "400 guided_grammar: guided_grammar is not supported",
        "400 structured_outputs.grammar: structured_outputs.grammar is not supported",
        "400 structured_outputs: structured_outputs: expected one of json, regex, choice and json_object",
        "400 structured_outputs.json_object: structured_outputs.json_object: expected true or false",
        "400 structured_outputs: structured_outputs: expected an object",
      ]
    `);
  });
});
