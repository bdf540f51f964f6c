/** Prompts, as arguments, files and programs give them. */
import { z } from 'zod';
import type { Dict } from '../python/value.js';
import { OWN_VARIABLES, ownVariable } from './limits.js';

const MAX_TOKENS = 1 << 20;
const MAX_MESSAGES = 10_000;
const MAX_TOOLS = 10_000;

/** What a chat template makes of other keys, such as `tool_calls`, is its own. */
const message = z
  .looseObject({
    /** `system`, `user`, `assistant`, `tool`, or what else the model's template knows. */
    role: z.string().min(1).max(100),
  })
  .refine((keys) => Object.keys(keys).length > 1, { message: 'there is no content', path: ['content'] })
  .refine(({ content = null }) => content === null || typeof content === 'string' || Array.isArray(content), {
    message: 'expected a text, a list of parts or null',
    path: ['content'],
  });
export type Message = Readonly<z.infer<typeof message>>;

const tokenId = z.number().int().min(0);
const records = z.array(z.record(z.string(), z.unknown())).max(MAX_TOOLS).readonly().nullable().optional();

/** A conversation and what else its template is given. */
const conversation = z.strictObject({
  messages: z.array(message).min(1).max(MAX_MESSAGES).readonly(),
  /** Functions that may be called, as JSON schemas. */
  tools: records,
  /** Texts to answer from, with titles. */
  documents: records,
  /** Further variables of the template, such as `enable_thinking`. */
  chat_template_kwargs: z
    .record(z.string(), z.unknown())
    .refine((variables) => ownVariable(Object.keys(variables)) === undefined, {
      message: `${OWN_VARIABLES.slice(0, -1).join(', ')} and ${OWN_VARIABLES.at(-1) ?? ''} stand beside it, not in it`,
    })
    .optional(),
  /** Whether the text ends with the beginning of an answer: true, unless the last message is to be continued. */
  add_generation_prompt: z.boolean().optional(),
});
export type ConversationPrompt = Readonly<z.infer<typeof conversation>>;

/** Exactly one of `prompt`, `tokens` and `messages`. */
export const promptSchema = z.union([
  /** A text, which gets the tokenizer's own special tokens. */
  z.strictObject({ prompt: z.string() }),
  /** Token ids as they are. */
  z.strictObject({ tokens: z.array(tokenId).min(1).max(MAX_TOKENS).readonly() }),
  /** A conversation, written as the model's own template says. */
  conversation,
]);
export type Prompt = Readonly<z.infer<typeof promptSchema>>;

/** Fields that a conversation may have beside its messages. */
export const BESIDE_MESSAGES: readonly string[] = Object.keys(conversation.shape).filter((key) => key !== 'messages');

/** A prompt and where it is from, for messages: `prompts.jsonl:17`. */
export interface NamedPrompt {
  readonly where: string;
  readonly prompt: Prompt;
  /** Of a conversation in a file: the line as Python reads it, with 1.0 as a float and keys in their order. */
  readonly exact?: Dict;
}
