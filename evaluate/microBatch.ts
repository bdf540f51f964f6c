/** Lays the trees of one micro-batch end to end. */
import type { MicroBatch } from './scorer.js';
import { type Answer, buildTree, type Path, type TreeSharing } from './tree.js';

export interface LaidBatch {
  readonly batch: MicroBatch;
  /** `scored` holds row numbers of the whole micro-batch. */
  readonly answers: readonly Answer[];
}

/** Each element of groups is the paths of one tree. */
export function layBatch(groups: readonly (readonly Path[])[], sharing: TreeSharing): LaidBatch {
  const trees = groups.map((paths) => buildTree(paths, sharing));
  const tokenCount = trees.reduce((sum, tree) => sum + tree.tokens.length, 0);
  const rowCount = trees.reduce((sum, tree) => sum + tree.row.length, 0);
  const batch = {
    tokens: new Int32Array(tokenCount),
    position: new Int32Array(tokenCount),
    subtreeEnd: new Int32Array(tokenCount),
    row: new Int32Array(rowCount),
    target: new Int32Array(rowCount),
  };
  const answers: Answer[] = [];
  let token = 0,
    firstRow = 0;
  for (const tree of trees) {
    batch.tokens.set(tree.tokens, token);
    batch.position.set(tree.position, token);
    for (let i = 0; i < tree.subtreeEnd.length; i++) batch.subtreeEnd[token + i] = (tree.subtreeEnd[i] ?? 0) + token;
    for (let i = 0; i < tree.row.length; i++) batch.row[firstRow + i] = (tree.row[i] ?? 0) + token;
    batch.target.set(tree.target, firstRow);
    for (const { question, choice, scored } of tree.answers) {
      answers.push({ question, choice, scored: scored.map((index) => index + firstRow) });
    }
    token += tree.tokens.length;
    firstRow += tree.row.length;
  }
  return { batch, answers };
}
