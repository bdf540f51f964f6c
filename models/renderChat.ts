/** Renders a conversation with a checkpoint's own Jinja template. The template is a program of unknown origin. */
import { Template } from '@huggingface/jinja';

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/** What the thread is asked to write. */
export interface ChatRequest {
  readonly messages: readonly ChatMessage[];
  readonly opensAnswer: boolean;
}

/** What postMessage can copy to the thread that renders. */
export interface TemplateSource {
  readonly text: string;
  /** Names of special tokens that templates use: `bos_token`, `eos_token` … */
  readonly special: Readonly<Record<string, string>>;
}

const MOST_CHARACTERS = 8 << 20;

/**
 * Throws Error where the template is not one, fails, or writes too much. `opensAnswer`, true by default: the text ends
 * with the beginning of an answer.
 */
export function chatRenderer({
  text,
  special,
}: TemplateSource): (messages: readonly ChatMessage[], opensAnswer?: boolean) => string {
  const template = new Template(text);
  return (messages, opensAnswer = true) => {
    const rendered = template.render({ ...special, messages, add_generation_prompt: opensAnswer });
    if (rendered.length > MOST_CHARACTERS) throw new Error(`it writes more than ${MOST_CHARACTERS} characters`);
    return rendered;
  };
}
