import { describe, expect, it } from 'vitest';
import { isOp, type Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { recognizeExperts } from '../../passes/recognizeExperts.js';
import { EXPERTS, expertGraph } from './expertGraph.js';
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

  /** Sigmoids, or the larger ones plus a bias in two of three groups, as parts of their sum, times 2.5. */
  const sigmoids = (compared: string): string =>
    edit(
      expertGraph(`
    %negative = neg(%logits) : f32[T, 3]
    %exp = exp(%negative) : f32[T, 3]
    %one = const() {value = 1} : f32[]
    %more = add(%one, %exp) : f32[T, 3]
    %p = div(%one, %more) : f32[T, 3]
    ${compared}
    %kept = mul(%p, %mask) : f32[T, 3]
    %share = sum(%kept) : f32[T, 1]
    %shares = div(%kept, %share) : f32[T, 3]
    %factor = const() {value = 2.5} : f32[]
    %w = mul(%shares, %factor) : f32[T, 3]
`),
      ['weight @d2 : f32[3, 2]', 'weight @d2 : f32[3, 2]\n    weight @b : bf16[3]'],
    );
  const BIAS = `
    %added = cast(@b) {dtype = "f32"} : f32[3]
    %compared = add(%p, %added) : f32[T, 3]`;
  const GROUPS = `${BIAS}
    %by_group = reshape(%compared) {shape = [T, 3, 1]} : f32[T, 3, 1]
    %best = top_mask(%by_group) {k = 1} : f32[T, 3, 1]
    %own = mul(%by_group, %best) : f32[T, 3, 1]
    %worth = sum(%own) : f32[T, 3, 1]
    %worth_flat = reshape(%worth) {shape = [T, 3]} : f32[T, 3]
    %open = top_mask(%worth_flat) {k = 2} : f32[T, 3]
    %open_by_group = reshape(%open) {shape = [T, 3, 1]} : f32[T, 3, 1]
    %is_open = eq(%open_by_group, %one) : bool[T, 3, 1]
    %hidden = const() {value = -inf} : f32[]
    %chosen_of = select(%is_open, %by_group, %hidden) : f32[T, 3, 1]
    %flat_choice = reshape(%chosen_of) {shape = [T, 3]} : f32[T, 3]`;

  it.each([
    ['sigmoids', sigmoids('%mask = top_mask(%p) {k = 2} : f32[T, 3]'), {}],
    ['sigmoids plus a bias', sigmoids(`${BIAS}\n    %mask = top_mask(%compared) {k = 2} : f32[T, 3]`), {}],
    [
      'groups',
      sigmoids(`${GROUPS}\n    %mask = top_mask(%flat_choice) {k = 2} : f32[T, 3]`),
      { groups: 3, kept: 2, best: 1 },
    ],
  ])('knows a choice by %s', (_, text, groups) => {
    const before = parse(text);
    const after = recognize(before);
    expect(after.nodes.map(({ op }) => op)).not.toContain('top_mask');
    const [choice] = after.nodes.filter((node) => isOp(node, 'top_experts'));
    expect(choice?.attributes).toEqual({ k: 2, scores: 'sigmoid', ...groups });
    const [weight] = after.nodes.filter((node) => isOp(node, 'expert_weight'));
    expect(weight?.attributes).toMatchObject({ normalized: true, scores: 'sigmoid', factor: 2.5 });
    sameMeaning(before, after);
  });

  /** Rows times their weights of experts are read: products are multiplied by them. */
  const scaled = (mask: string): string =>
    edit(
      sigmoids(`%mask = top_mask(%p) {k = 2} : f32[T, 3]`),
      [
        '%inner = mul(%gate, %up)',
        `%scales = reshape(%kept) {shape = [T, 3, 1]} : f32[T, 3, 1]
    %gate_each = reshape(%gate) {shape = [T, 3, 2]} : f32[T, 3, 2]
    %gate_scaled = mul(%gate_each, %scales) : f32[T, 3, 2]
    %gate_flat = reshape(%gate_scaled) {shape = [T, 6]} : f32[T, 6]
    %up_each = reshape(%up) {shape = [T, 3, 2]} : f32[T, 3, 2]
    %up_scaled = mul(%up_each, %scales) : f32[T, 3, 2]
    %up_flat = reshape(%up_scaled) {shape = [T, 6]} : f32[T, 6]
    %inner = mul(%gate_flat, %up_flat)`,
      ],
      ['reshape(%w)', `reshape(%${mask})`],
    );

  it('multiplies rows that experts read by their weights', () => {
    const before = parse(scaled('mask'));
    const after = recognize(before);
    expect(after.nodes.filter(({ op }) => op === 'expert_linear')).toHaveLength(3);
    expect(after.nodes.map(({ op }) => op)).not.toContain('top_mask');
    sameMeaning(before, after);
  });

  /** One turn after another: the largest of %open by its part of a softmax over those near it. */
  const turn = (at: number, open: string): string => `
    %top_${at} = reduce_max(%${open}) : f32[T, 1]
    %most_${at} = max(%size, %top_${at}) : f32[T, 3]
    %below_${at} = sub(%top_${at}, %logits) : f32[T, 3]
    %distance_${at} = div(%below_${at}, %most_${at}) : f32[T, 3]
    %far_${at} = lt(%within, %distance_${at}) : bool[T, 3]
    %near_${at} = select(%far_${at}, %hidden, %${open}) : f32[T, 3]
    %nearest_${at} = reduce_max(%near_${at}) : f32[T, 1]
    %shifted_${at} = sub(%near_${at}, %nearest_${at}) : f32[T, 3]
    %exp_${at} = exp(%shifted_${at}) : f32[T, 3]
    %total_${at} = sum(%exp_${at}) : f32[T, 1]
    %p_${at} = div(%exp_${at}, %total_${at}) : f32[T, 3]
    %mask_${at} = top_mask(%${open}) {k = 1} : f32[T, 3]
    %w_${at} = mul(%p_${at}, %mask_${at}) : f32[T, 3]`;
  const IN_TURN = expertGraph(`
    %hidden = const() {value = -inf} : f32[]
    %none = const() {value = 0} : f32[]
    %within = const() {value = 0.75} : f32[]
    %negative = neg(%logits) : f32[T, 3]
    %size = max(%logits, %negative) : f32[T, 3]
    ${turn(0, 'logits')}
    %is_free = eq(%mask_0, %none) : bool[T, 3]
    %open = select(%is_free, %logits, %hidden) : f32[T, 3]
    ${turn(1, 'open')}
    %w = add(%w_0, %w_1) : f32[T, 3]
`);

  it('knows experts that are weighed in turn', () => {
    const before = parse(IN_TURN);
    const after = recognize(before);
    expect(after.nodes.map(({ op }) => op)).not.toContain('top_mask');
    const weights = after.nodes.filter((node) => isOp(node, 'expert_weight'));
    expect(weights.map(({ attributes: { slot, inTurn, normalized } }) => ({ slot, inTurn, normalized }))).toEqual(
      [0, 1].map((slot) => ({ slot, inTurn: 0.75, normalized: false })),
    );
    sameMeaning(before, after);
  });

  it.each([
    [
      'the second turn is open to the first expert too',
      ['select(%is_free, %logits, %hidden)', 'select(%is_free, %size, %hidden)'],
    ],
    ['of another distance', ['%most_1 = max(%size, %top_1)', '%most_1 = max(%logits, %top_1)']],
    ['of a choice among others', ['%mask_1 = top_mask(%open)', '%mask_1 = top_mask(%near_1)']],
    ['of two at once', ['top_mask(%logits) {k = 1}', 'top_mask(%logits) {k = 2}']],
  ] as const)('leaves weights in turn alone: %s', (_, change) => {
    checkUnchanged(edit(IN_TURN, change), recognizeExperts);
  });

  it('leaves such experts alone where what they give is weighed too', () => {
    checkUnchanged(scaled('kept'), recognizeExperts);
  });

  it('leaves weights alone that are no choice among probabilities, and products of other values', () => {
    checkUnchanged(edit(EXPERTS, ['top_mask(%p)', 'top_mask(%logits)']), recognizeExperts);
    const other = edit(EXPERTS, ['(%x: f32[T, 3])', '(%x: f32[T, 3], %y: f32[T, 3])']);
    checkUnchanged(edit(other, ['linear(%x, %ups)', 'linear(%y, %ups)']), recognizeExperts);
  });
});
