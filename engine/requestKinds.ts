/** Kinds of requests, and the sequences that compute them. */
import { UsageError } from '../errors.js';
import { counted } from '../system/text.js';
import { MAX_DRAFTS, usableDrafts } from './drafts.js';
import { MAX_SAMPLES } from './limits.js';
import {
  type ClassRow,
  type EngineRequest,
  type Generated,
  GenerateError,
  type GenerateRequest,
  type RequestEvent,
  type ResultOf,
  type RewardRequest,
  type RowRequest,
  type RowResult,
  type ScoreRequest,
  type SequenceLimits,
} from './request.js';
import type { TaskListener } from './task.js';

type Tell = (event: RequestEvent) => void;

interface PlannedSequence {
  readonly request: GenerateRequest;
  /** What it tells beside tokens and its end. */
  readonly listener?: (tell: Tell) => Partial<TaskListener>;
}

export interface RequestPlan<K extends EngineRequest['kind']> {
  readonly sequences: readonly PlannedSequence[];
  readonly resultOf: (results: readonly Generated[]) => ResultOf[K];
}

export interface ModelFacts extends SequenceLimits {
  readonly classes?: number | undefined;
  /** Tokens of its vocabulary; Infinity where that is not known. */
  readonly vocabSize: number;
}

/** Throws UsageError where the request cannot mean anything, GenerateError where the model cannot compute it. */
export function planRequest<R extends EngineRequest>(request: R, model: ModelFacts): RequestPlan<R['kind']> {
  return planOf(request, model) as RequestPlan<R['kind']>;
}

function planOf(request: EngineRequest, model: ModelFacts): RequestPlan<EngineRequest['kind']> {
  switch (request.kind) {
    case 'generate': {
      const { n = 1, sample = 0, signal: _, ...own } = request;
      requireWhole('n', n, 1, MAX_SAMPLES);
      requireWhole('sample', sample, 0);
      requireWhole('maxNewTokens', own.maxNewTokens, 0);
      requireWhole('minNewTokens', own.minNewTokens ?? 0, 0);
      if (own.scoreFrom !== Infinity) requireWhole('scoreFrom', own.scoreFrom ?? 1, 1);
      requireVocabulary(model);
      requireTokens(own.prompt, model);
      requireTokens(
        (own.sampling?.logitBias ?? []).map(([token]) => token),
        model,
        0,
      );
      const { drafts } = own;
      const { vocabSize } = model;
      // A token that the model does not have would end the step of all.
      const checked = drafts && {
        drafts: (tokens: readonly number[]) => usableDrafts(Array.from(drafts(tokens)), MAX_DRAFTS, vocabSize),
      };
      const sequences = Array.from({ length: n }, (_each, i) => ({
        request: { ...own, ...checked, sample: sample + i },
      }));
      return { sequences, resultOf: (results) => results };
    }
    case 'score':
      return planScore(request, model);
    case 'reward':
      return planReward(request, model);
    default:
      return request satisfies never;
  }
}

function requireWhole(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  const range = most < Number.MAX_SAFE_INTEGER ? `${least} to ${most}` : String(least);
  throw new UsageError(`${name}: ${value}: expected a whole number from ${range}`);
}

function requireVocabulary({ classes }: ModelFacts): void {
  if (classes === undefined) return;
  throw new UsageError(
    `the model has a head of ${counted(classes, 'class', 'classes')} and gives no tokens`,
    'ask it for class rows: engine.reward({ … })',
  );
}

/** Throws UsageError for too few tokens, and for those that the model has no embedding for. */
function requireTokens(tokens: readonly number[], { vocabSize }: ModelFacts, least = 1): void {
  if (tokens.length < least) throw new UsageError('a request without tokens', 'give at least one');
  const stray = tokens.find((token) => !Number.isInteger(token) || token < 0 || token >= vocabSize);
  if (stray !== undefined) throw new UsageError(`token ${stray}: the model has ${counted(vocabSize, 'token')}`);
}

/** Throws UsageError where a position is none of the tokens. */
function requireInside(positions: readonly number[], count: number): void {
  const outside = positions.find((at) => !Number.isInteger(at) || at < 0 || at >= count);
  if (outside !== undefined)
    throw new UsageError(`rows: position ${outside} is outside the ${counted(count, 'token')} that are given`);
}

/** The same tokens with rows from the first position on. */
function scored(tokens: readonly number[], positions: readonly number[]): GenerateRequest {
  const first = Math.min(...positions, tokens.length - 1);
  return { prompt: tokens, maxNewTokens: 0, scoreFrom: first + 1 };
}

function planScore({ tokens, rows }: ScoreRequest, model: ModelFacts): RequestPlan<'score'> {
  requireVocabulary(model);
  requireTokens(tokens, model);
  const positions = rows.map(({ position }) => position);
  requireInside(positions, tokens.length);
  for (const { position, target = tokens[position + 1], top = 0 } of rows)
    if (target !== tokens[position + 1] || top > 0)
      throw new GenerateError(
        `rows: the row at position ${position} asks for another token than the one that follows, which is not computed`,
      );
  const found = new Map<RowRequest, RowResult>();
  const add = (position: number, tell: Tell, result: Omit<RowResult, 'position'>): void => {
    for (const row of rows) {
      if (row.position !== position) continue;
      found.set(row, { position, ...result });
      tell({ kind: 'row', sample: 0, row: { position, ...result } });
    }
  };
  const listener = (tell: Tell): Partial<TaskListener> => ({
    onScore: ({ logProb, isArgmax, argmax, argmaxLogProb }, place) =>
      add(place - 1, tell, { logProb, isArgmax, argmax: { token: argmax, logProb: argmaxLogProb } }),
    onLast: ({ token, logProb }) => add(tokens.length - 1, tell, { argmax: { token, logProb } }),
  });
  return {
    sequences: [{ request: scored(tokens, positions), listener }],
    resultOf: () => rows.flatMap((row) => found.get(row) ?? []),
  };
}

function planReward({ tokens, positions }: RewardRequest, model: ModelFacts): RequestPlan<'reward'> {
  if (model.classes === undefined)
    throw new UsageError(
      'reward: the model has a vocabulary head, and no classes',
      'ask it for log-probabilities: engine.score({ … })',
    );
  requireTokens(tokens, model);
  requireInside(positions, tokens.length);
  const wanted = new Set(positions);
  const found = new Map<number, ClassRow>();
  const add = (position: number, tell: Tell, logits: Float32Array | undefined): void => {
    if (logits === undefined || !wanted.has(position)) return;
    found.set(position, { position, logits });
    tell({ kind: 'classes', sample: 0, row: { position, logits } });
  };
  const listener = (tell: Tell): Partial<TaskListener> => ({
    onScore: ({ classLogits }, place) => add(place - 1, tell, classLogits),
    onLast: (_, classLogits) => add(tokens.length - 1, tell, classLogits),
  });
  return {
    sequences: [{ request: scored(tokens, positions), listener }],
    resultOf: () => positions.flatMap((position) => found.get(position) ?? []),
  };
}
