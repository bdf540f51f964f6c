/** The messages of a body, checked, as templates expect them. */
import { parseJsonValue, valueOf } from '../../python/literal.js';
import { type Dict, isDict, type PyValue } from '../../python/value.js';
import { isGiven, isRecord } from '../../system/json.js';
import { badRequest } from '../apiError.js';

export interface Message extends Readonly<Record<string, unknown>> {
  readonly role: string;
  /** Parts are texts. */
  readonly content: string | readonly TextPart[];
}

interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

/** How a template takes what messages say. */
export interface ContentForm {
  readonly takesText: boolean;
  readonly takesParts: boolean;
  /** Whether it knows developers; if not, they are systems. */
  readonly hasDeveloper: boolean;
}

const ROLE = /^[\w-]{1,64}$/;
/** Fields of messages that are answers alone, and those that were replaced. */
const REFUSED: readonly (readonly [field: string, instead: string])[] = [
  ['audio', 'the model takes texts alone'],
  ['function_call', 'it was replaced by tool_calls'],
];

/** Throws ApiError 400 that names the field. */
export function readMessages(value: unknown): readonly Message[] {
  if (!Array.isArray(value) || value.length === 0)
    throw badRequest('messages: expected a list of messages', 'messages');
  return value.map((message: unknown, i) => readMessage(message, `messages[${i}]`));
}

function readMessage(value: unknown, where: string): Message {
  if (!isRecord(value)) throw badRequest(`${where}: expected an object`, where);
  const { role, content, tool_calls: calls, reasoning, reasoning_content: older, refusal, ...others } = value;
  if (typeof role !== 'string' || !ROLE.test(role))
    throw badRequest(`${where}.role: expected system, developer, user, assistant or tool`, `${where}.role`);
  for (const [field, instead] of REFUSED)
    if (isGiven(value[field])) throw badRequest(`${where}.${field} is not supported: ${instead}`, `${where}.${field}`);
  for (const field of ['name', 'tool_call_id'])
    if (isGiven(value[field]) && typeof value[field] !== 'string')
      throw badRequest(`${where}.${field}: expected a text`, `${where}.${field}`);
  const isAnswer = role === 'assistant';
  const toolCalls = isGiven(calls) ? readCalls(calls, `${where}.tool_calls`) : undefined;
  const thoughts = [reasoning, older].find((each) => typeof each === 'string');
  const said = isGiven(content) || !isAnswer ? content : (refusal ?? '');
  return {
    ...Object.fromEntries(Object.entries(others).filter(([, each]) => isGiven(each))),
    role,
    content: readContent(said, `${where}.content`),
    ...(toolCalls === undefined || toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    ...(thoughts === undefined ? {} : { reasoning: thoughts, reasoning_content: thoughts }),
  };
}

/** Throws ApiError 400 that names the field. */
export function readContent(content: unknown, where: string): Message['content'] {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw badRequest(`${where}: expected a text, or a list of parts`, where);
  return content.map((part: unknown, i): TextPart => {
    if (typeof part === 'string') return { type: 'text', text: part };
    const type = isRecord(part) ? part['type'] : undefined;
    const text = isRecord(part) ? part[type === 'refusal' ? 'refusal' : 'text'] : undefined;
    if (type === 'text' || type === 'refusal') {
      if (typeof text !== 'string') throw badRequest(`${where}[${i}].text: expected a text`, `${where}[${i}].text`);
      return { type: 'text', text };
    }
    const shown = typeof type === 'string' ? JSON.stringify(type.slice(0, 40)) : 'without a type';
    throw badRequest(`${where}[${i}]: a part ${shown}: the model takes texts alone`, `${where}[${i}]`);
  });
}

/** Calls of an earlier answer. Clients have arguments as JSON, and templates expect an object. */
function readCalls(value: unknown, where: string): readonly Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value)) throw badRequest(`${where}: expected a list`, where);
  return value.map((call: unknown, i) => {
    const at = `${where}[${i}].function`;
    const own = isRecord(call) ? call['function'] : undefined;
    if (!isRecord(call) || !isRecord(own) || typeof own['name'] !== 'string')
      throw badRequest(`${at}: expected an object with name and arguments`, at);
    return {
      ...call,
      type: 'function',
      function: { ...own, arguments: readArguments(own['arguments'], `${at}.arguments`) },
    };
  });
}

/** As Python reads them: templates write them as the model did. */
function readArguments(value: unknown, where: string): Dict {
  if (!isGiven(value) || value === '') return new Map();
  const parsed = typeof value === 'string' ? parsedJson(value) : valueOf(value);
  if (!isDict(parsed)) throw badRequest(`${where}: expected an object as JSON`, where);
  return parsed;
}

/** Null for what is no JSON, or nests too deep. */
function parsedJson(text: string): PyValue {
  try {
    return parseJsonValue(text);
  } catch {
    return null;
  }
}

/** The messages as a template takes them. Parts for a template of texts are joined by ends of lines. */
export function shapeMessages(
  messages: readonly Message[],
  { takesText, takesParts, hasDeveloper }: ContentForm,
): readonly Message[] {
  const shape = (content: Message['content']): Message['content'] => {
    if (typeof content === 'string') return takesText ? content : [{ type: 'text', text: content }];
    return takesParts ? content : content.map(({ text }) => text).join('\n');
  };
  return messages.map((message) => ({
    ...message,
    role: message.role === 'developer' && !hasDeveloper ? 'system' : message.role,
    content: shape(message.content),
  }));
}

/** What a message says, as one text. */
export const textOf = ({ content }: Message): string =>
  typeof content === 'string' ? content : content.map(({ text }) => text).join('\n');
