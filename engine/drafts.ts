/**
 * Drafts: tokens that somebody proposes behind those of a sequence. A step computes them beside its last token, with a
 * row for each that draws with the key of its place, and they are accepted as long as they are what was drawn before
 * them. So a text does not depend on its drafts: a wrong one costs time and nothing else.
 */
import { DECODE_RUN } from '../ir/stepping.js';

/** Proposes what may follow `tokens`, the prompt among them: any number of tokens, none of which need be right. */
export type Drafter = (tokens: readonly number[]) => readonly number[];

/** Most drafts of a step, so that the kernels for steps which continue texts take them. */
export const MAX_DRAFTS = DECODE_RUN - 1;

/** What is left of proposals: as many as there is room for, up to the first that is no token of a vocabulary. */
export function usableDrafts(proposed: readonly number[], most: number, vocabSize = Infinity): readonly number[] {
  const drafts = proposed.slice(0, Math.max(0, Math.min(most, MAX_DRAFTS)));
  const stray = drafts.findIndex((token) => !(Number.isInteger(token) && token >= 0 && token < vocabSize));
  return stray < 0 ? drafts : drafts.slice(0, stray);
}
