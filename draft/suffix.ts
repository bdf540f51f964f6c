/**
 * Suffix drafting: the end of a text is looked for in what the model read and wrote, and what followed there is the
 * draft. Prompts and outputs are in one tree with the number of times that each continuation was seen; the oldest
 * leave. The text itself also has an index, which knows its latest places. Where several continuations were seen the
 * draft is a tree: nodes are added by the probability that all on their path are right, with the noise of their places
 * looked at. Source: suffix decoding (Oliaro et al., arXiv:2411.04975).
 */
import { chanceOf, rankCandidates } from './chance.js';
import { type Draft, type Drafter, type DraftState, type DraftText, NO_DRAFT } from './drafter.js';
import { LEAST_CHANCE, NgramIndex } from './ngram.js';
import { LENGTHS, lengthKind, Rates } from './rates.js';
import { ROOT, SuffixTree } from './suffixTree.js';

export interface SuffixOptions {
  /** Tokens of prompts and outputs that are kept: a power of two. One takes 76 bytes. */
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

/** A path of drafts, and where it is in the tree and in the text. */
interface Path {
  readonly parent: Path | undefined;
  readonly token: number;
  readonly depth: number;
  readonly chance: number;
  /** The probability that all of it is right. */
  readonly survival: number;
  /** In the tree: where it ends, and tokens up to there. */
  readonly node: number;
  readonly length: number;
  /** In the text: what follows, and tokens before that agree. Behind its end it goes on with itself. */
  readonly at: number;
  readonly agreed: number;
}

/** What was found for a place that was not known then. */
interface Open {
  readonly place: number;
  readonly tokens: readonly number[];
  readonly kinds: readonly number[];
}

/** What the texts of a model share. */
class Memory {
  readonly options: Required<SuffixOptions>;
  readonly rates = new Rates(PRIOR);
  private known: SuffixTree | undefined;

  constructor(options: SuffixOptions) {
    this.options = {
      tokens: DEFAULT_TOKENS,
      leastChance: LEAST_CHANCE,
      factor: DEFAULT_FACTOR,
      children: DEFAULT_CHILDREN,
      ...options,
    };
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
  private open: Open | undefined;

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
    if (most <= 0) return NO_DRAFT;
    const root = this.rootOf(tokens);
    return root.node === ROOT && root.at === 0 ? NO_DRAFT : this.grow(root, text, most);
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
    if (this.open === undefined || this.open.place >= tokens.length) return;
    const { place, kinds } = this.open;
    const right = tokens[place];
    for (const [i, token] of this.open.tokens.entries()) this.memory.rates.count(kinds[i]!, token === right);
    this.open = undefined;
  }

  /** The longest end of the text that is in the tree, and in the text before. */
  private rootOf(tokens: readonly number[]): Path {
    const { tree } = this.memory;
    let length = Math.min(MOST_MATCHED, tokens.length, this.matched + tokens.length - this.seen);
    let node = ROOT;
    // What is in the tree has all its ends there.
    while (length > 0 && (node = tree.find(tokens, tokens.length - length)) === ROOT) length--;
    this.matched = length;
    this.seen = tokens.length;
    const { at, length: agreed } = this.own.find(tokens) ?? { at: 0, length: 0 };
    return { parent: undefined, token: -1, depth: 0, chance: 1, survival: 1, node, length, at, agreed };
  }

  /** Adds the most likely node until there are enough, or all others are too unlikely. */
  private grow(root: Path, text: DraftText, most: number): Draft {
    const { leastChance, factor } = this.memory.options;
    const deepest = Math.ceil(factor * Math.max(root.length, root.agreed));
    const taken: Path[] = [];
    const open = [...this.following(root, text)];
    while (taken.length < most && open.length > 0) {
      let best = 0;
      for (let i = 1; i < open.length; i++) if (open[i]!.survival > open[best]!.survival) best = i;
      const path = open[best]!;
      if (path.survival < leastChance) break;
      open[best] = open.at(-1)!;
      open.pop();
      taken.push(path);
      if (taken.length < most && path.depth < deepest) open.push(...this.following(path, text));
    }
    return draftOf(taken);
  }

  /** What may come behind a path, with the probability of each. */
  private following(path: Path, text: DraftText): readonly Path[] {
    const { tree, rates, options } = this.memory;
    const { tokens } = text;
    const { node, length, at, agreed, depth } = path;
    const found: number[] = [];
    const kinds: number[] = [];
    const chances: number[] = [];
    const nodes: number[] = [];
    const own = at === 0 ? undefined : this.tokenAt(path, tokens);
    if (own !== undefined) {
      found.push(own);
      kinds.push(OWN + lengthKind(agreed));
      nodes.push(ROOT);
    }
    if (node !== ROOT) {
      const total = tree.countOf(node);
      for (const next of tree.after(node, length, options.children)) {
        if (next.token === own) {
          kinds[0] = BOTH + lengthKind(Math.max(agreed, length));
          nodes[0] = next.node;
          continue;
        }
        found.push(next.token);
        kinds.push(lengthKind(length) * SHARES + shareKind(next.count, total));
        nodes.push(next.node);
      }
    }
    if (found.length === 0) return [];
    if (depth === 0) this.open = { place: tokens.length, tokens: found, kinds };
    let left = 1;
    for (const kind of kinds) {
      const chance = Math.min(left, rates.of(kind));
      chances.push(chance);
      left -= chance;
    }
    const draw = text.drawAt(tokens.length + depth);
    const ranked =
      found.length === 1
        ? [{ token: found[0]!, chance: chanceOf(chances[0]!, found[0]!, draw) }]
        : rankCandidates(found, chances, draw);
    return ranked.map(({ token, chance }) => {
      const next = nodes[found.indexOf(token)]!;
      return {
        parent: path,
        token,
        chance,
        depth: depth + 1,
        survival: path.survival * chance,
        node: next,
        length: length + 1,
        at: token === own ? at + 1 : 0,
        agreed: agreed + 1,
      };
    });
  }

  /** The token of the text at the place of a path; behind its end, that of the path itself. */
  private tokenAt(path: Path, tokens: readonly number[]): number {
    if (path.at < tokens.length) return tokens[path.at]!;
    let back = path;
    for (let up = path.depth - 1 - (path.at - tokens.length); up > 0; up--) back = back.parent!;
    return back.token;
  }
}

/** Nodes as a draft: the likeliest path first. A parent was taken before its children. */
function draftOf(taken: readonly Path[]): Draft {
  if (taken.length === 0) return NO_DRAFT;
  const chain: Path[] = [];
  for (const path of taken)
    if (path.parent === (chain.at(-1) ?? path.parent) && path.depth === chain.length + 1) chain.push(path);
  const isChain = chain.length === taken.length;
  const order = isChain ? chain : [...chain, ...taken.filter((path) => !chain.includes(path))];
  const draft = { tokens: order.map(({ token }) => token), chances: order.map(({ chance }) => chance) };
  return isChain ? draft : { ...draft, parents: order.map(({ parent }) => order.indexOf(parent!)) };
}

/** Drafts from a text itself and from what the model wrote before. */
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
