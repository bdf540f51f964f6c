/** Renders a conversation with a checkpoint's own chat template, as transformers does. */
import { CHAT_ENVIRONMENT, JinjaTemplate, TemplateProblem } from '../../python/jinja/template.js';
import type { Dict, PyValue } from '../../python/value.js';

/** What postMessage can copy to the thread that renders. */
export interface TemplateSource {
  readonly text: string;
  /** The template for conversations with tools, where the checkpoint has one of its own. */
  readonly toolText?: string;
  /** Names of special tokens that templates use: `bos_token`, `eos_token` … */
  readonly special: Readonly<Record<string, string>>;
}

/** A conversation, and what else its template is given. */
export interface Conversation {
  /** A dictionary each, of `role`, `content` and whatever else there is. */
  readonly messages: readonly PyValue[];
  /** Whether the text ends with the beginning of an answer. Default: true. */
  readonly opensAnswer?: boolean;
  /** The last message is the beginning of the answer: the text ends behind what it says. Default: false. */
  readonly continuesLast?: boolean;
  /** Functions that may be called. */
  readonly tools?: PyValue;
  readonly documents?: PyValue;
  /** Further variables of the template. */
  readonly variables?: Dict;
}

const MAX_CHARACTERS = 8 << 20;

/** The variables of a template. What transformers is not given is None, and so defined. */
export const variablesOf = (
  { messages, opensAnswer = true, tools = null, documents = null, variables }: Conversation,
  special: TemplateSource['special'],
): Dict =>
  new Map<string, PyValue>([
    ...Object.entries(special),
    ...(variables ?? []),
    ['messages', messages],
    ['tools', tools],
    ['documents', documents],
    ['add_generation_prompt', opensAnswer],
  ]);

/** Throws Error where the template is not one, fails, or writes too much. The variables are those of variablesOf(). */
export function chatRenderer({ text, toolText }: TemplateSource): (variables: Dict) => string {
  const compiled = new Map<string, JinjaTemplate>();
  const templateOf = (source: string): JinjaTemplate => {
    const found = compiled.get(source) ?? new JinjaTemplate(source, CHAT_ENVIRONMENT);
    compiled.set(source, found);
    return found;
  };
  return (variables) => {
    const hasTools = variables.get('tools') !== null;
    const rendered = templateOf(hasTools && toolText !== undefined ? toolText : text).render(variables);
    if (rendered.length > MAX_CHARACTERS) throw new Error(`it writes more than ${MAX_CHARACTERS} characters`);
    return rendered;
  };
}

/** What a template failed with, and its line where that helps to find it. */
export function problemOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  // What a template says itself names no line of its own.
  if (!(error instanceof TemplateProblem) || error.kind === 'TemplateError') return message;
  return `line ${error.line}: ${message}`;
}
