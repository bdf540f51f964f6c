/** The body of a completion: prompts in four forms, and what is asked of each. */
import { z } from 'zod';
import { MAX_SAMPLES, MAX_TOP_LOGPROBS } from '../../engine/limits.js';
import { wholeFrom } from '../../engine/options.js';
import type { GrammarSource } from '../../grammar/source.js';
import { badRequest } from '../apiError.js';
import { type ModelClient, requireModel, type ServedModel } from '../models.js';
import { encodePrompts, readPrompts } from '../prompts.js';
import { answerLength, type AnswerOptions, answerOptions, MAX_TOKENS, readBody, samplingShape } from '../sampling.js';
import { readStructure } from '../structured.js';

/** What is written where a body does not say: as OpenAI has it. */
const DEFAULT_TOKENS = 16;
const MAX_CHOICES = 1024;
/** Log-probabilities of an answer, each with a text: some 40 bytes. */
const MAX_NUMBERS = 1 << 22;

const flag = z.boolean('expected true or false');

const bodySchema = z.object({
  ...samplingShape,
  model: z.unknown().optional(),
  prompt: z.unknown().optional(),
  suffix: z.string('expected a text').optional(),
  max_tokens: wholeFrom(0, MAX_TOKENS).optional(),
  echo: flag.optional(),
  logprobs: wholeFrom(0, MAX_TOP_LOGPROBS).optional(),
  best_of: wholeFrom(1, MAX_SAMPLES).optional(),
  add_special_tokens: flag.optional(),
});

export interface CompletionPrompt {
  readonly tokens: readonly number[];
  /** The client's; absent where it gave tokens, or its text was cut. */
  readonly text: string | undefined;
  readonly maxTokens: number;
}

export interface Completion {
  readonly model: ServedModel;
  readonly prompts: readonly CompletionPrompt[];
  readonly options: AnswerOptions;
  readonly echoes: boolean;
  /** Drawn of each prompt: as many as its choices, or more. */
  readonly drawn: number;
  /** What its texts have to be. */
  readonly grammar: GrammarSource | undefined;
}

/** Throws ApiError. */
export async function readCompletion(
  client: ModelClient,
  given: Readonly<Record<string, unknown>>,
): Promise<Completion> {
  const body = readBody(bodySchema, given);
  const model = requireModel(client, body.model, 'text');
  const options = answerOptions(body, model, body.logprobs);
  const { best_of: bestOf = options.n, echo: echoes = false } = body;
  if (body.suffix !== undefined && body.suffix !== '')
    throw badRequest('suffix: the model does not fill in the middle of a text', 'suffix');
  if (bestOf < options.n) throw badRequest(`best_of: expected ${options.n}, which is n, or more`, 'best_of');
  if (body.best_of !== undefined && options.isStreamed) throw badRequest('best_of: not with stream', 'best_of');
  const grammar = readStructure(given);
  const prompts = readPrompts(body.prompt, model, 'prompt');
  if (prompts.length * bestOf > MAX_CHOICES)
    throw badRequest(`a request has at most ${MAX_CHOICES} choices, for all its prompts together`, 'n');
  if (grammar !== undefined) await client.checkGrammar(model, grammar);
  const encoded = await encodePrompts(prompts, model, body.add_special_tokens);
  const completion = {
    model,
    options,
    echoes,
    drawn: bestOf,
    grammar,
    prompts: encoded.map((tokens, i) => {
      const length = cutLength(tokens.length, options.truncateTo, body.max_tokens ?? 1, model);
      if (length === 0) throw badRequest(`${placeOf(i, prompts)} has no tokens`, 'prompt');
      const prompt = prompts[i]!;
      return {
        tokens: length < tokens.length ? tokens.slice(tokens.length - length) : tokens,
        text: typeof prompt === 'string' && length === tokens.length ? prompt : undefined,
        maxTokens: answerLength(length, body.max_tokens, model, DEFAULT_TOKENS),
      };
    }),
  };
  requireFewNumbers(completion);
  return completion;
}

/** Throws ApiError 400 where an answer may have more log-probabilities than there is memory for. */
function requireFewNumbers({ prompts, options, drawn, echoes }: Completion): void {
  const { topLogProbs, promptLogProbs } = options;
  const ofAnswer = topLogProbs === undefined ? 0 : 1 + topLogProbs;
  const ofPrompt = promptLogProbs === undefined ? 0 : 1 + promptLogProbs;
  const total = prompts.reduce((sum, { tokens, maxTokens }) => {
    const perChoice = ofAnswer * (maxTokens + (echoes ? tokens.length : 0)) + ofPrompt * tokens.length;
    return sum + drawn * perChoice;
  }, 0);
  if (total <= MAX_NUMBERS) return;
  throw badRequest(
    `the answer may have ${total} log-probabilities, and the limit is ${MAX_NUMBERS}: ask for fewer prompts at a time`,
    topLogProbs === undefined ? 'prompt_logprobs' : 'logprobs',
  );
}

/** Tokens that are left of a prompt; −1 asks for as many as fit beside the answer. */
function cutLength(tokens: number, truncateTo: number | undefined, answer: number, { maxLength }: ServedModel): number {
  if (truncateTo === undefined) return tokens;
  return Math.min(tokens, truncateTo < 0 ? Math.max(1, maxLength - answer) : truncateTo);
}

const placeOf = (index: number, prompts: readonly unknown[]): string =>
  prompts.length === 1 ? 'prompt' : `prompt[${index}]`;
