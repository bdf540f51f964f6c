/**
 * Names of the pages of prompts that cannot change: each is made once, also for prompts that continue others. A name
 * takes over a microsecond, and a search continues each path many times.
 */
import { contentOf, PAGE_TOKENS } from './pages.js';

/** Of the full pages of some tokens, in their order: with one adapter and another they have other names. */
export class PageNames {
  private readonly tokens: readonly number[];
  /** By what stands before the first page (rootOf); '': nothing. */
  private readonly names = new Map<string, string[]>();
  /** Who has the first `shared` ones, until they are here too. */
  private before: PageNames | undefined;
  private readonly shared: number;

  constructor(tokens: readonly number[], before?: PageNames, shared = 0) {
    this.tokens = tokens;
    this.before = before;
    this.shared = shared;
  }

  /** The name of full page `index`. */
  at(index: number, root?: string): string {
    let names = this.names.get(root ?? '');
    if (names === undefined) this.names.set(root ?? '', (names = []));
    for (let i = names.length; i <= index; i++) {
      const ownTokens = (): readonly number[] => this.tokens.slice(i * PAGE_TOKENS, (i + 1) * PAGE_TOKENS);
      const shared = i < this.shared ? this.before?.at(i, root) : undefined;
      names.push(shared ?? contentOf(names[i - 1] ?? root, ownTokens()));
      if (names.length === this.shared) this.before = undefined;
    }
    return names[index]!;
  }
}

const known = new WeakMap<readonly number[], PageNames>();

/** `tokens` behind those of `prompt`: nobody can change the result. */
export function continuePrompt(prompt: readonly number[], tokens: readonly number[]): readonly number[] {
  const all = Object.freeze([...prompt, ...tokens]);
  const before = known.get(prompt);
  known.set(all, new PageNames(all, before, before && Math.floor(prompt.length / PAGE_TOKENS)));
  return all;
}

/** Its first `length` tokens. */
export function beginningOf(prompt: readonly number[], length: number): readonly number[] {
  if (length === prompt.length) return prompt;
  // A slice of what is frozen takes fifty times as long.
  const beginning = [...prompt];
  beginning.length = length;
  Object.freeze(beginning);
  const names = known.get(prompt);
  if (names !== undefined) known.set(beginning, names);
  return beginning;
}

/** Names of its pages, and perhaps of those behind. Undefined for any prompt that was not made here. */
export const namesOf = (prompt: readonly number[]): PageNames | undefined => known.get(prompt);
