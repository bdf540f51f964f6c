/** The form that a body asks the text of an answer to have. */
import type { GrammarSource } from '../../grammar/source.js';
import { isGiven, isRecord } from '../../system/json.js';
import { badRequest } from '../apiError.js';

/** Fields of other servers for the same. */
const OTHERS = ['guided_json', 'guided_regex', 'guided_choice', 'guided_grammar', 'structured_outputs'];

/** Throws ApiError 400 that names the field. */
export function readStructure(body: Readonly<Record<string, unknown>>): GrammarSource | undefined {
  for (const field of OTHERS) if (isGiven(body[field])) throw badRequest(`${field} is not supported in chats`, field);
  const format = body['response_format'];
  if (!isGiven(format)) return undefined;
  const type = isRecord(format) ? format['type'] : undefined;
  if (type === 'text') return undefined;
  if (type === 'json_object') return { kind: 'json' };
  const own = isRecord(format) && type === 'json_schema' ? format['json_schema'] : undefined;
  if (!isRecord(own) || !isGiven(own['schema']))
    throw badRequest(
      'response_format: expected {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", ' +
        '"json_schema": {"name": …, "schema": …}}',
      'response_format',
    );
  return { kind: 'schema', schema: own['schema'] };
}
