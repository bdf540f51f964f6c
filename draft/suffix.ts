/**
 * Suffix drafting: the end of a text is looked for in what the model read and wrote, and what followed there is the
 * draft. Prompts and outputs are in one tree with the number of times that each continuation was seen; the oldest
 * leave. The text itself also has an index, which knows its latest places. Where several continuations were seen the
 * draft is a tree: nodes are added by the probability that all on their path are right, with the noise of their places
 * looked at. Source: suffix decoding (Oliaro et al., arXiv:2411.04975).
 */
import { chanceOf, rankCandidates } from './chance.js';
import type { Draw } from '../ir/gumbel.js';
import { type Draft, type Drafter, type DraftState, type DraftText, NO_DRAFT } from './drafter.js';
import { Growth, TEXT } from './growth.js';
import { LEAST_CHANCE, NgramIndex } from './ngram.js';
import { LENGTHS, lengthKind, NoiseCorrection, Rates } from './rates.js';
import { ROOT, SuffixTree } from './suffixTree.js';

export interface SuffixOptions {
  /** Tokens of prompts and outputs that are kept: a power of two. One takes 79 bytes. */
  readonly tokens?: number;
  /** Nodes that are less likely to be reached are no drafts. */
  readonly leastChance?: number;
  /** Most tokens of a path, for each token that agrees before it. */
  readonly factor?: number;
  /** Most continuations of a path. */
  readonly children?: number;
}

const DEFAULT_TOKENS = 1 << 18;
const DEFAULT_FACTOR = 4;
const DEFAULT_CHILDREN = 4;

/** Most tokens before a place that must agree; and with as many behind them, what the tree has of each place. */
const MOST_MATCHED = 16;
const DEPTH = 2 * MOST_MATCHED;
/** Fewest tokens of an unfinished text that the tree takes at once, and most in a call, besides those of a window. */
const CHUNK = 64;
const PIECE = 256;
/** The share of the tree that one prompt may fill: its last tokens. */
const PROMPT_SHARE = 1 / 32;
/** Fewest and most tokens of which the index of a text has a table; it compares more than that. */
const [LEAST_OWN, MOST_OWN] = [1, 5];

/** Kinds of evidence: a place in the tree by tokens that agree and share, one in the text by tokens, and both. */
const SHARES = 8;
const OWN = LENGTHS * SHARES;
const BOTH = OWN + LENGTHS;

/** How a continuation was seen `count` of `total` times, below SHARES. */
function shareKind(count: number, total: number): number {
  if (count === total) return count === 1 ? 0 : count < 4 ? 1 : 2;
  const share = count / total;
  return share >= 0.8 ? 3 : share >= 0.5 ? 4 : share >= 0.25 ? 5 : share >= 0.1 ? 6 : 7;
}

const SHARE_PRIOR = [0.7, 0.85, 0.95, 0.85, 0.6, 0.35, 0.15, 0.05];
const LENGTH_PRIOR = Array.from({ length: LENGTHS }, (_, kind) => 0.35 + (0.6 * kind) / LENGTHS);
const PRIOR = [
  ...LENGTH_PRIOR.flatMap((rate) => SHARE_PRIOR.map((share) => rate * share)),
  ...LENGTH_PRIOR,
  ...LENGTH_PRIOR.map((rate) => Math.sqrt(rate)),
];

/** What the texts of a model share. */
class Memory {
  readonly options: Required<SuffixOptions>;
  readonly rates = new Rates(PRIOR);
  readonly correction = new NoiseCorrection();
  /** What a draft is made with. */
  readonly growth: Growth;
  /** Of each candidate where its path ends in the tree, and tokens up to there. */
  readonly nodes: Int32Array;
  readonly lengths: Uint8Array;
  /** Of each candidate the place in the text of what follows there, 0: none, and tokens before it that agree. */
  readonly places: Int32Array;
  readonly agreed: Uint8Array;
  /** Continuations of a path. */
  readonly found: Int32Array;
  readonly foundNodes: Int32Array;
  private known: SuffixTree | undefined;

  constructor(options: SuffixOptions) {
    this.options = {
      tokens: DEFAULT_TOKENS,
      leastChance: LEAST_CHANCE,
      factor: DEFAULT_FACTOR,
      children: DEFAULT_CHILDREN,
      ...options,
    };
    const { children } = this.options;
    this.growth = new Growth(children + 1);
    const size = this.growth.tokens.length;
    [this.nodes, this.places] = [new Int32Array(size), new Int32Array(size)];
    [this.lengths, this.agreed] = [new Uint8Array(size), new Uint8Array(size)];
    [this.found, this.foundNodes] = [new Int32Array(children), new Int32Array(children)];
  }

  /** Memory is taken with the first text. */
  get tree(): SuffixTree {
    return (this.known ??= new SuffixTree(this.options.tokens, DEPTH));
  }
}

class SuffixState implements DraftState {
  private readonly memory: Memory;
  private readonly promptLength: number;
  private readonly own = new NgramIndex(LEAST_OWN, MOST_OWN);
  /** Tokens before this one are in the tree. */
  private added: number;
  /** Tokens that agreed when they were last looked for, and tokens of the text then. */
  private matched = 0;
  private seen = 0;
  /** What was found for a place that was not known then, and on what evidence. */
  private openPlace = Infinity;
  private openTokens: readonly number[] = [];
  private openKinds: readonly number[] = [];
  /** Their rates then, and what noise made of them; empty where there is none. */
  private openRates: readonly number[] = [];
  private openNoisy: readonly number[] = [];

  constructor(memory: Memory, promptLength: number) {
    this.memory = memory;
    this.promptLength = promptLength;
    this.added = Math.max(0, promptLength - PROMPT_SHARE * memory.options.tokens);
  }

  propose(text: DraftText, most: number): Draft {
    const { tokens } = text;
    this.score(tokens);
    this.own.update(tokens);
    if (tokens.length - this.added >= CHUNK + DEPTH) this.take(tokens);
    return most > 0 && this.find(tokens) ? this.grow(text, most) : NO_DRAFT;
  }

  end({ tokens }: Pick<DraftText, 'tokens'>): void {
    this.score(tokens);
    // What is left of a prompt then would stop others.
    this.added = Math.max(this.added, this.promptLength - MOST_MATCHED);
    if (tokens.length > this.added) this.memory.tree.add(tokens, this.added, tokens.length, true);
    this.added = tokens.length;
  }

  /** Gives the tree what it does not have of a text that goes on: beginnings of prompts are often the same. */
  private take(tokens: readonly number[]): void {
    const { tree } = this.memory;
    if (this.added < this.promptLength) this.added = tree.unseen(tokens, this.added);
    this.added = tree.add(tokens, this.added, Math.min(tokens.length, this.added + PIECE + DEPTH), false);
  }

  /** Counts whether what was found is what came. */
  private score(tokens: readonly number[]): void {
    if (this.openPlace >= tokens.length) return;
    const right = tokens[this.openPlace];
    const { rates, correction } = this.memory;
    for (let i = 0; i < this.openTokens.length; i++) {
      const isRight = this.openTokens[i] === right;
      rates.count(this.openKinds[i]!, isRight);
      if (i < this.openNoisy.length) correction.count(this.openRates[i]!, this.openNoisy[i]!, isRight);
    }
    this.openPlace = Infinity;
  }

  /** Looks for the longest end of the text in the tree, and in the text before. Returns whether there is one. */
  private find(tokens: readonly number[]): boolean {
    const { tree, nodes, lengths, places, agreed } = this.memory;
    let length = Math.min(MOST_MATCHED, tokens.length, this.matched + tokens.length - this.seen);
    let node = ROOT;
    // What is in the tree has all its ends there.
    while (length > 0 && (node = tree.find(tokens, tokens.length - length)) === ROOT) length--;
    this.matched = length;
    this.seen = tokens.length;
    const own = this.own.find(tokens);
    nodes[TEXT] = node;
    lengths[TEXT] = length;
    places[TEXT] = own?.at ?? 0;
    agreed[TEXT] = own?.length ?? 0;
    return node !== ROOT || own !== undefined;
  }

  private grow(text: DraftText, most: number): Draft {
    const { growth, lengths, agreed, options } = this.memory;
    growth.begin(most, options.leastChance);
    const deepest = options.factor * Math.max(lengths[TEXT]!, agreed[TEXT]!);
    const draws: (Draw | undefined)[] = [];
    this.follow(TEXT, text, draws);
    for (let node = growth.take(); node !== TEXT; node = growth.take())
      if (!growth.isFull && growth.depths[node]! < deepest) this.follow(node, text, draws);
    return growth.draft;
  }

  /** Adds what may come behind a candidate. `draws` has what each depth is drawn with, as far as that was asked. */
  private follow(path: number, text: DraftText, draws: (Draw | undefined)[]): void {
    const { tree, rates, correction, growth, nodes, lengths, places, agreed, found, foundNodes } = this.memory;
    const { tokens } = text;
    const [node, length] = [nodes[path]!, lengths[path]!];
    const own = places[path] === 0 ? -1 : this.tokenAt(path, tokens);
    const ownKind = OWN + lengthKind(agreed[path]!);
    const count = node === ROOT ? 0 : tree.after(node, length, found, foundNodes);
    const total = tree.countOf(node);
    const next: number[] = own < 0 ? [] : [own];
    const kinds: number[] = own < 0 ? [] : [ownKind];
    const ends: number[] = own < 0 ? [] : [ROOT];
    for (let i = 0; i < count; i++) {
      if (found[i] === own) {
        kinds[0] = BOTH + lengthKind(Math.max(agreed[path]!, length));
        ends[0] = foundNodes[i]!;
        continue;
      }
      next.push(found[i]!);
      kinds.push(lengthKind(length) * SHARES + shareKind(tree.countOf(foundNodes[i]!), total));
      ends.push(foundNodes[i]!);
    }
    const depth = growth.depths[path]!;
    if (draws.length === depth) draws.push(text.drawAt(tokens.length + depth));
    const known = ratesOf(kinds, rates);
    const noisy = noisyOf(next, known, draws[depth]);
    if (path === TEXT) {
      [this.openPlace, this.openTokens, this.openKinds] = [tokens.length, next, kinds];
      [this.openRates, this.openNoisy] = [known, noisy];
    }
    for (let i = 0; i < next.length; i++) {
      const chance = noisy.length === 0 ? known[i]! : correction.of(known[i]!, noisy[i]!);
      const child = growth.add(path, next[i]!, chance);
      if (child === TEXT) continue;
      nodes[child] = ends[i]!;
      lengths[child] = length + 1;
      places[child] = i === 0 && own >= 0 ? places[path]! + 1 : 0;
      agreed[child] = Math.min(255, agreed[path]! + 1);
    }
  }

  /** The token of the text at the place of a path; behind its end, that of the path itself. */
  private tokenAt(path: number, tokens: readonly number[]): number {
    const { growth, places } = this.memory;
    const place = places[path]!;
    if (place < tokens.length) return tokens[place]!;
    let back = path;
    for (let up = growth.depths[path]! - 1 - (place - tokens.length); up > 0; up--) back = growth.parents[back]!;
    return growth.tokens[back]!;
  }
}

/** How likely each kind is right, which together are no more than 1. */
function ratesOf(kinds: readonly number[], rates: Rates): readonly number[] {
  let left = 1;
  return kinds.map((kind) => {
    const rate = Math.min(left, rates.of(kind));
    left -= rate;
    return rate;
  });
}

/** What noise makes of rates, if there is any. */
function noisyOf(tokens: readonly number[], rates: readonly number[], draw: Draw | undefined): readonly number[] {
  if (draw === undefined) return [];
  if (tokens.length === 1) return [chanceOf(rates[0]!, tokens[0]!, draw)];
  const noisy = tokens.map(() => 0);
  for (const { token, chance } of rankCandidates(tokens, rates, draw)) noisy[tokens.indexOf(token)] = chance;
  return noisy;
}

/** Drafts from a text itself and from what the model read and wrote before. */
export class SuffixDrafter implements Drafter {
  readonly name = 'suffix';
  private readonly memory: Memory;

  constructor(options: SuffixOptions = {}) {
    this.memory = new Memory(options);
  }

  begin({ promptLength }: Pick<DraftText, 'promptLength'>): DraftState {
    return new SuffixState(this.memory, promptLength);
  }
}
