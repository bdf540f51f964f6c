/** The body of a chat completion that is searched for: one question, and `search`, which says how. */
import { z } from 'zod';
import { isSampled } from '../../search/plan.js';
import { searchFields, type SearchOptions, searchSchema } from '../../search/options.js';
import { isGiven, isRecord } from '../../system/json.js';
import { defined } from '../../system/defined.js';
import { badRequest } from '../apiError.js';
import { refuseFields } from '../chat/body.js';
import { type Message, readMessages, textOf } from '../chat/messages.js';
import { type ModelClient, requireModel, type ServedModel } from '../models.js';
import { requireScoring, type ScoringModel } from '../pooling/verifier.js';
import { readBody, samplingShape } from '../sampling.js';
import { readStructure } from '../structured.js';

type Json = Readonly<Record<string, unknown>>;

/** A search that can be made. */
export interface SearchRequest {
  readonly model: ServedModel;
  /** Undefined: the method needs none. */
  readonly verifier: ScoringModel | undefined;
  readonly options: SearchOptions & { readonly seed: number };
  readonly problem: string;
  readonly isStreamed: boolean;
  readonly endsWithUsage: boolean;
}

const MAX_SEED = 2 ** 53;
/** Of one request: what a client may have in work, and in its answer. */
const MAX_STEPS = 1 << 16;

const { temperature, top_p, seed, stream, stream_options } = samplingShape;
const bodySchema = z.object({ temperature, top_p, seed, stream, stream_options, model: z.unknown().optional() });

/** Options of a search by their names in `search`; those that the body has as fields of its own are not among them. */
const OPTIONS: ReadonlyMap<string, string> = new Map(
  Object.keys(searchFields)
    .filter((name) => !['temperature', 'topP', 'seed', 'system'].includes(name))
    .map((name) => [name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);
const OF_BODY: ReadonlySet<string> = new Set(['temperature', 'top_p', 'seed', 'stream', 'model']);

/** What searches call it that there is no system prompt. */
const NO_SYSTEM = 'none';

const is =
  (...values: readonly unknown[]) =>
  (value: unknown): boolean =>
    values.includes(value);
const isEmpty = (value: unknown): boolean => typeof value === 'object' && Object.keys(value ?? {}).length === 0;
const never = (): boolean => false;

/** Fields of chats that say nothing of a search, and the values of them that ask for nothing. */
const OTHERS: Readonly<
  Record<string, { readonly asksNothing: (value: unknown) => boolean; readonly instead?: string }>
> = {
  add_generation_prompt: { asksNothing: is(true) },
  allowed_token_ids: { asksNothing: never },
  chat_template_kwargs: { asksNothing: isEmpty },
  continue_final_message: { asksNothing: is(false) },
  documents: { asksNothing: isEmpty },
  echo: { asksNothing: is(false) },
  frequency_penalty: { asksNothing: is(0) },
  ignore_eos: { asksNothing: is(false), instead: 'search.ignore_eos says it' },
  include_stop_str_in_output: { asksNothing: is(false) },
  logit_bias: { asksNothing: isEmpty },
  logprobs: { asksNothing: is(false) },
  max_completion_tokens: { asksNothing: never, instead: 'search.max_step_tokens and search.iterations limit a path' },
  max_tokens: { asksNothing: never, instead: 'search.max_step_tokens and search.iterations limit a path' },
  min_p: { asksNothing: is(0) },
  min_tokens: { asksNothing: is(0) },
  n: { asksNothing: is(1), instead: 'search.n says how many paths there are' },
  presence_penalty: { asksNothing: is(0) },
  priority: { asksNothing: is(0) },
  prompt_logprobs: { asksNothing: never },
  reasoning_effort: { asksNothing: never },
  repetition_penalty: { asksNothing: is(1) },
  return_token_ids: { asksNothing: is(false) },
  return_tokens_as_token_ids: { asksNothing: is(false) },
  skip_special_tokens: { asksNothing: is(true) },
  stop: { asksNothing: isEmpty, instead: 'search.step_stop says what ends a step' },
  stop_token_ids: { asksNothing: isEmpty },
  tool_choice: { asksNothing: is('none', 'auto') },
  tools: { asksNothing: isEmpty },
  top_k: { asksNothing: is(0, -1) },
  top_logprobs: { asksNothing: is(0) },
  truncate_prompt_tokens: { asksNothing: never },
};

/** Throws ApiError. */
export function readSearch(client: ModelClient, given: Json): SearchRequest {
  refuseFields(given);
  for (const [field, { asksNothing, instead }] of Object.entries(OTHERS)) {
    const value = given[field];
    if (isGiven(value) && !asksNothing(value))
      throw badRequest(`${field}: not with search${instead === undefined ? '' : `: ${instead}`}`, field);
  }
  if (readStructure(given) !== undefined) throw badRequest('a form of the answer: not with search', 'response_format');
  const body = readBody(bodySchema, given);
  const { options, verifier } = readOptions(given['search']);
  const { method, n = 16, iterations = 40 } = options;
  if (n * (isSampled(method) ? 1 : iterations) > MAX_STEPS)
    throw badRequest(`search: n × iterations is more than ${MAX_STEPS} steps: ask for fewer`, 'search');
  const model = requireModel(client, body.model, 'text');
  const { temperature, top_p: topP, seed = Math.floor(Math.random() * MAX_SEED), stream: isStreamed = false } = body;
  if (body.stream_options !== undefined && !isStreamed)
    throw badRequest('stream_options: only with stream', 'stream_options');
  const { problem, system } = questionOf(readMessages(given['messages']));
  return {
    ...{ model, problem, isStreamed, endsWithUsage: body.stream_options?.include_usage ?? false },
    options: { ...options, ...defined({ temperature, topP, system }), seed },
    verifier: options.method === 'majority' ? undefined : requireVerifier(client, verifier, model),
  };
}

function readOptions(given: unknown): { readonly options: SearchOptions; readonly verifier: string | undefined } {
  if (!isRecord(given)) throw badRequest('search: expected an object, as {"method": "beam", "n": 16}', 'search');
  const { verifier, ...rest } = given;
  if (isGiven(verifier) && typeof verifier !== 'string')
    throw badRequest('search.verifier: expected the name of a model', 'search.verifier');
  const named = Object.entries(rest).filter(([, value]) => isGiven(value));
  for (const [name] of named) {
    if (OPTIONS.has(name)) continue;
    const shown = name.slice(0, 60);
    throw badRequest(
      OF_BODY.has(name)
        ? `search.${shown}: it is a field of the body, beside search`
        : `search.${shown}: there is no such field: there are ${[...OPTIONS.keys(), 'verifier'].join(', ')}`,
      `search.${shown}`,
    );
  }
  const parsed = searchSchema.safeParse(Object.fromEntries(named.map(([name, value]) => [OPTIONS.get(name), value])));
  if (parsed.success) return { options: parsed.data, verifier: verifier ?? undefined };
  const [issue] = parsed.error.issues;
  const [field] = [...OPTIONS].find(([, name]) => name === issue?.path[0]) ?? [''];
  const where = `search.${field}`;
  throw badRequest(`${where}: ${issue?.message ?? 'not understood'}`, where);
}

/** The verifier that is named, or the first model that gives scores and is not the one that writes. */
function requireVerifier(client: ModelClient, name: string | undefined, model: ServedModel): ScoringModel {
  const first = client.models.find((each) => each !== model && each.scoring !== undefined);
  if (name !== undefined || first !== undefined) return requireScoring(client, name ?? first?.names[0]);
  throw badRequest(
    'search: the server has no verifier: start it with --verifier MODEL, or ask for the method majority',
    'search.verifier',
  );
}

/** A search is of one question. `system`: undefined where the conversation has none, which leaves it to the search. */
function questionOf(messages: readonly Message[]): { readonly problem: string; readonly system: string | undefined } {
  const isSystem = (message: Message | undefined): boolean =>
    message?.role === 'system' || message?.role === 'developer';
  const [first] = messages;
  const system = isSystem(first) ? textOf(first!) : undefined;
  const [question, ...more] = system === undefined ? messages : messages.slice(1);
  if (question?.role !== 'user' || more.length > 0)
    throw badRequest('messages: a search answers one message of a user, behind one of the system at most', 'messages');
  const problem = textOf(question);
  if (problem.trim() === '') throw badRequest('messages: the question is empty', 'messages');
  return { problem, system: system === '' ? NO_SYSTEM : system };
}
