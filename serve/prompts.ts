/** Texts and token ids in a body, in the four forms that clients send. */
import { badRequest } from './apiError.js';
import type { ServedModel } from './models.js';
import { answerLength, requireTokens } from './sampling.js';

/** Of a request: more of them make no step fuller. */
const MAX_PROMPTS = 1024;

export type Prompt = string | readonly number[];

/** A text, tokens, or a list of either, in the field `param`. Throws ApiError 400. */
export function readPrompts(value: unknown, model: ServedModel, param: string): readonly Prompt[] {
  if (typeof value === 'string') return [value];
  if (!Array.isArray(value) || value.length === 0)
    throw badRequest(`${param}: expected a text, a list of token ids, or a list of either`, param);
  const list: readonly unknown[] = value;
  if (typeof list[0] === 'number') return [tokensOf(list, param, model, param)];
  if (list.length > MAX_PROMPTS) throw badRequest(`${param}: expected at most ${MAX_PROMPTS} of them`, param);
  const isText = typeof list[0] === 'string';
  return list.map((each, i) => {
    if (isText && typeof each === 'string') return each;
    if (!isText && Array.isArray(each)) return tokensOf(each, `${param}[${i}]`, model, param);
    throw badRequest(`${param}[${i}]: expected ${isText ? 'a text' : 'a list of token ids'}`, param);
  });
}

function tokensOf(list: readonly unknown[], where: string, model: ServedModel, param: string): readonly number[] {
  const isNumbers = (each: readonly unknown[]): each is readonly number[] =>
    each.every((token) => typeof token === 'number');
  if (!isNumbers(list)) throw badRequest(`${where}: expected token ids`, param);
  // One check for all is quicker than a message for each.
  if (list.length > model.maxLength) answerLength(list.length, 0, model);
  requireTokens(list, model, param);
  return list;
}

/** Tokens of each: those of texts with the tokenizer's special tokens, unless that is false. */
export async function encodePrompts(
  prompts: readonly Prompt[],
  { texts }: ServedModel,
  addSpecialTokens: boolean | undefined,
): Promise<readonly (readonly number[])[]> {
  const written = prompts.filter((prompt) => typeof prompt === 'string');
  if (written.length === 0) return prompts as readonly (readonly number[])[];
  return texts.encode(written, addSpecialTokens);
}
