/** How families write thoughts and calls of tools in their answers, and which of it a chat template asks for. */

/** How a family marks its thoughts. */
export interface ReasoningMarks {
  readonly open: string;
  readonly close: string;
}

/** How a family writes calls: what is told to models in their templates. */
export interface CallFormat {
  /** Begins calls: one, or a list of them in brackets. */
  readonly open: string;
  /** Ends what the mark has begun. Absent: calls end where their JSON does. */
  readonly close?: string;
  /** Whether an answer may be a call from its first letter on, without a mark. */
  readonly isBare?: boolean;
  /** Whether a call may be a name, this mark and its arguments. */
  readonly beforeArguments?: string;
  /** Stands between a name and the id of its call. */
  readonly beforeId?: string;
}

/** A way of writing calls, to be read and to be asked for. */
export interface CallStyle extends CallFormat {
  /** The key of a call's arguments in its object. */
  readonly key: 'arguments' | 'parameters';
  /** What stands around calls that are asked for, and between them. Each special token is a text of its own. */
  readonly before: readonly string[];
  readonly between: readonly string[];
  readonly after: readonly string[];
  /** What is between a name and its arguments, where a call is no object. */
  readonly named?: string;
  /** Letters of the ids that its template takes; others take any. */
  readonly idLength?: number;
}

const HERMES: CallStyle = {
  open: '<tool_call>',
  close: '</tool_call>',
  key: 'arguments',
  before: ['<tool_call>', '\n'],
  between: ['\n', '</tool_call>', '\n', '<tool_call>', '\n'],
  after: ['\n', '</tool_call>'],
};
const LLAMA: CallStyle = {
  open: '<|python_tag|>',
  isBare: true,
  key: 'parameters',
  before: [],
  between: ['; '],
  after: [],
};
const MISTRAL = {
  open: '[TOOL_CALLS]',
  beforeArguments: '[ARGS]',
  beforeId: '[CALL_ID]',
  key: 'arguments',
  idLength: 9,
} as const;

/** Styles by the names that servers give their parsers. */
export const CALL_STYLES = {
  /** Qwen 2.5 and 3, Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. */
  hermes: HERMES,
  /** Llama 3: `{"name": …, "parameters": {…}}`, which may begin with `<|python_tag|>`. */
  llama3_json: LLAMA,
  /** Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}]`; either of Mistral's ways is read. */
  mistral: { ...MISTRAL, before: ['[TOOL_CALLS]', '['], between: [', '], after: [']'] },
  /** Later ones: `[TOOL_CALLS]name[ARGS]{…}` for each call. */
  mistral_args: { ...MISTRAL, before: ['[TOOL_CALLS]'], between: ['[TOOL_CALLS]'], after: [], named: '[ARGS]' },
} as const satisfies Readonly<Record<string, CallStyle>>;
export type CallStyleName = keyof typeof CALL_STYLES;

/** What calls are written as that a model of no known style is made to write. */
export const PLAIN_CALLS: CallStyle = { ...LLAMA, open: '<|python_tag|>', key: 'arguments' };

export const REASONING_STYLES = {
  /** Qwen 3, DeepSeek R1 and most others. */
  think: { open: '<think>', close: '</think>' },
  mistral: { open: '[THINK]', close: '[/THINK]' },
} as const satisfies Readonly<Record<string, ReasoningMarks>>;
export type ReasoningStyleName = keyof typeof REASONING_STYLES;

/** How a template tells its model to write calls; undefined where that is not known. */
export function callStyleOf(template: string): CallStyleName | undefined {
  const has = (text: string): boolean => template.includes(text);
  if (has('[TOOL_CALLS]')) return has('[ARGS]') ? 'mistral_args' : 'mistral';
  // Others write XML between the same marks.
  if (has('<tool_call>')) return has('<function=') || has('<arg_key>') ? undefined : 'hermes';
  if (has('<|python_tag|>') || (has('<|start_header_id|>') && has('"parameters"')))
    return has('<function=') ? undefined : 'llama3_json';
  return undefined;
}

export function reasoningStyleOf(template: string): ReasoningStyleName | undefined {
  if (template.includes('[THINK]')) return 'mistral';
  return template.includes('</think>') ? 'think' : undefined;
}
