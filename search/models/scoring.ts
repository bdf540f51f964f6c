/** Scores of rows of tokens, by requests to a verifier. */
import type { RequestEvent, RewardRequest, ScoreRequest } from '../../engine/request.js';
import { UserError } from '../../errors.js';
import type { Score, ScoreRule } from '../../models/heads/head.js';
import { verdictScore } from '../../models/heads/languageVerifiers.js';
import { defined } from '../../system/defined.js';
import { type Ask, PRIORITY } from '../asking.js';
import { PathFailed } from '../ports.js';
import { asPathFailure } from './failures.js';

/** How numbers of a row become a score: of a head of classes, or of two tokens of a language model. */
export type Scoring =
  | { readonly kind: 'classes'; readonly rule: ScoreRule }
  | { readonly kind: 'verdicts'; readonly verdicts: readonly [right: number, wrong: number] };

/** What an engine is asked for the numbers of rows. */
export const rowsRequest = (
  scoring: Scoring,
  tokens: readonly number[],
  rows: readonly number[],
): ScoreRequest | RewardRequest =>
  scoring.kind === 'classes'
    ? { kind: 'reward', tokens, positions: rows }
    : {
        kind: 'score',
        tokens,
        rows: rows.flatMap((position) => scoring.verdicts.map((target) => ({ position, target }))),
      };

/** The numbers of each row, as they come. */
export class RowValues {
  private readonly found = new Map<number, readonly number[]>();

  take(event: RequestEvent): void {
    if (event.kind === 'classes') this.found.set(event.row.position, [...event.row.logits]);
    if (event.kind !== 'row') return;
    // Rows of a position come in the order in which they were asked for.
    const { position, logProb = NaN } = event.row;
    this.found.set(position, [...(this.found.get(position) ?? []), logProb]);
  }

  /** Undefined where the request was ended before the row was computed. */
  of(row: number, { kind }: Scoring): readonly number[] | undefined {
    const values = this.found.get(row);
    return kind === 'verdicts' && (values?.length ?? 0) < 2 ? undefined : values;
  }
}

/** The score of a row, of its numbers. */
export const scoreOf = (scoring: Scoring, values: readonly number[]): Score =>
  scoring.kind === 'classes' ? scoring.rule.of(values) : verdictScore(values[0]!, values[1]!);

export interface RowsAsk {
  readonly ask: Ask;
  readonly model: string | undefined;
  readonly scoring: Scoring;
}

export interface RowScores {
  readonly scores: readonly number[];
  /** Tokens of the request that were in pages already. */
  readonly foundTokens: number;
}

/** Rejects with PathFailed where a score is no finite number; with the signal's reason where that was aborted. */
export async function scoreRows(
  { ask, model, scoring }: RowsAsk,
  tokens: readonly number[],
  rows: readonly number[],
  { signal, affinity }: { readonly signal: AbortSignal; readonly affinity: number | undefined },
): Promise<RowScores> {
  const options = { signal, priority: PRIORITY.score, ...defined({ model, affinity }) };
  const found = new RowValues();
  let foundTokens = 0;
  try {
    for await (const event of ask({ ...rowsRequest(scoring, tokens, rows), ...options })) {
      if (event.kind === 'failed') throw event.error;
      if (event.kind === 'end') ({ foundTokens } = event.result);
      found.take(event);
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : asPathFailure(error);
  }
  if (signal.aborted) throw signal.reason;
  const scores = rows.map((row) => {
    const values = found.of(row, scoring);
    if (values === undefined) throw new Error('The engine ended a score early.');
    return requireNumber(scoreOf(scoring, values));
  });
  return { scores, foundTokens };
}

/** Throws UserError where no single number is what the verifier gives. */
function requireNumber(score: Score): number {
  if (typeof score !== 'number')
    throw new UserError(
      `the verifier gives a score for each of ${score.length} labels, and no single one`,
      'search with a verifier of one label or of two',
    );
  if (Number.isFinite(score)) return score;
  throw new PathFailed(`the verifier's score is ${score}`);
}
