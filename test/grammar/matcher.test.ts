import { describe, expect, it } from 'vitest';
import { type Grammar, GrammarError } from '../../grammar/grammar.js';
import { Matcher, type State } from '../../grammar/matcher/states.js';
import { Automaton } from '../../grammar/regular/automaton.js';
import { NOTHING } from '../../grammar/regular/nodes.js';
import { compileGrammar, type MatchState } from '../../grammar/tokens/compile.js';
import { Work } from '../../grammar/work.js';
import { isThorough } from '../support/thorough.js';
import { matchesGrammar, matchesRegular } from './naive.js';
import { LETTERS, randomFrom, randomGrammar, randomRegular, randomVocabulary } from './randomGrammars.js';

const work = (): Work => {
  const made = new Work();
  made.begin(1e9);
  return made;
};

/** All texts of at most so many letters. */
const textsUpTo = (most: number, letters: readonly number[]): number[][] => {
  let last: number[][] = [[]];
  const all = [...last];
  for (let length = 1; length <= most; length++) {
    last = last.flatMap((text) => letters.map((letter) => [...text, letter]));
    all.push(...last);
  }
  return all;
};

describe('automata of regular expressions', () => {
  it('accept what the definitions say, and are alive where a text goes on', () => {
    const texts = textsUpTo(5, [...Buffer.from(LETTERS)]);
    for (let seed = 0; seed < (isThorough ? 600 : 40); seed++) {
      const regular = randomRegular(randomFrom(seed), 3);
      const automaton = new Automaton(work());
      const start = automaton.of(regular);
      const alive = new Set<string>();
      for (const text of texts.toReversed()) {
        let state = automaton.isAlive(start) ? start : NOTHING;
        for (const byte of text) if (state !== NOTHING) state = automaton.next(state, byte);
        const isMatch = matchesRegular(regular, Uint8Array.from(text));
        const isFound = state !== NOTHING && automaton.isNullable[state]!;
        const isAlive = isMatch || alive.has(text.join());
        if (isAlive) alive.add(text.slice(0, -1).join());
        const isRight = isFound === isMatch && (state === NOTHING ? !isAlive : shortestEnd(automaton, state));
        if (!isRight) expect.fail(`${seed}: ${text.join()}`);
      }
    }
  });
});

const shortestEnd = (automaton: Automaton, start: number): boolean => {
  const seen = new Set([start]);
  for (const state of seen) {
    if (automaton.isNullable[state]!) return true;
    for (const byte of Buffer.from(LETTERS)) seen.add(automaton.next(state, byte));
    // A complement may need other letters.
    seen.add(automaton.next(state, 0));
    seen.delete(NOTHING);
  }
  return false;
};

const attempt = <T>(action: () => T): T | undefined => {
  try {
    return action();
  } catch (error) {
    if (error instanceof GrammarError) return undefined;
    throw error;
  }
};

describe('recognising with a grammar', () => {
  it('agrees with the definitions on random grammars', () => {
    const texts = textsUpTo(4, [...Buffer.from(LETTERS), 256, 257]);
    let count = 0;
    for (let seed = 0; seed < (isThorough ? 300 : 20); seed++) {
      const grammar = randomGrammar(randomFrom(seed), 2);
      const matcher = attempt(() => new Matcher(grammar, new Automaton(work()), 10));
      for (const text of texts) {
        let state: State | undefined = matcher?.start;
        for (const letter of text) {
          if (state === undefined) break;
          state = letter >= 256 ? matcher!.nextOfToken(state, letter - 256) : matcher!.next(state, letter);
        }
        const isMatch = matchesGrammar(grammar, text);
        if (isMatch) count++;
        const isFound = state !== undefined && matcher!.reach(state).isEnd;
        if (isFound !== isMatch) expect.fail(`${seed}: ${text.join()} ${JSON.stringify(grammar)}`);
      }
    }
    expect(count).toBeGreaterThan(100);
  });
});

/** Whether tokens can be found that end the text, by a walk that takes whatever may come. */
const canEnd = (state: MatchState, tokens: readonly number[]): boolean => {
  let states = [state];
  for (let length = 0; length < 12; length++) {
    if (states.some((each) => each.isEnd)) return true;
    states = states.flatMap((each) => tokens.flatMap((token) => attempt(() => each.take(token)) ?? [])).slice(0, 400);
  }
  return false;
};

describe('masks', () => {
  it('hold exactly the tokens that can be taken', () => {
    let count = 0;
    for (let seed = 0; seed < (isThorough ? 800 : 60); seed++) {
      const random = randomFrom(seed);
      const grammar: Grammar = randomGrammar(random, 2);
      const vocabulary = randomVocabulary(random, 2);
      const compiled = attempt(() => compileGrammar(grammar, vocabulary));
      if (compiled === undefined) continue;
      let state = compiled.start();
      for (let length = 0; length < 6; length++) {
        const mask = attempt(() => state.mask());
        const allowed: number[] = [];
        for (let token = 0; token < vocabulary.size; token++) {
          const isSet = mask !== undefined && ((mask[token >> 5]! >>> (token & 31)) & 1) === 1;
          const next = attempt(() => state.take(token));
          if (isSet !== (next !== undefined)) expect.fail(`${seed}: token ${token} ${JSON.stringify(grammar)}`);
          if (next !== undefined) allowed.push(token);
        }
        count += allowed.length;
        const others = allowed.filter((token) => token !== 2);
        if (others.length === 0) break;
        state = state.take(others[random(others.length)]!);
      }
    }
    expect(count).toBeGreaterThan(1000);
  });

  it('say of drafts what taking them says, with no end behind an end, and stay where they are', () => {
    let [known, unknown] = [0, 0];
    for (let seed = 0; seed < (isThorough ? 400 : 60); seed++) {
      const random = randomFrom(seed);
      const grammar = randomGrammar(random, 2);
      const vocabulary = randomVocabulary(random, 2);
      const compiled = attempt(() => compileGrammar(grammar, vocabulary));
      if (compiled === undefined) continue;
      const tokens = Array.from({ length: 15 }, () => random(vocabulary.size));
      const parents = tokens.map((_, node) => random(node + 1) - 1);
      const start = compiled.start();
      const found = start.ahead(tokens, parents);
      const stateAt = (node: number): MatchState | undefined => {
        if (node < 0) return start;
        const [before, token] = [stateAt(parents[node]!), tokens[node]!];
        return before && !vocabulary.endTokens.includes(token) ? attempt(() => before.take(token)) : undefined;
      };
      tokens.forEach((token, node) => {
        const state = stateAt(node);
        expect(found[node], `${seed}: ${token}`).toEqual(state && attempt(() => state.mask()));
        if (found[node] === undefined) unknown++;
        else known++;
      });
    }
    expect(Math.min(known, unknown)).toBeGreaterThan(40);
  });

  it('lead nowhere from which a text cannot end', () => {
    for (let seed = 0; seed < 60; seed++) {
      const random = randomFrom(seed);
      const grammar = randomGrammar(random, 2);
      const vocabulary = randomVocabulary(random, 2, 0);
      const compiled = attempt(() => compileGrammar(grammar, vocabulary));
      const all = Array.from({ length: vocabulary.size }, (_, token) => token);
      if (compiled === undefined) continue;
      for (const token of all) {
        const next = attempt(() => compiled.start().take(token));
        if (next !== undefined) expect(canEnd(next, all), `${seed}: ${token} ${JSON.stringify(grammar)}`).toBe(true);
      }
    }
  });
});
