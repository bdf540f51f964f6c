/** Continues prompts side by side. One that cannot be computed does not end the others. */
import type { GenerateOptions } from '../generate/options.js';
import { GenerateError } from '../generate/request.js';
import type { Continuation, ContinueOptions, TextGenerator, TextPiece } from './continuation.js';
import type { TokenizedPrompt } from './promptTokens.js';

interface OfPrompt {
  /** Counted from 0: those of the request, then those of the file. */
  readonly index: number;
  /** Which of the prompt's continuations, from 0. */
  readonly sample: number;
  readonly where: string;
  readonly promptTokens: number;
}

export type GeneratedText = OfPrompt & Continuation;
/** The model has no answer to this prompt: a value was not finite. */
export type FailedPrompt = OfPrompt & { readonly error: string };
export type PromptResult = GeneratedText | FailedPrompt;

/** Told of everything as it is made. */
export interface ContinueListener {
  /** No further step begins before what it returns has settled. */
  onPiece?(index: number, piece: TextPiece, sample: number): Promise<void> | undefined | void;
  /** All continuations of a prompt are done, best first where they are ranked; prompts need not be done in order. */
  onResults?(index: number, results: readonly PromptResult[]): void;
}

/** Prompts that the scheduler has at a time; more than run together, so that it always finds one that fits. */
const MAX_AT_ONCE = 512;

/** Results in the order of the prompts. Once the signal is aborted, all end with what was generated so far. */
export async function continueAll(
  continuer: TextGenerator,
  prompts: readonly TokenizedPrompt[],
  options: Omit<ContinueOptions, 'onPiece'>,
  { onPiece, onResults }: ContinueListener,
): Promise<readonly PromptResult[]> {
  const most = Math.ceil(MAX_AT_ONCE / continuationsOf(options));
  const all = await eachOf(prompts, most, async ({ where, tokens }, index) => {
    const outcomes = await continuer.continue(tokens, {
      ...options,
      onPiece: (piece, sample) => onPiece?.(index, piece, sample),
    });
    const results = outcomes.map((outcome, sample): PromptResult => {
      const of = { index, sample, where, promptTokens: tokens.length };
      return outcome instanceof Error ? { ...of, error: describe(outcome) } : { ...of, ...outcome };
    });
    onResults?.(index, results);
    return results;
  });
  return all.flat();
}

/** How many continuations of a prompt are computed. */
export const continuationsOf = ({ n = 1, bestOf, beams }: GenerateOptions): number => beams ?? bestOf ?? n;

/** Others go on where the fault is this prompt's; throws what is not. */
function describe(error: Error): string {
  if (isNonFinite(error)) return nonFinite(error);
  if (error instanceof GenerateError) return error.message;
  throw error;
}

/** Errors lose their class between processes. */
const isNonFinite = (error: Error): error is Error & { readonly where?: string } => error.name === 'NonFiniteError';

const nonFinite = ({ where }: { readonly where?: string }): string =>
  `a value is NaN or infinite${where === undefined ? '' : ` in ${where}`}`;

/** Results of all items, of which `most` are in work at a time, taken in order. */
async function eachOf<T, R>(
  items: readonly T[],
  most: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<readonly R[]> {
  const results: R[] = [];
  const entries = items.entries();
  const lane = async (): Promise<void> => {
    for (const [index, item] of entries) results[index] = await work(item, index);
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, lane));
  return results;
}
