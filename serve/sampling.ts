/** Fields of a body that completions and chats share: how tokens are chosen, and what ends an answer. */
import { z } from 'zod';
import { MAX_SAMPLES, MAX_TOP_LOGPROBS } from '../engine/limits.js';
import {
  isGreedy,
  needsRow,
  resolveSampling,
  samplingFields,
  type SamplingOptions,
  wholeFrom,
} from '../engine/options.js';
import { defined } from '../system/defined.js';
import { badRequest } from './apiError.js';
import type { ServedModel } from './models.js';

const MAX_TOKEN = 2 ** 31 - 1;
const MAX_STOPS = 64;
const MAX_STOP_CHARACTERS = 1000;
const MAX_STOP_TOKENS = 1024;
const MAX_BIASES = 1024;
const MAX_SEED = 2 ** 53;
/** Beyond any context of today's models. */
export const MAX_TOKENS = 1 << 20;

const tokenList = (most: number): z.ZodArray<z.ZodNumber> =>
  z.array(wholeFrom(0, MAX_TOKEN), 'expected a list of token ids').max(most, `expected at most ${most} tokens`);
const flag = z.boolean('expected true or false');
const stopText = z
  .string('expected a text, or a list of texts')
  .min(1, 'a stop text cannot be empty')
  .max(MAX_STOP_CHARACTERS, `expected at most ${MAX_STOP_CHARACTERS} characters`);

/** Fields without a value, or null, are absent. */
export const samplingShape = {
  temperature: samplingFields.temperature,
  top_p: samplingFields.topP,
  top_k: samplingFields.topK,
  min_p: samplingFields.minP,
  repetition_penalty: samplingFields.repetitionPenalty,
  presence_penalty: samplingFields.presencePenalty,
  frequency_penalty: samplingFields.frequencyPenalty,
  logit_bias: z.record(z.string(), z.unknown(), 'expected an object of biases by token id').optional(),
  seed: samplingFields.seed,
  n: wholeFrom(1, MAX_SAMPLES).optional(),
  stop: z
    .union([stopText, z.array(stopText).max(MAX_STOPS, `expected at most ${MAX_STOPS} texts`)], {
      error: 'expected a text that is not empty, or a list of such texts',
    })
    .optional(),
  stop_token_ids: tokenList(MAX_STOP_TOKENS).optional(),
  allowed_token_ids: tokenList(MAX_TOKENS).min(1, 'expected at least one token').optional(),
  include_stop_str_in_output: flag.optional(),
  min_tokens: wholeFrom(0, MAX_TOKENS).optional(),
  ignore_eos: flag.optional(),
  skip_special_tokens: flag.optional(),
  return_tokens_as_token_ids: flag.optional(),
  return_token_ids: flag.optional(),
  prompt_logprobs: wholeFrom(0, MAX_TOP_LOGPROBS).optional(),
  truncate_prompt_tokens: wholeFrom(-1, MAX_TOKENS).optional(),
  priority: wholeFrom(-MAX_TOKEN, MAX_TOKEN).optional(),
  stream: flag.optional(),
  stream_options: z
    .object(
      {
        include_usage: flag.nullish(),
        continuous_usage_stats: flag.nullish(),
      },
      'expected an object',
    )
    .optional(),
};

/** Values of these fields would change an answer in a way that there is not; others of them say nothing. */
const REFUSED: Readonly<Record<string, (value: unknown) => boolean>> = {
  bad_words: (value) => !Array.isArray(value) || value.length > 0,
  cache_salt: () => true,
  early_stopping: (value) => value !== false,
  kv_transfer_params: () => true,
  length_penalty: (value) => value !== 1,
  logits_processors: () => true,
  logprob_token_ids: () => true,
  prompt_embeds: () => true,
  stream_interval: (value) => value !== 1,
  use_beam_search: (value) => value !== false,
  vllm_xargs: () => true,
};

/**
 * The fields of a body that `schema` knows; others are ignored. Throws ApiError 400 for those that are out of range,
 * and for those that are known and not supported.
 */
export function readBody<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  body: Readonly<Record<string, unknown>>,
): z.infer<z.ZodObject<Shape>> {
  const present: [string, unknown][] = [];
  for (const entry of Object.entries(body)) {
    const [name, value] = entry;
    if (value === null || value === undefined) continue;
    if (Object.hasOwn(REFUSED, name) && REFUSED[name]!(value)) throw badRequest(`${name} is not supported`, name);
    present.push(entry);
  }
  const parsed = schema.safeParse(Object.fromEntries(present));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const [first, ...path] = issue?.path ?? [];
  const field = [
    first === undefined ? '' : String(first),
    ...path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)),
  ].join('');
  throw badRequest(`${field}: ${issue?.message ?? 'not understood'}`, field);
}

export type SamplingBody = Readonly<z.infer<z.ZodObject<typeof samplingShape>>>;

/** What an answer is made by, as choices and the engine take it. */
export interface AnswerOptions {
  /** With a seed: the client's, or a random one. */
  readonly sampling: SamplingOptions & { readonly seed: number };
  readonly n: number;
  readonly stop: readonly string[];
  readonly stopTokenIds: ReadonlySet<number>;
  /** The tokens that may be drawn; undefined: all. */
  readonly allowedTokens: readonly number[] | undefined;
  readonly includesStop: boolean;
  readonly minTokens: number;
  readonly ignoresEos: boolean;
  /** Whether texts leave special tokens out. */
  readonly skipsSpecial: boolean;
  /** Most likely tokens of each that is drawn, where an answer has them. */
  readonly topLogProbs: number | undefined;
  readonly promptLogProbs: number | undefined;
  /** Texts of tokens in log-probabilities are `token_id:N`. */
  readonly namesTokens: boolean;
  readonly returnsTokens: boolean;
  readonly truncateTo: number | undefined;
  readonly priority: number | undefined;
  readonly isStreamed: boolean;
  /** Usage in a chunk at the end of a stream, and in each. */
  readonly endsWithUsage: boolean;
  readonly hasUsageAlways: boolean;
}

/**
 * `topLogProbs`: how many most likely tokens an answer shows beside each; undefined: no log-probabilities. Throws
 * ApiError 400 for what excludes another, or is nothing of the model.
 */
export function answerOptions(body: SamplingBody, model: ServedModel, topLogProbs?: number): AnswerOptions {
  const { stream = false, stream_options: streamed, stop = [], prompt_logprobs: promptLogProbs } = body;
  if (streamed !== undefined && !stream) throw badRequest('stream_options: only with stream', 'stream_options');
  if (promptLogProbs !== undefined && stream) throw badRequest('prompt_logprobs: not with stream', 'prompt_logprobs');
  requireTokens(body.stop_token_ids ?? [], model, 'stop_token_ids');
  requireTokens(body.allowed_token_ids ?? [], model, 'allowed_token_ids');
  const sampling = defined({
    temperature: body.temperature ?? 1,
    topP: body.top_p,
    topK: body.top_k,
    minP: body.min_p,
    repetitionPenalty: body.repetition_penalty,
    presencePenalty: body.presence_penalty,
    frequencyPenalty: body.frequency_penalty,
    logitBias: biases(body.logit_bias, model),
  });
  return {
    sampling: { ...sampling, seed: body.seed ?? Math.floor(Math.random() * MAX_SEED) },
    n: body.n ?? 1,
    stop: typeof stop === 'string' ? [stop] : stop,
    stopTokenIds: new Set(body.stop_token_ids),
    allowedTokens: body.allowed_token_ids,
    includesStop: body.include_stop_str_in_output ?? false,
    minTokens: body.min_tokens ?? 0,
    ignoresEos: body.ignore_eos ?? false,
    skipsSpecial: body.skip_special_tokens ?? true,
    topLogProbs,
    promptLogProbs,
    namesTokens: body.return_tokens_as_token_ids ?? false,
    returnsTokens: body.return_token_ids ?? false,
    truncateTo: body.truncate_prompt_tokens,
    priority: body.priority,
    isStreamed: stream,
    endsWithUsage: streamed?.include_usage ?? false,
    hasUsageAlways: streamed?.continuous_usage_stats ?? false,
  };
}

function biases(
  given: Readonly<Record<string, unknown>> | undefined,
  model: ServedModel,
): readonly (readonly [number, number])[] | undefined {
  if (given === undefined) return undefined;
  const entries = Object.entries(given);
  if (entries.length > MAX_BIASES) throw badRequest(`logit_bias: expected at most ${MAX_BIASES} tokens`, 'logit_bias');
  return entries.map(([name, bias]) => {
    if (!/^\d{1,10}$/.test(name)) throw badRequest('logit_bias: expected token ids as names', 'logit_bias');
    if (typeof bias !== 'number' || !(bias >= -100 && bias <= 100))
      throw badRequest(`logit_bias.${name}: expected a number from -100 to 100`, 'logit_bias');
    requireTokens([Number(name)], model, 'logit_bias');
    return [Number(name), bias];
  });
}

/** Throws ApiError 400 for a token that the model does not have. */
export function requireTokens(tokens: readonly number[], { vocabSize }: ServedModel, param: string): void {
  for (const token of tokens)
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize)
      throw badRequest(`${param}: there is no token ${token}: expected a whole number below ${vocabSize}`, param);
}

/** What the engine is asked for by these options. `isGuided`: a grammar leaves tokens out. */
export function engineOptions(options: AnswerOptions, model: ServedModel, maxNewTokens: number, isGuided = false) {
  const { priority, allowedTokens } = options;
  const topLogProbs = maxNewTokens === 0 ? 0 : (options.topLogProbs ?? 0);
  const stopTokens = new Set([...(options.ignoresEos ? [] : model.eosTokenIds), ...options.stopTokenIds]);
  const minNewTokens = options.minTokens;
  const isMasked = isGuided || allowedTokens !== undefined;
  // The most likely token is the one that is drawn, which is known without a row of logits.
  const isArgmax = isDrawnArgmax(options.sampling) && !isMasked && (minNewTokens === 0 || stopTokens.size === 0);
  const sampling = { ...options.sampling, topLogProbs: topLogProbs === 1 && isArgmax ? 0 : topLogProbs };
  return { maxNewTokens, sampling, stopTokens, minNewTokens, ...defined({ priority, allowedTokens }) };
}

function isDrawnArgmax(options: SamplingOptions): boolean {
  const sampling = resolveSampling(options);
  return isGreedy(sampling) && !needsRow(sampling);
}

/** Throws ApiError 400 where a prompt and its answer are longer than the context. Returns the tokens of the answer. */
export function answerLength(
  promptTokens: number,
  asked: number | undefined,
  { maxLength }: ServedModel,
  byDefault = Infinity,
): number {
  const room = maxLength - promptTokens;
  const least = Math.min(1, asked ?? 1);
  if ((asked ?? least) <= room) return asked ?? Math.min(byDefault, room);
  const wanted = asked === undefined ? '' : ` and ${asked} for the answer`;
  throw badRequest(
    `This model's maximum context length is ${maxLength} tokens, and the request has ` +
      `${promptTokens} in its prompt${wanted}`,
    asked === undefined || promptTokens >= maxLength ? 'prompt' : 'max_tokens',
    'context_length_exceeded',
  );
}
