/** Prompts of tasks as conversations, written by the model's own chat template. */
import { UserError } from '../../errors.js';
import { ChatTemplate, findChatTemplate } from '../../models/chatTemplate.js';
import type { ChatMessage } from '../../tasks/requests/messages.js';
import type { Chat, DocumentRequests, Request } from '../../tasks/requests/task.js';

interface Asked {
  readonly messages: readonly ChatMessage[];
  readonly opensAnswer: boolean;
}

/**
 * Conversations are noted while prompts are made, and written afterwards: a template runs in a thread of its own, and
 * requests are made without waiting. So a document must be written before the next one is made.
 */
export class TaskChat {
  /** The template, for results. */
  readonly source: string;
  /** The token that begins texts of this model, as its template writes it. */
  readonly begin: string | undefined;
  readonly chat: Chat;
  readonly #template: ChatTemplate;
  #asked: Asked[] = [];

  /** Throws UserError where the checkpoint in `dir` has no template, or none of this name. */
  constructor(dir: string, isMultiturn: boolean, name?: string) {
    const found = findChatTemplate(dir, name);
    if (found === undefined)
      throw new UserError(
        `${dir}: the model has no chat template: none in chat_template.jinja, tokenizer_config.json or a GGUF file`,
        'leave out --apply_chat_template, or copy the template of the original model into the folder',
      );
    this.source = found.text;
    this.begin = found.special['bos_token'];
    this.#template = new ChatTemplate(found);
    this.chat = {
      isMultiturn,
      render: (messages, opensAnswer) => String(this.#asked.push({ messages, opensAnswer }) - 1),
    };
  }

  /** The document with the texts of its conversations. */
  async write(document: DocumentRequests): Promise<DocumentRequests> {
    const asked = this.#asked;
    this.#asked = [];
    const texts: string[] = [];
    for (const { messages, opensAnswer } of asked)
      texts.push(continued(await this.#template.render(messages, opensAnswer), messages, opensAnswer));
    const requests = document.requests.map((request): Request => {
      if (request.kind === 'loglikelihood_rolling') return request;
      const context = texts[Number(request.context)];
      if (context === undefined) throw new Error(`conversation ${request.context} belongs to another document`);
      return { ...request, context };
    });
    return { ...document, requests };
  }

  async close(): Promise<void> {
    await this.#template.close();
  }
}

/** Where the last message is the beginning of an answer, what the template puts after it is left out. */
function continued(text: string, messages: readonly ChatMessage[], opensAnswer: boolean): string {
  const last = messages.at(-1)?.content ?? '';
  if (opensAnswer) return text;
  const exact = text.lastIndexOf(last);
  // Some templates strip what they are given.
  const found =
    exact >= 0 ? { at: exact, length: last.length } : { at: text.lastIndexOf(last.trim()), length: last.trim().length };
  if (found.at < 0) throw new UserError('the chat template does not write the beginning of the answer as it is given');
  return text.slice(0, found.at + found.length);
}
