/**
 * Drafts as they lie in a step: a chain behind the last token of a text, which is part of the sequence's own run, and
 * branches that leave it, each a run with a page of its own. Along every run a token follows the one before it.
 */
import { type Draft, usableDraft } from '../draft/drafter.js';

/** Nodes of which none is on the chain, one behind another. */
export interface DraftBranch {
  /** Its nodes: from `first` to before `end`. */
  readonly first: number;
  readonly end: number;
  /** The branch before it that it leaves; −1: the text, or the chain. */
  readonly of: number;
  /** Drafts before its first node, along its path. */
  readonly depth: number;
}

export interface DraftTree {
  /** Those of the chain, then branch after branch. */
  readonly tokens: readonly number[];
  /** Of each node the one before it; −1: the last token of the text. */
  readonly parents: readonly number[];
  /** How many nodes the chain has. */
  readonly chain: number;
  readonly branches: readonly DraftBranch[];
}

export const NO_DRAFTS: DraftTree = { tokens: [], parents: [], chain: 0, branches: [] };

/**
 * The tree of the first `most` drafts that are of use. The first child of every node continues its run, so the chain
 * is the first of a draft. Of nodes that are the same token behind the same one, there is one.
 */
export function layOut(proposed: Draft, most: number): DraftTree {
  const { tokens, parents } = usableDraft(proposed, most);
  if (tokens.length === 0) return NO_DRAFTS;
  if (parents === undefined)
    return { tokens, parents: tokens.map((_, i) => i - 1), chain: tokens.length, branches: [] };
  const root: Node = { token: -1, place: -1, run: -1, depth: 0, children: [] };
  const nodes: Node[] = [];
  tokens.forEach((token, i) => {
    const parent = nodes[parents[i]!] ?? root;
    const same = parent.children.find((each) => each.token === token);
    if (same === undefined) parent.children.push({ token, parent, depth: parent.depth + 1, children: [] });
    nodes.push(same ?? parent.children.at(-1)!);
  });
  const order: Node[] = [];
  const follow = (first: Node, run: number): void => {
    for (let node: Node | undefined = first; node !== undefined; [node] = node.children) {
      Object.assign(node, { place: order.length, run });
      order.push(node);
    }
  };
  follow(nodes[0]!, -1);
  const chain = order.length;
  const branches: DraftBranch[] = [];
  for (const node of nodes) {
    if (node.place !== undefined) continue;
    const first = order.length;
    follow(node, branches.length);
    branches.push({ first, end: order.length, of: node.parent!.run!, depth: node.depth - 1 });
  }
  return {
    tokens: order.map(({ token }) => token),
    parents: order.map(({ parent }) => parent!.place!),
    ...{ chain, branches },
  };
}

/** A node while a tree is laid out: its place, and the branch that it is in; −1: the chain. */
interface Node {
  readonly token: number;
  readonly parent?: Node;
  readonly depth: number;
  readonly children: Node[];
  place?: number;
  run?: number;
}

/** The chain of a tree, its first `chain` nodes at most, and the first `branches` that leave what is left. */
export function cutTree(tree: DraftTree, chain: number, branches: number): DraftTree {
  if (chain >= tree.chain && branches >= tree.branches.length) return tree;
  const kept = Math.max(0, Math.min(chain, tree.chain));
  if (kept < tree.chain)
    return { tokens: tree.tokens.slice(0, kept), parents: tree.parents.slice(0, kept), chain: kept, branches: [] };
  const left = tree.branches.slice(0, Math.max(0, branches));
  const end = left.at(-1)?.end ?? kept;
  return { tokens: tree.tokens.slice(0, end), parents: tree.parents.slice(0, end), chain: kept, branches: left };
}

/** The tokens from the first draft to this node; none for −1. */
export function pathTo({ tokens, parents }: Pick<DraftTree, 'tokens' | 'parents'>, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at >= 0; at = parents[at]!) path.push(tokens[at]!);
  return path.reverse();
}

/** Drafts up to a node, itself among them; 0 for −1. */
export function depthOf({ parents }: DraftTree, node: number): number {
  let depth = 0;
  for (let at = node; at >= 0; at = parents[at]!) depth++;
  return depth;
}

/** Whether a text of `length` tokens ends with the drafts up to a node. */
export function endsWith(text: readonly number[], { tokens, parents }: DraftTree, node: number): boolean {
  for (let [at, place] = [node, text.length - 1]; at >= 0; at = parents[at]!, place--)
    if (text[place] !== tokens[at]) return false;
  return true;
}

/** The node that is a token behind another; −1 where there is none. */
export const childOf = (
  { tokens, parents }: Pick<DraftTree, 'tokens' | 'parents'>,
  node: number,
  token: number,
): number => tokens.findIndex((each, at) => each === token && parents[at] === node);

/** Where the nodes of drafts are in a tree that has what they follow; −1 for those that it does not have. */
export function placesIn(
  tree: Pick<DraftTree, 'tokens' | 'parents'>,
  drafts: Pick<DraftTree, 'tokens' | 'parents'>,
): readonly number[] {
  const places: number[] = [];
  drafts.tokens.forEach((token, node) => {
    const parent = drafts.parents[node]!;
    const isLost = parent >= 0 && places[parent]! < 0;
    places.push(isLost ? -1 : childOf(tree, parent < 0 ? -1 : places[parent]!, token));
  });
  return places;
}

/** The nodes that a text has behind its first `length` tokens, in order. */
export function acceptedNodes(tree: DraftTree, text: readonly number[], length: number): number[] {
  const nodes: number[] = [];
  let last = -1;
  for (let at = length; at < text.length; at++) {
    const next = childOf(tree, last, text[at]!);
    if (next < 0) break;
    nodes.push((last = next));
  }
  return nodes;
}

/** Keys of drafts behind the first `length` tokens, beside those: a branch lists its path anew. */
export const keysOf = ({ chain, branches }: DraftTree, length: number): number =>
  branches.reduce((sum, { first, end, depth }) => sum + length + depth + end - first, chain);
