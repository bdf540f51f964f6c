/** Collects scores of single tokens, in any order, until questions are whole. */
import { UserError } from '../errors.js';
import type { Scores } from './metrics.js';
import type { ScoredRows } from './scorer.js';
import type { Turn } from './turns.js';
import { questionName, type TokenizedQuestion } from './tokenize.js';
import type { Answer, ScoredToken } from './tree.js';

/** Where the tokens of choices are scored that are whole in one call. */
export const scoredTokens = (answers: readonly Answer[]): ScoredToken[] =>
  answers.flatMap(({ question, choice, scored }) =>
    Array.from(scored, (row, index): ScoredToken => ({ row, question, choice, index })),
  );

/** A choice with some of its tokens scored. */
interface Choice {
  /** f64[n_cont]; NaN where the score is not known yet. */
  readonly logProb: Float64Array;
  isGreedy: boolean;
  missing: number;
}

interface Unfinished {
  readonly choices: readonly Choice[];
  /** Choices with tokens that are not scored yet. */
  missing: number;
}

export class AnswerCollector {
  readonly #questions: readonly TokenizedQuestion[];
  readonly #unfinished = new Map<number, Unfinished>();
  readonly #finished = new Set<number>();

  readonly #keepsTokens: boolean;

  /** `keepsTokens`: scores name the log-probability of every token. */
  constructor(questions: readonly TokenizedQuestion[], keepsTokens = false) {
    this.#questions = questions;
    this.#keepsTokens = keepsTokens;
  }

  /** The questions that the results of a call complete, by doc_id. A token that was scored before is ignored. */
  take(scored: readonly ScoredToken[], { logProb, isArgmax }: ScoredRows): Scores[] {
    const finished: Scores[] = [];
    for (const { row, question, choice, index } of scored) {
      if (this.#finished.has(question)) continue;
      const source = this.#questions[question]!;
      const unfinished = this.#unfinished.get(question) ?? begin(source);
      this.#unfinished.set(question, unfinished);
      const found = unfinished.choices[choice]!;
      if (!Number.isNaN(found.logProb[index])) continue;
      found.logProb[index] = logProb[row]!;
      found.isGreedy &&= isArgmax[row] === 1;
      if (--found.missing > 0 || --unfinished.missing > 0) continue;
      this.#unfinished.delete(question);
      this.#finished.add(question);
      finished.push({
        docId: source.docId,
        // Added in token order and in float64: the sum does not depend on how the choice was batched.
        ll: unfinished.choices.map((each) => each.logProb.reduce((sum, value) => sum + value, 0)),
        greedy: unfinished.choices.map(({ isGreedy }) => isGreedy),
        ...(this.#keepsTokens ? { tokens: unfinished.choices.map((each) => Array.from(each.logProb)) } : {}),
      });
    }
    return finished.sort((a, b) => a.docId - b.docId);
  }

  /** Whether a question still has choices to score. */
  isFinished(question: number): boolean {
    return this.#finished.has(question);
  }

  /** `question 7, choice 2` for each choice that has one of these rows, at most a few. */
  nameRows(scored: readonly ScoredToken[], rows: readonly number[]): string {
    const wanted = new Set(rows);
    const names = new Set<string>();
    for (const { row, question, choice } of scored)
      if (wanted.size === 0 || wanted.has(row))
        names.add(`${questionName(this.#questions[question]!)}, choice ${choice}`);
    return `${[...names].slice(0, 3).join('; ')}${names.size > 3 ? ` and ${names.size - 3} more choices` : ''}`;
  }
}

const begin = ({ continuations }: TokenizedQuestion): Unfinished => ({
  choices: continuations.map(({ length }) => ({
    logProb: new Float64Array(length).fill(NaN),
    isGreedy: true,
    missing: length,
  })),
  missing: continuations.length,
});

/** A call that is being computed, as messages about it need it. */
export interface CheckedCall {
  readonly collector: AnswerCollector;
  readonly scored: readonly ScoredToken[];
  /** Rows of the call. */
  readonly rows: number;
  /** What a user may try where a value is NaN or infinite. */
  readonly nonFiniteAdvice?: string | undefined;
  /** File that holds what is finished; absent where nothing is kept. */
  readonly journal?: string | undefined;
}

/** Awaits the results of a call and checks them. Throws UserError, naming choices, where a value is not finite. */
export async function checkedRows(result: Promise<ScoredRows>, call: CheckedCall): Promise<ScoredRows> {
  const { collector, scored, rows: expected } = call;
  const nonFinite = (rows: readonly number[], where?: string, cause?: unknown): UserError => {
    const kept = call.journal === undefined ? '' : `; finished questions are in ${call.journal}`;
    return new UserError(
      `${collector.nameRows(scored, rows)}: a value is NaN or infinite` +
        `${where === undefined ? '' : `, first in ${where}`}` +
        (rows.length === 0 ? ' (one or more of the choices named)' : ''),
      `${call.nonFiniteAdvice ?? 'The weights may hold NaN: check the checkpoint'}${kept}`,
      { cause },
    );
  };
  let found: ScoredRows;
  try {
    found = await result;
  } catch (error) {
    if (!(error instanceof Error) || error.name !== 'NonFiniteError') throw error;
    const rows = 'rows' in error && Array.isArray(error.rows) ? (error.rows as readonly number[]) : [];
    throw nonFinite(rows, 'where' in error && typeof error.where === 'string' ? error.where : undefined, error);
  }
  if (found.logProb.length !== expected || found.isArgmax.length !== expected) {
    throw new Error(
      `the scorer returned ${found.logProb.length} log-probabilities and ${found.isArgmax.length} flags ` +
        `for ${expected} rows`,
    );
  }
  const bad: number[] = [];
  for (let i = 0; i < expected; i++) if (!Number.isFinite(found.logProb[i])) bad.push(i);
  if (bad.length > 0) throw nonFinite(bad);
  return found;
}

/** A call whose results are there. */
export interface Landed {
  readonly scored: readonly ScoredToken[];
  readonly rows: ScoredRows;
  /** Tokens that it computed. */
  readonly tokens: number;
  /** What it was estimated to take; 0 where nothing is known. */
  readonly seconds: number;
}

/** Where a computation leaves its results. */
export interface Sink {
  readonly collector: AnswerCollector;
  /** When it may make calls. */
  readonly turn: Turn;
  /** File that holds what was landed, for messages. */
  readonly journal?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onWarning?: ((line: string) => void) | undefined;
  /** Keeps the results of a call. If it throws, the computation must end; later results are ignored then. */
  land(landed: Landed): void;
}

export interface Computation {
  /** Tokens that it will have computed at the end. */
  readonly tokensTotal: number;
  /** Estimated seconds of all calls; 0 where nothing is known. */
  readonly estimateTotal: number;
  /** Computes everything, or stops after the calls in flight once the signal is aborted. Call it once. */
  compute(sink: Sink): Promise<void>;
}
