/** The conversation of a body, as its template gets it. */
import { z } from 'zod';
import { ownVariable } from '../../engine/limits.js';
import { isDict } from '../../python/value.js';
import { badRequest } from '../apiError.js';
import { exactFields } from '../exactBody.js';
import type { ChatInput, ModelTexts, ServedModel } from '../models.js';
import { readMessages, shapeMessages, textOf } from './messages.js';
import { readTools } from './tools.js';
import { type TemplateTraits, traitsOf } from './traits.js';

const flag = z.boolean('expected true or false');

/** Fields of bodies that have a conversation. */
export const conversationShape = {
  messages: z.unknown().optional(),
  tools: z.unknown().optional(),
  add_generation_prompt: flag.optional(),
  continue_final_message: flag.optional(),
  documents: z.array(z.unknown(), 'expected a list').optional(),
  chat_template_kwargs: z.record(z.string(), z.unknown(), 'expected an object').optional(),
  reasoning_effort: z.string('expected a text').max(64, 'expected at most 64 characters').optional(),
};
type Conversation = Readonly<z.infer<z.ZodObject<typeof conversationShape>>>;

/** Variables of templates that say how the text is made, and are no client's. */
const RESERVED: ReadonlySet<string> = new Set(['continue_final_message', 'tokenize', 'chat_template', 'conversation']);

/** `given`: the body of which `body` is what was checked. Throws ApiError 400. */
export function conversationOf(
  given: Readonly<Record<string, unknown>>,
  body: Conversation,
  traits: TemplateTraits,
): ChatInput {
  const { continue_final_message: continues = false, add_generation_prompt: opens = !continues } = body;
  const messages = readMessages(body.messages);
  if (continues && opens)
    throw badRequest('continue_final_message: not with add_generation_prompt', 'continue_final_message');
  if (continues && textOf(messages.at(-1)!) === '')
    throw badRequest('continue_final_message: the last message has no text', 'continue_final_message');
  const exact = exactFields(given, ['tools', 'documents', 'chat_template_kwargs']);
  const own = exact['chat_template_kwargs'];
  const variables = isDict(own) ? Object.fromEntries(own) : (body.chat_template_kwargs ?? {});
  const names = Object.keys(variables);
  const hidden = ownVariable(names) ?? names.find((name) => RESERVED.has(name));
  if (hidden !== undefined)
    throw badRequest(
      `chat_template_kwargs.${hidden}: the request has a field for it, or it is not a client's to say`,
      'chat_template_kwargs',
    );
  const { reasoning_effort: effort } = body;
  return {
    messages: shapeMessages(messages, traits),
    tools: readTools(body.tools).length > 0 ? (exact['tools'] as readonly unknown[]) : undefined,
    documents: exact['documents'] as readonly unknown[] | undefined,
    addGenerationPrompt: opens,
    continueFinalMessage: continues,
    variables: { ...(effort === undefined ? {} : { reasoning_effort: effort }), ...variables },
  };
}

/** The text of a conversation and its ids. Rejects with ApiError 400. */
export async function renderConversation(
  model: ServedModel,
  given: Readonly<Record<string, unknown>>,
  body: Conversation,
): ReturnType<ModelTexts['renderChat']> {
  return model.texts.renderChat(conversationOf(given, body, await traitsOf(model)));
}
