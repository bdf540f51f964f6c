/** Prompts, as arguments, files and programs give them. */
import { z } from 'zod';

const MOST_TOKENS = 1 << 20;
const MOST_MESSAGES = 10_000;

const message = z.strictObject({
  /** `system`, `user`, `assistant`, or what else the model's template knows. */
  role: z.string().min(1).max(100),
  content: z.string(),
});
export type Message = Readonly<z.infer<typeof message>>;

const tokenId = z.number().int().min(0);

/** Exactly one of three fields. */
export const promptSchema = z.union([
  /** A text, which gets the tokenizer's own special tokens. */
  z.strictObject({ prompt: z.string() }),
  /** Token ids as they are. */
  z.strictObject({ tokens: z.array(tokenId).min(1).max(MOST_TOKENS).readonly() }),
  /** A conversation, written as the model's own template says. */
  z.strictObject({ messages: z.array(message).min(1).max(MOST_MESSAGES).readonly() }),
]);
export type Prompt = Readonly<z.infer<typeof promptSchema>>;

/** A prompt and where it is from, for messages: `prompts.jsonl:17`. */
export interface NamedPrompt {
  readonly where: string;
  readonly prompt: Prompt;
}
