/** Prompts as tokens, checked against the model before anything is compiled. */
import { UserError } from '../errors.js';
import type { SamplingOptions } from '../engine/options.js';
import type { ConversationPrompt, NamedPrompt } from '../engine/prompts.js';
import type { Conversation } from '../models/chat/render.js';
import type { ChatTemplate } from '../models/chat/template.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { valueOf } from '../python/literal.js';
import { type Dict, isDict, isList, type PyValue } from '../python/value.js';
import { defined } from '../system/defined.js';
import { count } from '../system/text.js';
import type { Demand } from './cacheSize.js';

export interface TokenizedPrompt {
  readonly where: string;
  /** Name of its adapter. */
  readonly adapter?: string;
  readonly tokens: readonly number[];
  /** What a chat template wrote. */
  readonly written?: string;
}

export interface PromptLimits {
  /** Tokens that the model has embeddings for. */
  readonly vocabSize: number;
  /** Longest context, in tokens. */
  readonly maxPositions: number;
}

/** Texts that are encoded at a time. */
const BATCH = 1024;

/** How prompts become tokens. */
export interface PromptWriter {
  readonly tokenizer: Tokenizer;
  /** Absent where the checkpoint has none. */
  readonly template: ChatTemplate | undefined;
  /** Variables that every conversation's template gets unless the conversation says otherwise. */
  readonly variables?: Dict | undefined;
}

/** Tokens of each prompt. Rejects with UserError that names the first prompt that the model cannot take. */
export async function tokenizePrompts(
  prompts: readonly NamedPrompt[],
  writer: PromptWriter,
  limits: PromptLimits,
): Promise<readonly TokenizedPrompt[]> {
  const tokenized: TokenizedPrompt[] = [];
  for (let from = 0; from < prompts.length; from += BATCH) {
    const batch = prompts.slice(from, from + BATCH);
    const texts = batch.flatMap(({ prompt }) => ('prompt' in prompt ? [prompt.prompt] : []));
    const encoded = (await writer.tokenizer.encodeBatch(texts)).values();
    for (const { where, prompt, exact, adapter } of batch) {
      const { tokens, written } =
        'tokens' in prompt
          ? { tokens: prompt.tokens }
          : 'messages' in prompt
            ? await writeChat(where, conversationOf(prompt, exact, writer), writer)
            : { tokens: Array.from(encoded.next().value ?? []) };
      check(where, tokens, limits);
      tokenized.push({ where, tokens, ...defined({ written, adapter }) });
    }
  }
  return tokenized;
}

/** A conversation as its template gets it. */
export function conversationOf(
  prompt: ConversationPrompt,
  exact: Dict | undefined,
  { variables }: PromptWriter,
): Conversation {
  const given = exact ?? valueOf(prompt);
  const field = (name: string): PyValue | undefined => (isDict(given) ? given.get(name) : undefined);
  const messages = field('messages') ?? null;
  const own = field('chat_template_kwargs') ?? null;
  return {
    messages: isList(messages) ? messages : [],
    tools: field('tools') ?? null,
    documents: field('documents') ?? null,
    variables: new Map([...(variables ?? []), ...(isDict(own) ? own : [])]),
    opensAnswer: prompt.add_generation_prompt ?? true,
  };
}

/** The template names all special tokens: the tokenizer adds none. */
export async function writeChat(
  where: string,
  conversation: Conversation,
  { template, tokenizer }: PromptWriter,
): Promise<{ tokens: readonly number[]; written?: string }> {
  if (template === undefined)
    throw new UserError(
      `${where}: the model has no chat template: none in chat_template.jinja, tokenizer_config.json or a GGUF file`,
      'write the text yourself: {"prompt": "…"}, or copy the template of the original model into the folder',
    );
  try {
    const written = await template.render(conversation);
    return { tokens: await tokenizer.encodeWritten(written), written };
  } catch (error) {
    throw error instanceof UserError
      ? new UserError(`${where}: ${error.message}`, error.hint, { cause: error })
      : error;
  }
}

function check(where: string, tokens: readonly number[], { vocabSize, maxPositions }: PromptLimits): void {
  if (tokens.length === 0)
    throw new UserError(`${where}: the prompt has no tokens`, 'write something for the model to continue');
  const stray = tokens.find((token) => token >= vocabSize);
  if (stray !== undefined)
    throw new UserError(`${where}: token ${stray}: the model has ${vocabSize} tokens`, 'check the token ids');
  if (tokens.length > maxPositions)
    throw new UserError(
      `${where}: a prompt of ${count(tokens.length)} tokens: the model's context has ${count(maxPositions)}`,
      'shorten the prompt',
    );
}

/** Throws UserError where a bias is for a token that the model does not have. */
export function checkBiases(
  biases: SamplingOptions['logitBias'],
  { vocabSize }: Pick<PromptLimits, 'vocabSize'>,
): void {
  const stray = biases?.find(([token]) => token >= vocabSize);
  if (stray !== undefined)
    throw new UserError(`a logit bias for token ${stray[0]}: the model has ${vocabSize} tokens`, 'check the token ids');
}

/** What has to fit into memory. `several`: continuations of each prompt. */
export const demandOf = (
  prompts: readonly TokenizedPrompt[],
  maxNewTokens: number,
  limits: Pick<PromptLimits, 'maxPositions'>,
  several = 1,
): Demand =>
  demandOfLengths(
    prompts.map(({ where, tokens }) => ({ where, length: tokens.length })),
    { maxNewTokens, several, ...limits },
  );

/** What is asked of prompts of so many tokens. */
function demandOfLengths(
  prompts: readonly { readonly where: string; readonly length: number }[],
  { maxNewTokens, maxPositions, several }: { maxNewTokens: number; maxPositions: number; several: number },
): Demand {
  const longest = prompts.reduce((a, b) => (b.length > a.length ? b : a));
  const wholeOf = (length: number): number => Math.min(length + maxNewTokens, maxPositions);
  return {
    prompt: longest.length,
    where: longest.where,
    // A text that fills the memory says so.
    least: longest.length + 1,
    longest: wholeOf(longest.length),
    total: several * prompts.reduce((sum, { length }) => sum + wholeOf(length) + PARTIAL, 0),
  };
}

/** Tokens that a tokenizer adds to a text at most: its beginning, its end, and a space in front. */
const ADDED = 8;

/**
 * What probably has to fit into memory at most, before any text is tokenized: a token has at least one byte, unless a
 * tokenizer writes characters out as several. Undefined where a template writes a prompt, and for what will be refused.
 */
export function likelyDemand(
  prompts: readonly NamedPrompt[],
  maxNewTokens: number,
  { maxPositions, vocabSize }: PromptLimits,
  several = 1,
): Demand | undefined {
  const lengths = prompts.flatMap(({ where, prompt }) => {
    if ('messages' in prompt) return [];
    if (!('tokens' in prompt))
      return prompt.prompt === '' ? [] : [{ where, length: Buffer.byteLength(prompt.prompt) + ADDED }];
    const { length } = prompt.tokens;
    return length > 0 && prompt.tokens.every((token) => token < vocabSize) ? [{ where, length }] : [];
  });
  const isKnown = lengths.length === prompts.length && lengths.every(({ length }) => length <= maxPositions);
  return isKnown && lengths.length > 0 ? demandOfLengths(lengths, { maxNewTokens, maxPositions, several }) : undefined;
}

/** The last page of a sequence may be almost empty. */
const PARTIAL = 16;
