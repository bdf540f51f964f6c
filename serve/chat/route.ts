/** POST /v1/chat/completions: conversations, written by the model's template, get their answers. */
import { isGiven } from '../../system/json.js';
import { type ChoiceListener, Choices } from '../choices.js';
import type { EventStream, Exchange, Route } from '../exchange.js';
import { askOf, type ModelClient } from '../models.js';
import { engineOptions } from '../sampling.js';
import { answerHead, StreamedChat, WholeChat } from './answer.js';
import { type ChatRequest, readChat } from './body.js';

/** Answers a body that asks for a search. */
export type AnswerSearch = (
  client: ModelClient,
  given: Readonly<Record<string, unknown>>,
  exchange: Exchange,
) => Promise<void>;

export const chatRoutes = (client: ModelClient, answerSearch: AnswerSearch): readonly Route[] => [
  {
    method: 'POST',
    path: '/v1/chat/completions',
    handle: async (exchange) => {
      const given = await exchange.json();
      if (isGiven(given['search'])) return answerSearch(client, given, exchange);
      const chat = await readChat(client, given);
      if (exchange.signal.aborted) return;
      const answer = chat.options.isStreamed ? stream : reply;
      await answer(client, chat, exchange);
    },
  },
];

async function reply(client: ModelClient, chat: ChatRequest, exchange: Exchange): Promise<void> {
  const head = answerHead(chat, exchange.id);
  const answer = new WholeChat(chat);
  const usage = await ended(submit(client, chat, answer), exchange.signal);
  exchange.replyText(200, head + answer.json(usage), 'application/json');
}

async function stream(client: ModelClient, chat: ChatRequest, exchange: Exchange): Promise<void> {
  const head = answerHead(chat, exchange.id);
  let opened: EventStream | undefined;
  // What fails before the first chunk is an error over HTTP.
  const open = (): EventStream => (opened ??= exchange.stream());
  try {
    const answer = new StreamedChat(chat, head, open);
    const choices = submit(client, chat, answer);
    answer.usage = () => choices.usage;
    const usage = await ended(choices, exchange.signal);
    if (chat.options.endsWithUsage) open().send(`${head}],"usage":${answer.usageJson(usage)}}`);
    open().end();
  } catch (error) {
    if (opened === undefined) throw error;
    opened.fail(error);
  }
}

function submit(client: ModelClient, chat: ChatRequest, listener: ChoiceListener): Choices {
  const { model, options, prompt, maxTokens, grammar, prediction } = chat;
  const request = {
    ...({ kind: 'generate', ...askOf(model), prompt, n: options.n } as const),
    ...engineOptions(options, model, maxTokens, grammar !== undefined),
    ...(grammar === undefined ? {} : { grammar }),
    ...(prediction === undefined ? {} : { prediction: prediction.tokens }),
  };
  const shown = options.skipsSpecial ? chat.marks : 'all';
  const openText = () => model.texts.detokenizer.stream(shown);
  return new Choices(client, request, { ...options, eosTokenIds: model.eosTokenIds, openText, prediction }, listener);
}

/** What the choices used, once they have ended. Ends them where the client is gone. */
async function ended(choices: Choices, signal: AbortSignal) {
  const cancel = (): void => choices.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  try {
    if (signal.aborted) cancel();
    return await choices.ended;
  } finally {
    signal.removeEventListener('abort', cancel);
  }
}
