/** POST /pooling, /classify, /score and /rerank: what reward models and other verifiers say of texts. */
import { z } from 'zod';
import { wholeFrom } from '../../engine/options.js';
import { type Score, sigmoid, softmax } from '../../models/heads/head.js';
import {
  type LaidOut,
  layOutConversation,
  layOutSteps,
  layOutTokens,
  type SolutionWriter,
} from '../../models/heads/solutionTexts.js';
import { badRequest } from '../apiError.js';
import type { Exchange, Route } from '../exchange.js';
import type { ModelClient } from '../models.js';
import { encodePrompts, readPrompts } from '../prompts.js';
import { readBody } from '../sampling.js';
import {
  laidOut,
  requireScoring,
  type ScoredRow,
  type ScoredText,
  scoreText,
  type ScoringModel,
  writerOf,
  writeTurns,
} from './verifier.js';

const MAX_STEPS = 10_000;
const MAX_MESSAGES = 10_000;
/** Texts of a request. */
export const MAX_TEXTS = 1024;

const model = z.unknown().optional();
const text = z.string('expected a text');
const texts = z.array(text).min(1, 'expected at least one text').max(MAX_TEXTS, `expected at most ${MAX_TEXTS} texts`);
const oneOrMore = z.union([text, texts], { error: 'expected a text, or a list of texts' });
const flag = z.boolean('expected true or false').optional();

const textFields = {
  model,
  input: z.unknown().optional(),
  messages: z
    .array(z.record(z.string(), z.unknown()), 'expected a list of messages')
    .min(1)
    .max(MAX_MESSAGES)
    .optional(),
  add_special_tokens: flag,
  use_activation: flag,
};

const poolingSchema = z.object({
  ...textFields,
  question: text.optional(),
  steps: z.array(text, 'expected a list of texts').min(1).max(MAX_STEPS).optional(),
  rows: z
    .array(wholeFrom(0, 1 << 20))
    .min(1)
    .max(1 << 20)
    .optional(),
  task: z.enum(['score', 'classify', 'token_classify'], 'expected score, classify or token_classify').optional(),
});

const classifySchema = z.object(textFields);
const scoreSchema = z.object({ model, text_1: oneOrMore, text_2: oneOrMore });
const rerankSchema = z.object({
  model,
  query: text,
  documents: z
    .array(z.union([text, z.object({ text })], { error: 'expected a text, or an object with one' }))
    .min(1, 'expected at least one document')
    .max(MAX_TEXTS, `expected at most ${MAX_TEXTS} documents`),
  top_n: wholeFrom(0, 2 ** 31 - 1).optional(),
  return_documents: flag,
});

type Handler = (client: ModelClient, exchange: Exchange) => Promise<void>;

/** By all the paths that clients know. */
const HANDLERS: readonly (readonly [paths: readonly string[], handle: Handler])[] = [
  [['/pooling'], pooling],
  [['/classify'], classify],
  [['/score', '/v1/score'], score],
  [['/rerank', '/v1/rerank', '/v2/rerank'], rerank],
];

export const poolingRoutes = (client: ModelClient): readonly Route[] =>
  HANDLERS.flatMap(([paths, handle]) =>
    paths.map((path): Route => ({ method: 'POST', path, handle: (exchange) => handle(client, exchange) })),
  );

const beginning = (kind: string, { id }: Exchange, { names }: ScoringModel) => ({
  id: `${kind}-${id}`,
  object: 'list',
  created: Math.floor(Date.now() / 1000),
  model: names[0],
});

function usageOf(scored: readonly ScoredText[]) {
  const sum = (name: 'promptTokens' | 'cachedTokens'): number => scored.reduce((all, each) => all + each[name], 0);
  const tokens = sum('promptTokens');
  return {
    prompt_tokens: tokens,
    completion_tokens: 0,
    total_tokens: tokens,
    prompt_tokens_details: { cached_tokens: sum('cachedTokens') },
  };
}

/** All texts, or the first error; others are then of no use. */
async function scoreAll(
  client: ModelClient,
  asked: ScoringModel,
  all: readonly LaidOut[],
  { verdicts }: SolutionWriter,
  { signal }: Exchange,
): Promise<readonly ScoredText[]> {
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  try {
    return await Promise.all(all.map((each) => scoreText(client, asked, each, verdicts, either)));
  } catch (error) {
    failed.abort();
    throw error;
  }
}

type Body = z.infer<typeof poolingSchema>;

/** Texts that a body has, laid out. `rowsOf`: the rows of tokens, where the body does not say. */
async function textsOf(
  body: Body,
  asked: ScoringModel,
  writer: SolutionWriter,
  rowsOf: (param: string, tokens: readonly number[]) => LaidOut | Promise<LaidOut>,
): Promise<readonly LaidOut[]> {
  const { input, messages, question, steps, rows } = body;
  const given = [input, messages, question].filter((each) => each !== undefined).length;
  if (given !== 1) throw badRequest('expected one of input, messages, and question with steps', 'input');
  if (question !== undefined) {
    if (steps === undefined) throw badRequest('steps: expected a list of texts', 'steps');
    return [await laidOut(asked, 'question', () => layOutSteps('question', question, steps, writer))];
  }
  if (messages !== undefined) {
    const turns = messages.map((each) => ({ ...each, role: String(each['role']) }));
    const write = async () => (await writeTurns(asked, messages)).tokens;
    return [await laidOut(asked, 'messages', () => layOutConversation('messages', turns, writer, write))];
  }
  const all = await encodePrompts(readPrompts(input, asked, 'input'), asked, body.add_special_tokens);
  if (rows !== undefined && all.length > 1) throw badRequest('rows: only with one input', 'rows');
  return Promise.all(
    all.map((tokens) => {
      const outside = rows?.find((row) => row >= tokens.length);
      if (outside !== undefined)
        throw badRequest(`rows: ${outside} is behind the last of ${tokens.length} tokens`, 'rows');
      return laidOut(asked, 'input', async () => (rows === undefined ? rowsOf('input', tokens) : { tokens, rows }));
    }),
  );
}

/** Scores at the rows that the verifier reads; with `token_classify` a row a token. */
async function pooling(client: ModelClient, exchange: Exchange): Promise<void> {
  const body = readBody(poolingSchema, await exchange.json());
  const asked = requireScoring(client, body.model);
  const writer = await writerOf(asked);
  const { task = 'score', use_activation: isActivated = true } = body;
  const isOfAll = task === 'token_classify';
  const rowsOf = (param: string, tokens: readonly number[]): LaidOut | Promise<LaidOut> =>
    isOfAll ? allRows({ tokens }) : layOutTokens(param, tokens, writer);
  const laid = await textsOf(body, asked, writer, rowsOf);
  const all = isOfAll && body.rows === undefined ? laid.map(allRows) : laid;
  const scored = await scoreAll(client, asked, all, writer, exchange);
  const valueOf = (row: ScoredRow): Score =>
    task === 'score' ? row.score : isActivated ? probabilities(row) : (row.logits ?? row.score);
  const data = scored.map(({ rows }, index) => ({ index, object: 'pooling', data: rows.map(valueOf) }));
  exchange.reply(200, { ...beginning('pool', exchange, asked), data, usage: usageOf(scored) });
}

const allRows = ({ tokens }: Pick<LaidOut, 'tokens'>): LaidOut => ({ tokens, rows: [...tokens.keys()] });

/** Of each class; of one class the sigmoid. A language model has the two of its verdicts. */
function probabilities({ score: own, logits }: ScoredRow): readonly number[] {
  if (logits === undefined) return typeof own === 'number' ? [1 - own, own] : own;
  return logits.length === 1 ? [sigmoid(logits[0]!)] : softmax(logits);
}

async function classify(client: ModelClient, exchange: Exchange): Promise<void> {
  const body = readBody(classifySchema, await exchange.json());
  const asked = requireScoring(client, body.model);
  const writer = { ...(await writerOf(asked)), layout: { kind: 'answer', chat: () => [] } } as const;
  const laid = await textsOf(body, asked, writer, (param, tokens) => layOutTokens(param, tokens, writer));
  const scored = await scoreAll(client, asked, laid, writer, exchange);
  const data = scored.map(({ rows }, index) => {
    const probs = probabilities(rows[0]!);
    const best = probs.length === 1 ? 0 : probs.indexOf(Math.max(...probs));
    const shown = body.use_activation === false ? (rows[0]!.logits ?? probs) : probs;
    return { index, label: asked.scoring.labels[best] ?? `LABEL_${best}`, probs: shown, num_classes: probs.length };
  });
  exchange.reply(200, { ...beginning('classify', exchange, asked), data, usage: usageOf(scored) });
}

/** A question and its answer as one step. */
async function scorePairs(
  client: ModelClient,
  exchange: Exchange,
  asked: ScoringModel,
  pairs: readonly (readonly [question: string, answer: string])[],
): Promise<{ readonly scores: readonly number[]; readonly scored: readonly ScoredText[] }> {
  const writer = await writerOf(asked);
  const laid = await Promise.all(
    pairs.map(([question, answer]) => laidOut(asked, 'text', () => layOutSteps('text', question, [answer], writer))),
  );
  const scored = await scoreAll(client, asked, laid, writer, exchange);
  const scores = scored.map(({ rows }) => {
    const own = rows.at(-1)?.score;
    if (typeof own === 'number') return own;
    throw badRequest('the model gives a number for each of several classes: ask it by /classify', 'model');
  });
  return { scores, scored };
}

async function score(client: ModelClient, exchange: Exchange): Promise<void> {
  const body = readBody(scoreSchema, await exchange.json());
  const asked = requireScoring(client, body.model);
  const [first, second] = [[body.text_1].flat(), [body.text_2].flat()];
  if (first.length !== 1 && first.length !== second.length)
    throw badRequest(
      `text_1 has ${first.length} texts and text_2 ${second.length}: expected one, or as many`,
      'text_1',
    );
  const pairs = second.map((each, i) => [first.length === 1 ? first[0]! : first[i]!, each] as const);
  const { scores, scored } = await scorePairs(client, exchange, asked, pairs);
  const data = scores.map((each, index) => ({ index, object: 'score', score: each }));
  exchange.reply(200, { ...beginning('score', exchange, asked), data, usage: usageOf(scored) });
}

/** Documents, the best first; of equals the one that came first. */
async function rerank(client: ModelClient, exchange: Exchange): Promise<void> {
  const body = readBody(rerankSchema, await exchange.json());
  const asked = requireScoring(client, body.model);
  const documents = body.documents.map((each) => (typeof each === 'string' ? each : each.text));
  const pairs = documents.map((each) => [body.query, each] as const);
  const { scores, scored } = await scorePairs(client, exchange, asked, pairs);
  const isShown = body.return_documents !== false;
  const results = documents
    .map((each, index) => ({
      index,
      ...(isShown ? { document: { text: each } } : {}),
      relevance_score: scores[index]!,
    }))
    .sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index);
  // 0 asks for all, as vLLM has it.
  const shown = body.top_n === undefined || body.top_n === 0 ? results : results.slice(0, body.top_n);
  const { id, model: name } = beginning('rerank', exchange, asked);
  exchange.reply(200, { id, model: name, usage: usageOf(scored), results: shown });
}
