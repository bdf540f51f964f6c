/** Renders a conversation with a checkpoint's own Jinja template. The template is a program of unknown origin. */
import { Template } from '@huggingface/jinja';

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/** What postMessage can copy to the thread that renders. */
export interface TemplateSource {
  readonly text: string;
  /** Names of special tokens that templates use: `bos_token`, `eos_token` … */
  readonly special: Readonly<Record<string, string>>;
}

const MOST_CHARACTERS = 8 << 20;

/** Throws Error where the template is not one, fails, or writes too much. */
export function chatRenderer({ text, special }: TemplateSource): (messages: readonly ChatMessage[]) => string {
  const template = new Template(text);
  return (messages) => {
    const rendered = template.render({ ...special, messages, add_generation_prompt: true });
    if (rendered.length > MOST_CHARACTERS) throw new Error(`it writes more than ${MOST_CHARACTERS} characters`);
    return rendered;
  };
}
