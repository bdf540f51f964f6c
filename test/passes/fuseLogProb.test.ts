import { describe, expect, it } from 'vitest';
import { CompileError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { fuseLogProb } from '../../passes/fuseLogProb.js';
import { lowerAsIs } from './lowered.js';
import { check, checkUnchanged, edit, parse, sameMeaning } from './support.js';

/** Logits that are no longer read are left to eliminateDeadCode. */
const fuse = (graph: Graph): Graph => {
  const result = fuseLogProb(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

const LOG_PROB = `
  func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (f32[R]) {
    weight @head : f32[6, 4]
    %unscaled = linear(%x, @head) : f32[R, 6]
    %logits = mul(%unscaled, %scale) : f32[R, 6]
    %top = reduce_max(%logits) : f32[R, 1]
    %shifted = sub(%logits, %top) : f32[R, 6]
    %exp = exp(%shifted) : f32[R, 6]
    %total = sum(%exp) : f32[R, 1]
    %log = log(%total) : f32[R, 1]
    %log_probs = sub(%shifted, %log) : f32[R, 6]
    %picked = gather_last(%log_probs, %target) : f32[R] at "head"
    return %picked
  }
`;
const IS_ARGMAX = `
  func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (i32[R]) {
    weight @head : f32[6, 4]
    %unscaled = linear(%x, @head) : f32[R, 6]
    %logits = mul(%scale, %unscaled) : f32[R, 6]
    %best = argmax(%logits) : i32[R, 1]
    %flat = reshape(%best) {shape = [R]} : i32[R]
    %equal = eq(%target, %flat) : bool[R]
    %is_best = cast(%equal) {dtype = "i32"} : i32[R] at "head"
    return %is_best
  }
`;

describe('fuseLogProb', () => {
  it('turns log_softmax and gather into one node that stores no logits', () => {
    check(
      LOG_PROB,
      fuse,
      `
      func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (f32[R]) {
        weight @head : f32[6, 4]
        %picked = logprob(%x, @head, %scale, %target) : f32[R] at "head"
        return %picked
      }
    `,
    );
  });

  it('takes a bias of the vocabulary along, as it is stored', () => {
    const biased = (bias: string): readonly (readonly [string, string])[] => [
      ['weight @head : f32[6, 4]', `weight @head : f32[6, 4]\n    weight @bias : bf16[6]${bias}`],
      [
        '%logits = mul(%unscaled, %scale) : f32[R, 6]',
        '%scaled = mul(%unscaled, %scale) : f32[R, 6]\n    %logits = add(%wide, %scaled) : f32[R, 6]',
      ],
    ];
    check(
      edit(LOG_PROB, ...biased('\n    %wide = cast(@bias) {dtype = "f32"} : f32[6]')),
      fuse,
      `
      func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (f32[R]) {
        weight @head : f32[6, 4]
        weight @bias : bf16[6]
        %picked = logprob(%x, @head, %scale, @bias, %target) {biased = true} : f32[R] at "head"
        return %picked
      }
    `,
    );
    // One that a program computes has no kernel.
    const computed = '\n    %wide_bias = cast(@bias) {dtype = "f32"} : f32[6]\n    %wide = neg(%wide_bias) : f32[6]';
    checkUnchanged(edit(LOG_PROB, ...biased(computed)), fuseLogProb);
  });

  const CAPPED = `
    %bounded_by = const() {value = 0.5} : f32[]
    %small = mul(%scaled, %bounded_by) : f32[R, 6]
    %bounded = tanh(%small) : f32[R, 6]
    %cap = const() {value = 2} : f32[]
    %logits = mul(%bounded, %cap) : f32[R, 6]`;

  it.each([
    ['with a soft cap', '    %scaled = mul(%unscaled, %scale) : f32[R, 6]' + CAPPED, { cap: 2 }],
    ['with a soft cap and no scale', CAPPED.replace('%scaled', '%unscaled'), { cap: 2 }],
    ['without a scale', '    %one = const() {value = 1} : f32[]', {}],
  ])('turns logits %s into one node', (_, text, attributes) => {
    const head = '    %logits = mul(%unscaled, %scale) : f32[R, 6]';
    const graph = parse(
      text.includes('%logits')
        ? edit(LOG_PROB, [head, text])
        : edit(edit(LOG_PROB, [head, text]), ['(%logits)', '(%unscaled)'], ['sub(%logits', 'sub(%unscaled']),
    );
    const result = fuse(graph);
    expect(result.nodes.at(-1)).toMatchObject({ op: 'logprob', attributes });
    sameMeaning(graph, result);
  });

  it('leaves logits with a factor inside their cap', () => {
    const head = '    %logits = mul(%unscaled, %scale) : f32[R, 6]';
    const text = edit(LOG_PROB, [head, CAPPED.replace('%scaled', '%unscaled').replace('value = 0.5', 'value = 0.4')]);
    checkUnchanged(text, fuseLogProb);
  });

  it('turns argmax == target into one node', () => {
    check(
      IS_ARGMAX,
      fuse,
      `
      func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (i32[R]) {
        weight @head : f32[6, 4]
        %is_best = is_argmax(%x, @head, %scale, %target) : i32[R] at "head"
        return %is_best
      }
    `,
    );
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    ['the maximum of something else', ['reduce_max(%logits)', 'reduce_max(%unscaled)']],
    ['the sum of something else', ['sum(%exp)', 'sum(%logits)']],
    ['the sum of probabilities of unshifted logits', ['exp(%shifted)', 'exp(%logits)']],
    ['no logarithm', ['log(%total)', 'neg(%total)']],
    ['log-probabilities that subtract the unshifted logits', ['sub(%shifted, %log)', 'sub(%logits, %log)']],
    ['a scale of columns', ['%scale: f32[R, 1]', '%scale: f32[6]']],
    ['one scale for all rows', ['%scale: f32[R, 1]', '%scale: f32[1, 1]']],
    [
      'logits that are no contraction',
      ['%unscaled = linear(%x, @head)', '%unscaled = cos(%given)'],
      ['%x: f32[R, 4]', '%given: f32[R, 6]'],
    ],
    [
      'one row for all scales',
      ['%x: f32[R, 4]', '%x: f32[1, 4]'],
      ['%unscaled = linear(%x, @head) : f32[R, 6]', '%unscaled = linear(%x, @head) : f32[1, 6]'],
    ],
  ])('leaves log-probabilities with %s alone', (_what, ...edits) => {
    checkUnchanged(edit(LOG_PROB, ...edits), fuseLogProb);
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    ['of another order', ['eq(%target, %flat)', 'le(%target, %flat)']],
    [
      'that stay truths',
      ['%is_best = cast(%equal) {dtype = "i32"} : i32[R]', '%is_best = cast(%equal) {dtype = "f32"} : f32[R]'],
      ['-> (i32[R])', '-> (f32[R])'],
    ],
    [
      'with every target',
      ['%flat = reshape(%best) {shape = [R]} : i32[R]', '%flat = reshape(%best) {shape = [R, 1]} : i32[R, 1]'],
      ['bool[R]', 'bool[R, R]'],
      ['i32[R] at', 'i32[R, R] at'],
      ['-> (i32[R])', '-> (i32[R, R])'],
    ],
    [
      'of the largest, not its place',
      ['argmax(%logits) : i32[R, 1]', 'reduce_max(%logits) : f32[R, 1]'],
      [
        '%flat = reshape(%best) {shape = [R]} : i32[R]',
        '%whole = cast(%best) {dtype = "i32"} : i32[R, 1]\n    %flat = reshape(%whole) {shape = [R]} : i32[R]',
      ],
    ],
  ])('leaves comparisons %s alone', (_what, ...edits) => {
    checkUnchanged(edit(IS_ARGMAX, ...edits), fuseLogProb);
  });

  /** A draw of a head whose columns stand for tokens 7, 2, 100, 31, 5 and 4. */
  const DRAWN = `
    func @g(%x: f32[R, 4], %heat: f32[R], %low: i32[R], %high: i32[R]) -> (i32[R], f32[R]) {
      weight @head : f32[6, 4]
      %logits = linear(%x, @head) : f32[R, 6]
      %ids = vector() {label = "ids", values = [7, 2, 100, 31, 5, 4]} : f32[6]
      %by_row = reshape(%heat) {shape = [R, 1]} : f32[R, 1]
      %noise = gumbel(%low, %high, %ids) {size = 6} : f32[R, 6]
      %hot = mul(%logits, %by_row) : f32[R, 6]
      %noisy = add(%hot, %noise) : f32[R, 6]
      %zero = const() {value = 0} : f32[]
      %is_greedy = eq(%by_row, %zero) : bool[R, 1]
      %scores = select(%is_greedy, %logits, %noisy) : f32[R, 6]
      %best = argmax(%scores) : i32[R, 1]
      %column = reshape(%best) {shape = [R]} : i32[R]
      %mapped = gather_rows(%ids, %column) : f32[R]
      %token = cast(%mapped) {dtype = "i32"} : i32[R]
      %top = reduce_max(%logits) : f32[R, 1]
      %shifted = sub(%logits, %top) : f32[R, 6]
      %exp = exp(%shifted) : f32[R, 6]
      %total = sum(%exp) : f32[R, 1]
      %log = log(%total) : f32[R, 1]
      %log_probs = sub(%shifted, %log) : f32[R, 6]
      %picked = gather_last(%log_probs, %column) : f32[R]
      return %token, %picked
    }
  `;

  it('draws tokens that columns stand for, with their noise', () => {
    const graph = parse(DRAWN);
    const result = fuse(graph);
    const ops = result.nodes.map((n) => n.op);
    expect(ops.filter((op) => op !== 'const')).toEqual(['vector', 'draw', 'draw_logprob']);
    sameMeaning(graph, result);
  });

  it('leaves tokens of another table than that of the noise alone', () => {
    const other = edit(
      DRAWN,
      ['gather_rows(%ids', 'gather_rows(%others'],
      ['    %by_row', '    %others = vector() {label = "others", values = [1, 2, 3, 4, 5, 6]} : f32[6]\n    %by_row'],
    );
    expect(fuse(parse(other)).nodes.map((n) => n.op)).toContain('argmax');
  });

  it('leaves the logits to another reader, for which there is no kernel', () => {
    const graph = parse(
      edit(
        LOG_PROB,
        ['-> (f32[R])', '-> (f32[R], f32[R, 6])'],
        ['    return %picked', '    %p = exp(%log_probs) : f32[R, 6]\n    return %picked, %p'],
      ),
    );
    const result = fuse(graph);
    sameMeaning(graph, result);
    expect(result.nodes.map((n) => n.op)).toEqual(expect.arrayContaining(['logprob', 'linear', 'reduce_max']));
    expect(() => lowerAsIs(result)).toThrow(CompileError);
    expect(() => lowerAsIs(result)).toThrow("no kernel for 'reduce_max' (%top)");
  });

  it('leaves logits without a row scale alone, which then have no kernel', () => {
    const text = edit(LOG_PROB, ['%logits = mul(%unscaled, %scale)', '%logits = neg(%unscaled)']);
    checkUnchanged(text, fuseLogProb);
    expect(() => lowerAsIs(parse(text))).toThrow("no kernel for 'reduce_max' (%top)");
  });
});
