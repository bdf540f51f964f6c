/** Which tokens may come at a state: what stays inside of a lexeme, and what goes on behind the end of one. */
import { GrammarError } from '../grammar.js';
import type { Frame, Matcher, State } from '../matcher/states.js';
import type { Lexemes } from './lexemes.js';

/**
 * Bit t % 32 of word t >> 5 stands for token t: those with bytes behind which a text can still be completed, special
 * ones that are asked for, and those that end a text where it may end. Throws GrammarError where there is none, or
 * where finding them takes too long.
 */
export const maskOf = (state: State, matcher: Matcher, lexemes: Lexemes): Uint32Array => {
  const { size, trees, endTokens } = lexemes.vocabulary;
  const mask = new Uint32Array(Math.ceil(size / 32));
  const reach = matcher.reach(state);
  for (const tree of trees.keys()) addTree(mask, tree, state, matcher, lexemes);
  for (const token of reach.tokens.keys()) setBit(mask, token);
  if (reach.isEnd) for (const token of endTokens) setBit(mask, token);
  if (mask.every((word) => word === 0)) throw new GrammarError('no token of the vocabulary can go on with the text');
  return mask;
};

const addTree = (mask: Uint32Array, treeIndex: number, start: State, matcher: Matcher, lexemes: Lexemes): void => {
  const tree = lexemes.vocabulary.trees[treeIndex]!;
  const { work } = lexemes.automaton;
  /** Nodes in the middle of tokens at which a lexeme has ended, by the state there. */
  const pending = new Map<State, number[]>();
  const seen = new Set<number>();
  const leave = (frame: Frame, exits: Int32Array | readonly number[]): void => {
    if (exits.length === 0) return;
    const state = matcher.boundary(frame);
    let nodes = pending.get(state);
    if (nodes === undefined) pending.set(state, (nodes = []));
    work.spend(8 * exits.length);
    for (const exit of exits) {
      const key = state.id * 2 ** 24 + exit;
      if (seen.has(key)) continue;
      seen.add(key);
      nodes.push(exit);
    }
  };
  const { threads } = matcher.reach(start);
  for (const { frame, state } of threads) {
    if (threads.length > FEW && !lexemes.isWide(state)) {
      leave(frame, lexemes.enter(tree, ROOT, state, mask));
      continue;
    }
    const { tokens, mask: all, exits } = lexemes.inside(treeIndex, state);
    work.spend(16 + ((tokens ?? all!).length >> 3));
    if (all !== undefined) for (let at = 0; at < mask.length; at++) mask[at]! |= all[at]!;
    else for (const token of tokens!) setBit(mask, token);
    leave(frame, exits);
  }
  for (const [state, nodes] of pending) {
    pending.delete(state);
    for (const { frame, state: first } of matcher.reach(state).threads) {
      leave(frame, lexemes.enter(tree, nodes, first, mask));
    }
  }
};

/** The root of a tree. */
const ROOT = [0];
/** Where there are more ways to go on, those that begin with certain bytes are not kept one by one. */
const FEW = 4;

const setBit = (mask: Uint32Array, token: number): void => {
  mask[token >>> 5]! |= 1 << (token & 31);
};
