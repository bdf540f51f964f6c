/** The door of structured output: what a text is asked to be, as masks of tokens. */
import { type Grammar, GrammarError } from '../grammar.js';
import { LIMITS } from '../limits.js';
import { Matcher, type State } from '../matcher/states.js';
import type { GrammarSource } from '../source.js';
import { Work } from '../work.js';
import { ByteCache } from './byteCache.js';
import { grammarOf } from './grammarOf.js';
import { Lexemes } from './lexemes.js';
import { maskOf } from './masks.js';
import type { Vocabulary } from './vocabulary.js';

/** What all grammars of a vocabulary share. */
interface Shared {
  readonly work: Work;
  readonly masks: ByteCache<State, Uint32Array>;
  lexemes: Lexemes;
}

const SHARED = new WeakMap<Vocabulary, Shared>();

const sharedOf = (vocabulary: Vocabulary): Shared => {
  let shared = SHARED.get(vocabulary);
  if (shared === undefined) {
    const work = new Work();
    work.begin(LIMITS.compileSteps, LIMITS.partsOfCall);
    shared = { work, masks: new ByteCache(LIMITS.cacheBytes), lexemes: new Lexemes(vocabulary, work) };
    SHARED.set(vocabulary, shared);
  }
  if (shared.lexemes.automaton.size > LIMITS.expressionsShared) {
    // Grammars that run keep what they began with.
    shared.work.begin(LIMITS.compileSteps, LIMITS.partsOfCall);
    shared.lexemes = new Lexemes(vocabulary, shared.work);
  }
  return shared;
};

/** Throws GrammarError where no text can be asked for by this source, or it is beyond bounds. */
export const compile = (source: GrammarSource, vocabulary: Vocabulary): CompiledGrammar =>
  compileGrammar(grammarOf(source, vocabulary), vocabulary);

/** The same for a grammar over bytes. */
export const compileGrammar = (grammar: Grammar, vocabulary: Vocabulary): CompiledGrammar =>
  new CompiledGrammar(grammar, vocabulary, sharedOf(vocabulary));

export class CompiledGrammar {
  readonly vocabulary: Vocabulary;
  readonly matcher: Matcher;
  readonly #shared: Shared;
  readonly #lexemes: Lexemes;
  /** Expressions that were added for it: for texts, and for what texts may never have. */
  #expressions = 0;
  #expressionsAhead = 0;

  constructor(grammar: Grammar, vocabulary: Vocabulary, shared: Shared) {
    this.vocabulary = vocabulary;
    this.#shared = shared;
    this.#lexemes = shared.lexemes;
    const { automaton } = this.#lexemes;
    this.matcher = this.bounded(LIMITS.compileSteps, () => new Matcher(grammar, automaton, vocabulary.size));
  }

  start(): MatchState {
    return new MatchState(this, this.matcher.start);
  }

  /** The tokens that may come at a state: not to be changed. */
  mask(state: State): Uint32Array {
    const { masks } = this.#shared;
    let mask = masks.get(state);
    if (mask === undefined) {
      mask = this.bounded(LIMITS.maskSteps, () => maskOf(state, this.matcher, this.#lexemes));
      masks.set(state, mask, mask.byteLength + 1024);
    }
    return mask;
  }

  /**
   * What is found out about drafts, if that takes few steps: undefined otherwise, and where they cannot come. What it
   * adds to the grammar does not count for texts, so that no draft is the reason why one is given up.
   */
  ahead<T>(action: () => T): T | undefined {
    const { automaton } = this.#lexemes;
    if (this.#expressionsAhead > LIMITS.expressions) return undefined;
    const [before, expressions] = [automaton.size, this.#expressions];
    try {
      return action();
    } catch (error) {
      if (error instanceof GrammarError) return undefined;
      throw error;
    } finally {
      this.#expressionsAhead += automaton.size - before;
      this.#expressions = expressions;
    }
  }

  /** Does something that may take so many steps. Throws GrammarError where it takes more, or too much memory. */
  bounded<T>(steps: number, action: () => T): T {
    const { automaton } = this.#lexemes;
    if (this.#expressions > LIMITS.expressions) throw new GrammarError('what is asked of the text has too many states');
    const before = automaton.size;
    this.#shared.work.begin(steps, LIMITS.partsOfCall);
    try {
      return action();
    } finally {
      this.#expressions += automaton.size - before;
    }
  }
}

/** A text so far. It does not change: `take` gives another. */
export class MatchState {
  readonly #grammar: CompiledGrammar;
  readonly #state: State;
  /** A token that ends texts was taken. */
  readonly #hasEnded: boolean;
  /** Threads of states that were made on the way here. */
  readonly #threads: number;

  constructor(grammar: CompiledGrammar, state: State, hasEnded = false, threads = 0) {
    this.#grammar = grammar;
    this.#state = state;
    this.#hasEnded = hasEnded;
    this.#threads = threads;
  }

  /** Whether the text may end here. */
  get isEnd(): boolean {
    const { matcher } = this.#grammar;
    return this.#grammar.bounded(LIMITS.takeSteps, () => matcher.reach(this.#state).isEnd);
  }

  /**
   * Bit t % 32 of word t >> 5 stands for token t. Tokens that end the text are among them where it may end, and alone
   * behind one of them. Not to be changed. Throws GrammarError where no token may come, or finding out takes too long.
   */
  mask(): Uint32Array {
    if (!this.#hasEnded) return this.#grammar.mask(this.#state);
    const { size, endTokens } = this.#grammar.vocabulary;
    const mask = new Uint32Array(Math.ceil(size / 32));
    for (const token of endTokens) mask[token >>> 5]! |= 1 << (token & 31);
    return mask;
  }

  /** Throws GrammarError for a token that may not come. */
  take(token: number): MatchState {
    const { vocabulary } = this.#grammar;
    const isEnd = vocabulary.endTokens.includes(token);
    if (this.#hasEnded && isEnd) return this;
    const next = this.#hasEnded ? undefined : this.#next(token);
    if (next !== undefined) return next;
    if (!isEnd || !this.isEnd) throw new GrammarError(`token ${token} cannot come here`);
    return new MatchState(this.#grammar, this.#state, true, this.#threads);
  }

  /**
   * The masks behind drafts, each of which follows the one at the place of its parent, before it; −1: this text.
   * Undefined for one that may not come or ends the text, behind such, and where finding out takes too long.
   */
  ahead(tokens: ArrayLike<number>, parents: ArrayLike<number>): (Uint32Array | undefined)[] {
    const states: (MatchState | undefined)[] = [];
    return Array.from(tokens, (token, node) => {
      const before = parents[node]! < 0 ? this : states[parents[node]!];
      const hasEnded = before === undefined || before.#hasEnded;
      const state = hasEnded ? undefined : this.#grammar.ahead(() => before.#next(token));
      states.push(state);
      return state && this.#grammar.ahead(() => state.mask());
    });
  }

  #next(token: number): MatchState | undefined {
    const { matcher } = this.#grammar;
    const before = matcher.threadsMade;
    const state = this.#stateBehind(token);
    if (state === undefined) return undefined;
    const threads = this.#threads + matcher.threadsMade - before;
    if (threads > LIMITS.threadsOfText) throw new GrammarError('a text can be read in too many ways');
    return new MatchState(this.#grammar, state, false, threads);
  }

  #stateBehind(token: number): State | undefined {
    const { vocabulary, matcher } = this.#grammar;
    return this.#grammar.bounded(LIMITS.takeSteps, () => {
      const found = matcher.nextOfToken(this.#state, token);
      if (found !== undefined || vocabulary.isApart(token)) return found;
      const bytes = vocabulary.bytes[token];
      if (bytes === undefined || bytes.length === 0 || bytes.length > LIMITS.tokenBytes) return undefined;
      let state: State | undefined = this.#state;
      for (let at = 0; at < bytes.length && state !== undefined; at++) state = matcher.next(state, bytes[at]!);
      return state;
    });
  }
}
