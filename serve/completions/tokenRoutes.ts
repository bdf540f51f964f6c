/** POST /tokenize and /detokenize, GET /tokenizer_info: for clients that have no tokenizer of their own. */
import { z } from 'zod';
import { badRequest } from '../apiError.js';
import { conversationShape, renderConversation } from '../chat/conversation.js';
import type { Exchange, Route } from '../exchange.js';
import { type ModelClient, requireAnyModel, type ServedModel } from '../models.js';
import { readBody, requireTokens } from '../sampling.js';
import { tokenTexts } from '../tokenTexts.js';

/** Tokens of a body: beyond any context of today's models. */
const MAX_TOKENS = 1 << 20;

const flag = z.boolean('expected true or false').optional();

const tokenizeSchema = z.object({
  model: z.unknown().optional(),
  prompt: z.string('expected a text').optional(),
  ...conversationShape,
  add_special_tokens: flag,
  return_token_strs: flag,
});

const detokenizeSchema = z.object({
  model: z.unknown().optional(),
  tokens: z.array(z.number('expected token ids'), 'expected a list of token ids').max(MAX_TOKENS),
});

type TokenizeBody = z.infer<typeof tokenizeSchema>;

export const tokenRoutes = (client: ModelClient): readonly Route[] => [
  {
    method: 'POST',
    path: '/tokenize',
    handle: async (exchange) => tokenize(client, exchange),
  },
  {
    method: 'POST',
    path: '/detokenize',
    handle: async (exchange) => {
      const body = readBody(detokenizeSchema, await exchange.json());
      const model = requireAnyModel(client, body.model);
      requireTokens(body.tokens, model, 'tokens');
      const stream = model.texts.detokenizer.stream('all');
      const prompt = body.tokens.map((token) => stream.push(token)).join('') + stream.end();
      exchange.reply(200, { prompt });
    },
  },
  {
    method: 'GET',
    path: '/tokenizer_info',
    handle: (exchange) => {
      const model = requireAnyModel(client, exchange.query.get('model'));
      exchange.reply(200, infoOf(model));
    },
  },
];

/** The harness reads `eos_token`: where no file of the tokenizer names one, it is what the model ends with. */
function infoOf({ texts, eosTokenIds }: ServedModel): Readonly<Record<string, unknown>> {
  const [eos] = eosTokenIds;
  if (texts.tokenizerInfo['eos_token'] !== undefined || eos === undefined) return texts.tokenizerInfo;
  return { ...texts.tokenizerInfo, eos_token: tokenTexts(texts.detokenizer).textOf(eos) };
}

async function tokenize(client: ModelClient, exchange: Exchange): Promise<void> {
  const given = await exchange.json();
  const body = readBody(tokenizeSchema, given);
  const model = requireAnyModel(client, body.model);
  const tokens = await tokensOf(given, body, model);
  const texts = tokenTexts(model.texts.detokenizer);
  const strings = body.return_token_strs === true ? { token_strs: tokens.map((token) => texts.textOf(token)) } : {};
  exchange.reply(200, { count: tokens.length, max_model_len: model.maxLength, tokens, ...strings });
}

async function tokensOf(
  given: Readonly<Record<string, unknown>>,
  body: TokenizeBody,
  model: ServedModel,
): Promise<readonly number[]> {
  const { texts } = model;
  const { prompt, messages, add_special_tokens: addSpecialTokens } = body;
  if ((prompt === undefined) === (messages === undefined)) throw badRequest('expected a prompt, or messages', 'prompt');
  if (prompt !== undefined) return (await texts.encode([prompt], addSpecialTokens))[0] ?? [];
  const rendered = await renderConversation(model, given, body);
  return addSpecialTokens === true ? ((await texts.encode([rendered.text], true))[0] ?? []) : rendered.tokens;
}
