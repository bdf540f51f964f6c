/**
 * A question of the bundled data set as the token tree that is scored: each box is a run of tokens without a branch.
 */
import type { Question } from '../../evaluate/tasks/task.js';
import { buildTree, type Path, pathLength, type Tree } from '../../evaluate/tree.js';
import { box, curve, FADED, label } from './svg.js';

/** Tokens [first, end) of a tree, of which only the last may have several children. */
interface Run {
  readonly first: number;
  readonly end: number;
  readonly children: readonly Run[];
}

/** The run that starts at token `first`. */
function runFrom(tree: Tree, first: number): Run {
  const end = tree.subtreeEnd[first]!;
  let last = first;
  while (last + 1 < end && tree.subtreeEnd[last + 1] === end) last++;
  const children: Run[] = [];
  for (let child = last + 1; child < end; child = tree.subtreeEnd[child]!) children.push(runFrom(tree, child));
  return { first, end: last + 1, children };
}

/** The text in lines of at most `width` characters. */
function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + word.length < width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

const tokens = (count: number): string => (count === 1 ? '1 token' : `${count} tokens`);

export interface TreePanel {
  readonly parts: readonly string[];
  /** Tokens computed with the tree, and without sharing. */
  readonly shared: number;
  readonly separate: number;
}

const BLUE = { fill: '#eff6ff', stroke: '#60a5fa' };
const GREEN = { fill: '#f0fdf4', stroke: '#4ade80' };

/**
 * Draws the tree of one question's `paths` from (x, y), `width` wide: the common part on the left, the choices on the
 * right.
 */
export function treePanel(question: Question, paths: readonly Path[], x: number, y: number, width: number): TreePanel {
  const tree = buildTree(paths, 'tree');
  const root = runFrom(tree, 0);
  const rowHeight = 64;
  const height = root.children.length * rowHeight - 12;
  const left = width * 0.4;
  const lines = wrapped(question.context, 30);
  const top = y + height / 2 - (lines.length * 17 + 34) / 2;
  const parts = [box(x, top, left, lines.length * 17 + 34, BLUE.fill, BLUE.stroke)];
  lines.forEach((line, i) => parts.push(label(x + 10, top + 22 + 17 * i, line, { size: 12 })));
  const rootTokens = root.end - root.first;
  parts.push(
    label(x + 10, top + 24 + 17 * lines.length, `${tokens(rootTokens)}, computed once`, { size: 11, colour: FADED }),
  );
  root.children.forEach((branch, i) => {
    const branchY = y + i * rowHeight;
    const branchX = x + left + 46;
    // A leaf's tokens belong to one choice: the one whose path ends there.
    const choice = choiceOf(tree, paths, branch);
    const text = wrapped(choice === undefined ? 'several choices' : question.choices[choice]!, 38);
    parts.push(curve(x + left, y + height / 2, branchX, branchY + 26));
    parts.push(box(branchX, branchY, width - left - 46, 52, GREEN.fill, GREEN.stroke));
    text.slice(0, 2).forEach((line, j) => parts.push(label(branchX + 10, branchY + 18 + 15 * j, line, { size: 12 })));
    const count = branch.end - branch.first;
    parts.push(label(x + width - 10, branchY + 46, tokens(count), { size: 11, colour: FADED, anchor: 'end' }));
  });
  return { parts, shared: tree.tokens.length, separate: paths.reduce((sum, path) => sum + pathLength(path), 0) };
}

/** The choice to which the tokens of a run without children belong. */
function choiceOf(tree: Tree, paths: readonly Path[], run: Run): number | undefined {
  if (run.children.length > 0) return undefined;
  const depth = tree.position[run.first]!;
  const path = paths.find(
    (candidate) =>
      pathLength(candidate) === depth + run.end - run.first &&
      candidate.continuation.at(depth - candidate.context.length) === tree.tokens[run.first],
  );
  return path?.choice;
}
