import { describe, expect, it } from 'vitest';
import { isOp, type Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { recognizeExperts } from '../../passes/recognizeExperts.js';
import { EXPERTS } from './expertGraph.js';
import { checkUnchanged, edit, parse, sameMeaning } from './support.js';

/** The product with all experts is left to eliminateDeadCode. */
const recognize = (graph: Graph): Graph => {
  const result = recognizeExperts(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

describe('recognizeExperts', () => {
  it('multiplies rows by the matrices of their own experts only', () => {
    const before = parse(EXPERTS);
    const after = recognize(before);
    const ops = after.nodes.map(({ op }) => op);
    expect(ops.filter((op) => op === 'expert_linear')).toHaveLength(3);
    expect(ops).not.toContain('top_mask');
    expect(ops.filter((op) => op === 'linear')).toHaveLength(1);
    expect(after.extents).toEqual([{ name: 'T' }, { name: 'Tx2', counts: 'pairs' }]);
    sameMeaning(before, after);
  });

  it('keeps probabilities that are not divided by their sum', () => {
    const before = parse(edit(EXPERTS, ['reshape(%w)', 'reshape(%kept)']));
    const after = recognize(before);
    const weights = after.nodes.filter((node) => isOp(node, 'expert_weight'));
    expect(weights.map(({ attributes }) => attributes.normalized)).toEqual([false, false]);
    sameMeaning(before, after);
  });

  it('leaves weights alone that are no choice among probabilities, and products of other values', () => {
    checkUnchanged(edit(EXPERTS, ['top_mask(%p)', 'top_mask(%logits)']), recognizeExperts);
    const other = edit(EXPERTS, ['(%x: f32[T, 3])', '(%x: f32[T, 3], %y: f32[T, 3])']);
    checkUnchanged(edit(other, ['linear(%x, %ups)', 'linear(%y, %ups)']), recognizeExperts);
  });
});
