/** Kinds of requests, and the sequences that compute them. */
import { UsageError } from '../errors.js';
import { counted } from '../system/text.js';
import { MAX_ROWS_AT, MAX_SAMPLES, MAX_TOP_LOGPROBS } from './limits.js';
import { defined } from '../system/defined.js';
import { onlyTokens } from './guide.js';
import { beginningOf } from './promptNames.js';
import {
  type AllRows,
  type ClassRow,
  type EngineRequest,
  type Generated,
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
      const { n = 1, sample = 0, rows: given, allowedTokens, signal: _, isQuiet: _q, ...own } = request;
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
      requireTokens(allowedTokens ?? [], model, 0);
      if (allowedTokens?.length === 0) throw new UsageError('allowedTokens: no token is allowed', 'give at least one');
      const guide = allowedTokens === undefined ? own.guide : onlyTokens(allowedTokens, model.vocab ?? 0, own.guide);
      const rows = given !== undefined && 'top' in given ? allRows(own.prompt, given) : given;
      const asked = rows !== undefined && planRows(own.prompt, rows, model);
      const sequences = Array.from({ length: n }, (_each, i) => ({
        request: { ...own, ...defined({ guide }), sample: sample + i },
      })).map((each, i) =>
        // The others have the same prompt.
        i > 0 || asked === false
          ? each
          : { request: { ...each.request, ...rowsOf(own, asked.sorted) }, listener: asked.listener },
      );
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
  for (const token of tokens)
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize)
      throw new UsageError(`token ${token}: the model has ${counted(vocabSize, 'token')}`);
}

/** Throws UsageError where a position is none of the tokens. */
function requireInside(positions: readonly number[], count: number): void {
  const outside = positions.find((at) => !Number.isInteger(at) || at < 0 || at >= count);
  if (outside !== undefined)
    throw new UsageError(`rows: position ${outside} is outside the ${counted(count, 'token')} that are given`);
}

/** A row, and its place in the request. */
interface PlacedRow extends RowRequest {
  readonly index: number;
}

const allRows = ({ length }: readonly number[], { top }: AllRows): readonly RowRequest[] =>
  Array.from({ length: length - 1 }, (_, position) => (top > 0 ? { position, top } : { position }));

/** Rows in the order of their positions, with their targets. */
const inOrder = (tokens: readonly number[], rows: readonly RowRequest[]): readonly PlacedRow[] =>
  rows
    .map((row, index) => ({ target: tokens[row.position + 1], ...row, index }))
    .sort((a, b) => a.position - b.position);

/** What rows change of a continuation; without new tokens it ends with the last of them. */
const rowsOf = ({ prompt, maxNewTokens }: GenerateRequest, sorted: readonly PlacedRow[]): Partial<GenerateRequest> =>
  maxNewTokens === 0 ? scoredOnly(prompt, sorted) : { rows: sorted };

/** The tokens as far as they have rows, with nothing behind them. */
const scoredOnly = (tokens: readonly number[], sorted: readonly PlacedRow[]): GenerateRequest => ({
  prompt: beginningOf(tokens, (sorted.at(-1)?.position ?? 0) + 1),
  maxNewTokens: 0,
  ...(sorted.length === 0 ? {} : { rows: sorted }),
});

/** Throws UsageError where a position has more rows than a step is sure to have room for. */
function requireFew(sorted: readonly PlacedRow[]): void {
  const many = sorted.find(({ position }, i) => sorted[i + MAX_ROWS_AT]?.position === position);
  if (many !== undefined) throw new UsageError(`rows: more than ${MAX_ROWS_AT} rows at position ${many.position}`);
}

/** Rows in the order of their positions, and who is told of their answers. Throws UsageError as planRequest does. */
function planRows(tokens: readonly number[], rows: readonly RowRequest[], model: ModelFacts) {
  requireInside(
    rows.map(({ position }) => position),
    tokens.length,
  );
  const sorted = inOrder(tokens, rows);
  requireFew(sorted);
  for (const { target, top = 0 } of sorted) {
    requireTokens(target === undefined ? [] : [target], model, 0);
    requireWhole('rows: top', top, 0, MAX_TOP_LOGPROBS);
  }
  const found: RowResult[] = [];
  const listener = (tell: Tell): Partial<TaskListener> => ({
    onScore: ({ logProb, isArgmax, argmax, argmaxLogProb, top }, ask) => {
      const { index, position, target } = sorted[ask]!;
      const row: RowResult = {
        position,
        ...(target === undefined ? {} : { logProb, isArgmax }),
        argmax: { token: argmax, logProb: argmaxLogProb },
        ...defined({ top }),
      };
      found[index] = row;
      tell({ kind: 'row', sample: 0, row });
    },
  });
  return { sorted, listener, found };
}

function planScore({ tokens, rows }: ScoreRequest, model: ModelFacts): RequestPlan<'score'> {
  requireVocabulary(model);
  requireTokens(tokens, model);
  const { sorted, listener, found } = planRows(tokens, rows, model);
  return {
    sequences: [{ request: scoredOnly(tokens, sorted), listener }],
    resultOf: () => rows.flatMap((_, i) => found[i] ?? []),
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
  // A position that is asked for twice has one row.
  const once = [...new Set(positions)].map((position) => ({ position }));
  const sorted = inOrder(tokens, once);
  const found = new Map<number, ClassRow>();
  const listener = (tell: Tell): Partial<TaskListener> => ({
    onScore: ({ classLogits: logits }, ask) => {
      if (logits === undefined) return;
      const row: ClassRow = { position: sorted[ask]!.position, logits };
      found.set(row.position, row);
      tell({ kind: 'classes', sample: 0, row });
    },
  });
  return {
    sequences: [{ request: scoredOnly(tokens, sorted), listener }],
    resultOf: () => positions.flatMap((position) => found.get(position) ?? []),
  };
}
