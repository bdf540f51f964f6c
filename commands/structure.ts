/** What generated texts are asked to be, for programs and the command line: grammars followed in this thread. */
import type { GuideState, TokenGuide } from '../engine/guide.js';
import { UserError } from '../errors.js';
import { GrammarError } from '../grammar/grammar.js';
import type { GrammarSource } from '../grammar/source.js';
import { compile, type MatchState } from '../grammar/tokens/compile.js';
import type { GrammarModel } from '../serve/link/grammarMessages.js';
import { grammarVocabulary } from '../serve/link/grammarWork.js';

/** One of these. */
export type Structure =
  /** JSON that a JSON Schema accepts. */
  | { readonly json: unknown }
  /** Any JSON object. */
  | { readonly jsonObject: true }
  /** A regular expression that all of the text matches. */
  | { readonly regex: string }
  /** One of these texts. */
  | { readonly choice: readonly string[] };

function sourceOf(structure: Structure): GrammarSource {
  if ('json' in structure) return { kind: 'schema', schema: structure.json };
  if ('regex' in structure) return { kind: 'regex', pattern: structure.regex };
  if ('choice' in structure) return { kind: 'choice', of: structure.choice.map((text) => ({ kind: 'text', text })) };
  return { kind: 'json' };
}

/** Follows a text from a state of its grammar on, in this thread. */
export function following(start: MatchState): GuideState {
  let match = start;
  const take = (tokens: readonly number[]): void => {
    for (const token of tokens) match = match.take(token);
  };
  return {
    next: (...tokens) => {
      take(tokens);
      return match.mask();
    },
    ahead: (taken, { tokens, parents }) => {
      take(taken);
      return match.ahead(tokens, parents);
    },
    close: () => undefined,
  };
}

/** Throws UserError where no text can be asked to be that. */
export function guideOf(structure: Structure, model: Omit<GrammarModel, 'key'>): TokenGuide {
  try {
    const grammar = compile(sourceOf(structure), grammarVocabulary({ key: '', ...model }));
    // One whose texts cannot begin is found here, too.
    grammar.start().mask();
    return { begin: () => following(grammar.start()) };
  } catch (error) {
    if (!(error instanceof GrammarError)) throw error;
    const where = error.where === undefined || error.where === '' ? '' : `, at ${error.where}`;
    throw new UserError(`the text cannot be asked to be that: ${error.message}${where}`, HINT);
  }
}

const HINT = 'docs/structured.md lists what schemas and expressions may have';
