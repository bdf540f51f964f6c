/** Scores of rows of tokens, by requests to a verifier. */
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
  const options = { tokens, signal, priority: PRIORITY.score, ...defined({ model, affinity }) };
  const found = new Map<number, number[]>();
  let foundTokens = 0;
  try {
    const request = ask(
      scoring.kind === 'classes'
        ? { kind: 'reward', positions: rows, ...options }
        : {
            kind: 'score',
            rows: rows.flatMap((position) => scoring.verdicts.map((target) => ({ position, target }))),
            ...options,
          },
    );
    for await (const event of request) {
      if (event.kind === 'failed') throw event.error;
      if (event.kind === 'end') ({ foundTokens } = event.result);
      if (event.kind === 'classes') found.set(event.row.position, [...event.row.logits]);
      // Rows of a position come in the order in which they were asked for.
      if (event.kind !== 'row') continue;
      const { position, logProb = NaN } = event.row;
      found.set(position, [...(found.get(position) ?? []), logProb]);
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : asPathFailure(error);
  }
  if (signal.aborted) throw signal.reason;
  const scores = rows.map((position) => {
    const values = found.get(position);
    if (values === undefined) throw new Error('The engine ended a score early.');
    const score = scoring.kind === 'classes' ? scoring.rule.of(values) : verdictScore(values[0]!, values[1] ?? NaN);
    return requireNumber(score);
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
