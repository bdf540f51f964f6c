/** Prompts of tasks as conversations, written by the model's own chat template. */
import { UserError } from '../errors.js';
import { ChatTemplate, findChatTemplate, TemplateRefusal } from '../models/chat/template.js';
import type { Dict } from '../python/value.js';
import type { ChatMessage } from '../tasks/requests/prompt.js';
import type { Chat, DocumentRequests, Request } from '../tasks/requests/task.js';

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
  readonly #warn: (line: string) => void;
  readonly #variables: Dict;
  #asked: Asked[] = [];
  #hasWarned = false;

  /** Throws UserError where the checkpoint in `dir` has no template, or none of this name. */
  constructor(
    dir: string,
    isMultiturn: boolean,
    name: string | undefined,
    warn: (line: string) => void,
    variables: Dict = new Map(),
  ) {
    const found = findChatTemplate(dir, name);
    if (found === undefined)
      throw new UserError(
        `${dir}: the model has no chat template: none in chat_template.jinja, tokenizer_config.json or a GGUF file`,
        'leave out --apply_chat_template, or copy the template of the original model into the folder',
      );
    this.source = found.text;
    this.begin = found.special['bos_token'];
    this.#template = new ChatTemplate(found);
    this.#warn = warn;
    this.#variables = variables;
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
    for (const each of asked) texts.push(await this.#text(each));
    const requests = document.requests.map((request): Request => {
      // What is asked for by itself has no conversation before it.
      if (request.kind === 'loglikelihood_rolling' || request.context === '') return request;
      const context = texts[Number(request.context)];
      if (context === undefined) throw new Error(`conversation ${request.context} belongs to another document`);
      return { ...request, context };
    });
    return { ...document, requests };
  }

  /** A template that fails is tried without the system message, as the public harness does: some allow none. */
  async #text({ messages, opensAnswer }: Asked): Promise<string> {
    try {
      return await this.#render(messages, opensAnswer);
    } catch (error) {
      const others = messages.filter(({ role }) => role !== 'system');
      if (!(error instanceof TemplateRefusal) || others.length === messages.length) throw error;
      const text = await this.#render(others, opensAnswer);
      if (!this.#hasWarned) this.#warn(`${error.message}; conversations are written without their system message`);
      this.#hasWarned = true;
      return text;
    }
  }

  #render(messages: readonly ChatMessage[], opensAnswer: boolean): Promise<string> {
    const dicts = messages.map(({ role, content }) => new Map(Object.entries({ role, content })));
    return this.#template.render({
      messages: dicts,
      opensAnswer,
      continuesLast: !opensAnswer,
      variables: this.#variables,
    });
  }

  async close(): Promise<void> {
    await this.#template.close();
  }
}
