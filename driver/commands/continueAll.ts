/** Continues prompts side by side. One that cannot be computed does not end the others. */
import { GenerateError } from '../../generate/generator.js';
import type { Continuation, Continuer, ContinueOptions, Piece } from './continuation.js';
import type { TokenisedPrompt } from './promptTokens.js';

interface OfPrompt {
  /** Counted from 0: those of the request, then those of the file. */
  readonly index: number;
  readonly where: string;
  readonly promptTokens: number;
}

export type GeneratedText = OfPrompt & Continuation;
/** The model has no answer to this prompt: a value was not finite. */
export type FailedPrompt = OfPrompt & { readonly error: string };
export type PromptResult = GeneratedText | FailedPrompt;

/** Told of everything as it is made. */
export interface ContinueListener {
  onPiece?(index: number, piece: Piece): void;
  /** A prompt is done; prompts need not be done in order. */
  onResult?(result: PromptResult): void;
}

/** Prompts that the scheduler has at a time; more than run together, so that it always finds one that fits. */
const MOST_AT_ONCE = 512;

/** Results in the order of the prompts. Once the signal is aborted, all end with what was generated so far. */
export const continueAll = (
  continuer: Continuer,
  prompts: readonly TokenisedPrompt[],
  options: Omit<ContinueOptions, 'onPiece'>,
  { onPiece, onResult }: ContinueListener,
): Promise<readonly PromptResult[]> =>
  eachOf(prompts, MOST_AT_ONCE, async (prompt, index) => {
    const result = await continueOne(continuer, prompt, index, {
      ...options,
      onPiece: (piece) => onPiece?.(index, piece),
    });
    onResult?.(result);
    return result;
  });

async function continueOne(
  continuer: Continuer,
  { where, tokens }: TokenisedPrompt,
  index: number,
  options: ContinueOptions,
): Promise<PromptResult> {
  const of = { index, where, promptTokens: tokens.length };
  try {
    return { ...of, ...(await continuer.continue(tokens, options)) };
  } catch (error) {
    // Others go on where the fault is this prompt's.
    if (!(error instanceof Error) || !(error instanceof GenerateError || isNonFinite(error))) throw error;
    return { ...of, error: isNonFinite(error) ? nonFinite(error) : error.message };
  }
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
