/** Prompts as tokens, checked against the model before anything is compiled. */
import { UserError } from '../../errors.js';
import type { ConversationPrompt, NamedPrompt } from '../../generate/prompts.js';
import type { SamplingOptions } from '../../generate/sampling.js';
import type { ChatTemplate } from '../../models/chatTemplate.js';
import type { Conversation } from '../../models/renderChat.js';
import { valueOf } from '../../python/jsonValue.js';
import { isDict, isList, type Dict, type Value } from '../../python/value.js';
import type { Tokenizer } from '../../models/tokenizer.js';
import { count } from '../../system/format.js';
import type { Demand } from './cacheSize.js';

export interface TokenisedPrompt {
  readonly where: string;
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
export async function tokenisePrompts(
  prompts: readonly NamedPrompt[],
  writer: PromptWriter,
  limits: PromptLimits,
): Promise<readonly TokenisedPrompt[]> {
  const tokenised: TokenisedPrompt[] = [];
  for (let from = 0; from < prompts.length; from += BATCH) {
    const batch = prompts.slice(from, from + BATCH);
    const texts = batch.flatMap(({ prompt }) => ('prompt' in prompt ? [prompt.prompt] : []));
    const encoded = (await writer.tokenizer.encodeBatch(texts)).values();
    for (const { where, prompt, exact } of batch) {
      const { tokens, written } =
        'tokens' in prompt
          ? { tokens: prompt.tokens }
          : 'messages' in prompt
            ? await writeChat(where, conversationOf(prompt, exact, writer), writer)
            : { tokens: Array.from(encoded.next().value ?? []) };
      check(where, tokens, limits);
      tokenised.push({ where, tokens, ...(written === undefined ? {} : { written }) });
    }
  }
  return tokenised;
}

/** A conversation as its template gets it. */
function conversationOf(
  prompt: ConversationPrompt,
  exact: Dict | undefined,
  { variables }: PromptWriter,
): Conversation {
  const given = exact ?? valueOf(prompt);
  const field = (name: string): Value | undefined => (isDict(given) ? given.get(name) : undefined);
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
async function writeChat(
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
export function demandOf(
  prompts: readonly TokenisedPrompt[],
  maxNewTokens: number,
  { maxPositions }: Pick<PromptLimits, 'maxPositions'>,
  several = 1,
): Demand {
  const lengthOf = ({ tokens }: TokenisedPrompt): number => tokens.length;
  const longest = prompts.reduce((a, b) => (lengthOf(b) > lengthOf(a) ? b : a));
  const wholeOf = (prompt: TokenisedPrompt): number => Math.min(lengthOf(prompt) + maxNewTokens, maxPositions);
  return {
    prompt: lengthOf(longest),
    where: longest.where,
    // A text that fills the memory says so.
    least: lengthOf(longest) + 1,
    longest: wholeOf(longest),
    total: several * prompts.reduce((sum, each) => sum + wholeOf(each) + PARTIAL, 0),
  };
}

/** The last page of a sequence may be almost empty. */
const PARTIAL = 16;
