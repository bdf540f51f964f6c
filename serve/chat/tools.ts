/** The tools of a body, and what an answer must be for the model to call them. */
import type { GrammarSource } from '../../grammar/source.js';
import { isGiven, isRecord } from '../../system/json.js';
import { badRequest } from '../apiError.js';
import type { CallStyle } from '../../models/chat/answerStyles.js';

export interface Tool {
  readonly name: string;
  /** A JSON Schema of the arguments. */
  readonly parameters: unknown;
}

/** What is asked of the answer. A name: that function is to be called. */
export type ToolChoice =
  | { readonly kind: 'none' | 'auto' | 'required' }
  | { readonly kind: 'named'; readonly name: string };

const MAX_TOOLS = 512;
/** Calls of an answer that must have some. */
const MAX_CALLS = 32;
const NAME = /^[\w.:/-]{1,256}$/;
const NO_ARGUMENTS = { type: 'object', properties: {}, additionalProperties: false };

/** Throws ApiError 400 that names the field. Templates get the list as it is. */
export function readTools(value: unknown): readonly Tool[] {
  if (!isGiven(value)) return [];
  if (!Array.isArray(value)) throw badRequest('tools: expected a list', 'tools');
  if (value.length > MAX_TOOLS) throw badRequest(`tools: expected at most ${MAX_TOOLS}`, 'tools');
  const names = new Set<string>();
  return value.map((tool: unknown, i) => {
    const where = `tools[${i}]`;
    if (!isRecord(tool) || tool['type'] !== 'function' || !isRecord(tool['function']))
      throw badRequest(`${where}: expected {"type": "function", "function": …}: there are no other tools`, where);
    const { name, parameters } = tool['function'];
    if (typeof name !== 'string' || !NAME.test(name))
      throw badRequest(`${where}.function.name: expected letters, digits and _.:/-`, `${where}.function.name`);
    if (names.has(name)) throw badRequest(`${where}.function.name: another tool has it`, `${where}.function.name`);
    names.add(name);
    if (isGiven(parameters) && !isRecord(parameters))
      throw badRequest(`${where}.function.parameters: expected a JSON Schema`, `${where}.function.parameters`);
    return { name, parameters: parameters ?? NO_ARGUMENTS };
  });
}

/** Throws ApiError 400 for a choice that is not among the tools. */
export function readToolChoice(value: unknown, tools: readonly Tool[]): ToolChoice {
  if (!isGiven(value)) return { kind: tools.length > 0 ? 'auto' : 'none' };
  const refused = (message: string) => badRequest(`tool_choice: ${message}`, 'tool_choice');
  if (value === 'none') return { kind: 'none' };
  const isKnown = value === 'auto' || value === 'required';
  const own = isRecord(value) && value['type'] === 'function' ? value['function'] : undefined;
  const name = isRecord(own) ? own['name'] : undefined;
  if (!isKnown && typeof name !== 'string')
    throw refused('expected none, auto, required, or {"type": "function", "function": {"name": …}}');
  if (tools.length === 0) {
    if (value === 'auto') return { kind: 'none' };
    throw refused('there are no tools');
  }
  if (isKnown) return { kind: value };
  if (!tools.some((tool) => tool.name === name)) throw refused('no tool has this name');
  return { kind: 'named', name: String(name) };
}

/** An answer that is one call of these tools, or several, as its family writes them. */
export function callsSource(tools: readonly Tool[], style: CallStyle, isParallel: boolean): GrammarSource {
  const { before, between, after } = style;
  const calls = tools.map((tool) => callSource(tool, style));
  const call = calls.length === 1 ? calls[0]! : { kind: 'choice' as const, of: calls };
  const more: GrammarSource = {
    kind: 'repeat',
    of: { kind: 'sequence', of: [...between.map(textSource), call] },
    min: 0,
    max: MAX_CALLS - 1,
  };
  return {
    kind: 'sequence',
    of: [...before.map(textSource), call, ...(isParallel ? [more] : []), ...after.map(textSource)],
  };
}

function callSource({ name, parameters }: Tool, { key, named }: CallStyle): GrammarSource {
  const schema: GrammarSource = { kind: 'schema', schema: parameters };
  if (named !== undefined) return { kind: 'sequence', of: [textSource(name), textSource(named), schema] };
  const head = `{"name": ${JSON.stringify(name)}, "${key}": `;
  return { kind: 'sequence', of: [textSource(head), schema, textSource('}')] };
}

const textSource = (text: string): GrammarSource => ({ kind: 'text', text });
