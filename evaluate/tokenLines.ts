/**
 * Log-probabilities of single tokens, one line of tokens_<task>_<date>.jsonl for each question: what pages draw as
 * strips of heat and as the tree of a question.
 */
import type { Scores } from './metrics.js';
import { contextOf, type TokenizedQuestion } from './tokenize.js';

/** The text of a token in the middle of others; null where the tokenizer has none for it. */
export type TextOfToken = (id: number) => string | null;

/** What a line is made of, by the numbers of questions. */
export interface TokenSource {
  readonly questions: ReadonlyMap<number, TokenizedQuestion>;
  readonly textOf: TextOfToken;
}

/** A line, as a reader finds it. */
export interface TokenLine {
  readonly doc_id: number;
  /** Tokens with which the contexts of all choices begin. Their texts are not in the line. */
  readonly shared_tokens: number;
  readonly choices: readonly {
    /** Tokens of this choice's own context that are left out between the shared ones and `tokens`. */
    readonly omitted_tokens: number;
    /** Ids of the rest of the choice's context, and of the choice. */
    readonly tokens: readonly number[];
    /** Of each of `tokens`. */
    readonly texts: readonly (string | null)[];
    /** Natural logs, of the last of `tokens`. Added in order in float64 they are the choice's log-likelihood. */
    readonly logprobs: readonly number[];
  }[];
}

/** Context tokens of a choice that are written: more say nothing to a reader. */
const MAX_CONTEXT = 256;

function sharedLength(contexts: readonly Int32Array[]): number {
  const [first = new Int32Array()] = contexts;
  return contexts.slice(1).reduce((shared, context) => {
    let length = 0;
    while (length < shared && length < context.length && context[length] === first[length]) length++;
    return length;
  }, first.length);
}

/**
 * `number`: the question's among those that were scored; its `docId` in the file may be another. Undefined for a
 * question whose tokens are not known: one that an earlier run answered.
 */
export function tokenLine(
  docId: number,
  number: number,
  { tokens: logProbs }: Pick<Scores, 'tokens'>,
  { questions, textOf }: TokenSource,
): string | undefined {
  const question = questions.get(number);
  if (question === undefined || logProbs === undefined) return undefined;
  const contexts = question.continuations.map((_, choice) => contextOf(question, choice));
  const shared = sharedLength(contexts);
  const line: TokenLine = {
    doc_id: docId,
    shared_tokens: shared,
    choices: question.continuations.map((continuation, choice) => {
      const context = contexts[choice]!;
      const from = Math.max(shared, context.length - MAX_CONTEXT);
      const tokens = [...context.subarray(from), ...continuation];
      return {
        omitted_tokens: from - shared,
        tokens,
        texts: tokens.map(textOf),
        logprobs: logProbs[choice]!,
      };
    }),
  };
  return `${JSON.stringify(line)}\n`;
}

/** All tokens of which texts are asked. */
export function* tokensOfLines(questions: Iterable<TokenizedQuestion>): Generator<number> {
  for (const question of questions)
    for (const [choice, continuation] of question.continuations.entries()) {
      yield* contextOf(question, choice).subarray(-MAX_CONTEXT);
      yield* continuation;
    }
}
