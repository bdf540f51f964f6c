import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { recogniseExperts } from '../../passes/recogniseExperts.js';
import { checkUnchanged, edit, parse, sameMeaning } from './support.js';

/** The product with all experts is left to eliminateDeadCode. */
const recognise = (graph: Graph): Graph => {
  const result = recogniseExperts(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

/** Two of three experts of width 2, whose weights add up to 1. */
const EXPERTS = `
  func @g(%x: f32[T, 3]) -> (f32[T, 3]) {
    weight @router : f32[3, 3]
    weight @g0 : f32[2, 3]
    weight @g1 : f32[2, 3]
    weight @g2 : f32[2, 3]
    weight @u0 : f32[2, 3]
    weight @u1 : f32[2, 3]
    weight @u2 : f32[2, 3]
    weight @d0 : f32[3, 2]
    weight @d1 : f32[3, 2]
    weight @d2 : f32[3, 2]
    %logits = linear(%x, @router) : f32[T, 3]
    %top = reduce_max(%logits) : f32[T, 1]
    %shifted = sub(%logits, %top) : f32[T, 3]
    %exp = exp(%shifted) : f32[T, 3]
    %total = sum(%exp) : f32[T, 1]
    %p = div(%exp, %total) : f32[T, 3]
    %mask = top_mask(%p) {k = 2} : f32[T, 3]
    %kept = mul(%p, %mask) : f32[T, 3]
    %share = sum(%kept) : f32[T, 1]
    %w = div(%kept, %share) : f32[T, 3]
    %gates = concat(@g0, @g1, @g2) {axis = 0} : f32[6, 3]
    %gate = linear(%x, %gates) : f32[T, 6]
    %ups = concat(@u0, @u1, @u2) {axis = 0} : f32[6, 3]
    %up = linear(%x, %ups) : f32[T, 6]
    %inner = mul(%gate, %up) : f32[T, 6]
    %by_expert = reshape(%inner) {shape = [T, 3, 2]} : f32[T, 3, 2]
    %w_by_expert = reshape(%w) {shape = [T, 3, 1]} : f32[T, 3, 1]
    %weighted = mul(%by_expert, %w_by_expert) : f32[T, 3, 2]
    %flat = reshape(%weighted) {shape = [T, 6]} : f32[T, 6]
    %downs = concat(@d0, @d1, @d2) {axis = 1} : f32[3, 6]
    %out = linear(%flat, %downs) : f32[T, 3] at "layers.0.ffn.experts.down"
    return %out
  }
`;

describe('recogniseExperts', () => {
  it('multiplies rows by the matrices of their own experts only', () => {
    const before = parse(EXPERTS);
    const after = recognise(before);
    const ops = after.nodes.map(({ op }) => op);
    expect(ops.filter((op) => op === 'expert_linear')).toHaveLength(3);
    expect(ops).not.toContain('top_mask');
    expect(ops.filter((op) => op === 'linear')).toHaveLength(1);
    expect(after.extents).toEqual([{ name: 'T' }, { name: 'Tx2', counts: 'pairs' }]);
    sameMeaning(before, after);
  });

  it('keeps probabilities that are not divided by their sum', () => {
    const before = parse(edit(EXPERTS, ['reshape(%w)', 'reshape(%kept)']));
    const after = recognise(before);
    const weights = after.nodes.filter(({ op }) => op === 'expert_weight');
    expect(weights.map(({ attributes }) => attributes['normalised'])).toEqual([false, false]);
    sameMeaning(before, after);
  });

  it('leaves weights alone that are no choice among probabilities, and products of other values', () => {
    checkUnchanged(edit(EXPERTS, ['top_mask(%p)', 'top_mask(%logits)']), recogniseExperts);
    const other = edit(EXPERTS, ['(%x: f32[T, 3])', '(%x: f32[T, 3], %y: f32[T, 3])']);
    checkUnchanged(edit(other, ['linear(%x, %ups)', 'linear(%y, %ups)']), recogniseExperts);
  });
});
