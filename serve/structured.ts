/** What a body asks the text of an answer to be: OpenAI's `response_format`, and vLLM's fields for the same. */
import type { GrammarSource } from '../grammar/source.js';
import { isGiven, isRecord } from '../system/json.js';
import { badRequest } from './apiError.js';

type Body = Readonly<Record<string, unknown>>;

const MAX_CHOICES = 10_000;

/** Throws ApiError 400 that names the field. Undefined: any text. */
export function readStructure(body: Body): GrammarSource | undefined {
  const found: { readonly field: string; readonly source: GrammarSource }[] = [];
  for (const [field, read] of FIELDS) {
    const value = body[field];
    const source = isGiven(value) ? read(value, field) : undefined;
    if (source !== undefined) found.push({ field, source });
  }
  const [first, second] = found;
  if (second !== undefined) throw badRequest(`${second.field}: not beside ${first?.field ?? ''}`, second.field);
  return first?.source;
}

type Read = (value: unknown, field: string) => GrammarSource | undefined;

const refused: Read = (_, field) => {
  throw badRequest(`${field} is not supported`, field);
};

const FIELDS: readonly (readonly [string, Read])[] = [
  ['response_format', responseFormat],
  ['structured_outputs', structuredOutputs],
  ['guided_json', jsonOf],
  ['guided_regex', regexOf],
  ['guided_choice', choiceOf],
  ['guided_grammar', refused],
  ['guided_whitespace_pattern', refused],
  ['structural_tag', refused],
];

const MEMBERS: Readonly<Record<string, Read>> = {
  json: jsonOf,
  regex: regexOf,
  choice: choiceOf,
  json_object: (value, field) => {
    if (typeof value !== 'boolean') throw badRequest(`${field}: expected true or false`, field);
    return value ? { kind: 'json' } : undefined;
  },
  grammar: refused,
  structural_tag: refused,
  whitespace_pattern: refused,
};

function responseFormat(format: unknown, field: string): GrammarSource | undefined {
  const type = isRecord(format) ? format['type'] : undefined;
  if (type === 'text') return undefined;
  if (type === 'json_object') return { kind: 'json' };
  const asked = isRecord(format) && type === 'json_schema' ? format['json_schema'] : undefined;
  const schema = isRecord(asked) ? asked['schema'] : undefined;
  if (!isSchema(schema))
    throw badRequest(
      `${field}: expected {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", "json_schema": ` +
        '{"name": …, "schema": …}}',
      field,
    );
  return { kind: 'schema', schema };
}

function structuredOutputs(value: unknown, field: string): GrammarSource | undefined {
  if (!isRecord(value)) throw badRequest(`${field}: expected an object`, field);
  const found: GrammarSource[] = [];
  for (const [member, each] of Object.entries(value)) {
    const read = Object.hasOwn(MEMBERS, member) ? MEMBERS[member] : undefined;
    const source = isGiven(each) ? read?.(each, `${field}.${member}`) : undefined;
    if (source !== undefined) found.push(source);
  }
  if (found.length > 1) throw badRequest(`${field}: expected one of json, regex, choice and json_object`, field);
  return found[0];
}

const isSchema = (value: unknown): boolean => isRecord(value) || typeof value === 'boolean';

/** A schema, or the text of one. */
function jsonOf(value: unknown, field: string): GrammarSource {
  let schema = value;
  if (typeof value === 'string')
    try {
      schema = JSON.parse(value);
    } catch {
      throw badRequest(`${field}: expected a JSON Schema, and this text is not JSON`, field);
    }
  if (!isSchema(schema)) throw badRequest(`${field}: expected a JSON Schema`, field);
  return { kind: 'schema', schema };
}

function regexOf(value: unknown, field: string): GrammarSource {
  if (typeof value !== 'string') throw badRequest(`${field}: expected a regular expression`, field);
  return { kind: 'regex', pattern: value };
}

function choiceOf(value: unknown, field: string): GrammarSource {
  if (!Array.isArray(value) || value.length === 0 || !value.every((each) => typeof each === 'string'))
    throw badRequest(`${field}: expected a list of texts`, field);
  if (value.length > MAX_CHOICES) throw badRequest(`${field}: expected at most ${MAX_CHOICES} texts`, field);
  return { kind: 'choice', of: value.map((text) => ({ kind: 'text', text })) };
}
