/**
 * Names of the pages of prompts that cannot change: each is made once, also for prompts that continue others. A name
 * takes over a microsecond, and a search continues each path many times.
 */
import { PAGE_TOKENS } from './limits.js';

/** The first ones, as far as they have been made. Prompts that begin alike may share a list. */
const known = new WeakMap<readonly number[], string[]>();

/** `tokens` behind those of `prompt`: nobody can change the result. */
export function continuePrompt(prompt: readonly number[], tokens: readonly number[]): readonly number[] {
  const all = Object.freeze([...prompt, ...tokens]);
  const names = known.get(prompt) ?? [];
  known.set(all, names.slice(0, Math.floor(prompt.length / PAGE_TOKENS)));
  return all;
}

/** Its first `length` tokens. */
export function beginningOf(prompt: readonly number[], length: number): readonly number[] {
  if (length === prompt.length) return prompt;
  const beginning = Object.freeze(prompt.slice(0, length));
  const names = known.get(prompt);
  if (names !== undefined) known.set(beginning, names);
  return beginning;
}

/** Names of its pages, and perhaps of those behind: whoever makes more adds them. Undefined for any other prompt. */
export const namesOf = (prompt: readonly number[]): string[] | undefined => known.get(prompt);
