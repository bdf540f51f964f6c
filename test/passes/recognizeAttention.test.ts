import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { recognizeAttention } from '../../passes/recognizeAttention.js';
import { check, checkUnchanged, edit, parse, sameMeaning } from './support.js';

/** The parts that attention was made of are left to eliminateDeadCode. */
const recognize = (graph: Graph): Graph => {
  const result = recognizeAttention(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

const ATTENTION = `
  func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %bias: f32[T, T]) -> (f32[2, T, 4]) {
    %q_by_head = transpose(%q) {order = [1, 0, 2]} : f32[2, T, 4]
    %k_by_head = transpose(%k) {order = [1, 0, 2]} : f32[2, T, 4]
    %v_by_head = transpose(%v) {order = [1, 0, 2]} : f32[2, T, 4]
    %k_transposed = transpose(%k_by_head) {order = [0, 2, 1]} : f32[2, 4, T]
    %dot = matmul(%q_by_head, %k_transposed) : f32[2, T, T]
    %half = const() {value = 0.5} : f32[]
    %scaled = mul(%dot, %half) : f32[2, T, T]
    %scores = add(%scaled, %bias) : f32[2, T, T]
    %top = reduce_max(%scores) : f32[2, T, 1]
    %shifted = sub(%scores, %top) : f32[2, T, T]
    %exp = exp(%shifted) : f32[2, T, T]
    %total = sum(%exp) : f32[2, T, 1]
    %p = div(%exp, %total) : f32[2, T, T]
    %mixed = matmul(%p, %v_by_head) : f32[2, T, 4] at "layers.0.attention"
    return %mixed
  }
`;

describe('recognizeAttention', () => {
  it('turns softmax(q·kᵀ·scale + bias)·v into one node', () => {
    check(
      ATTENTION,
      recognize,
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %bias: f32[T, T]) -> (f32[2, T, 4]) {
        %attended = attention(%q, %k, %v, %bias) {mask = "bias", scale = 0.5} : f32[T, 2, 4] at "layers.0.attention"
        %mixed = transpose(%attended) {order = [1, 0, 2]} : f32[2, T, 4] at "layers.0.attention"
        return %mixed
      }
    `,
    );
  });

  it('recognizes sinks, which are stored as any float', () => {
    const sinks = edit(
      ATTENTION,
      [
        '%bias: f32[T, T]) -> (f32[2, T, 4]) {',
        `%bias: f32[T, T]) -> (f32[2, T, 4]) {
    weight @sinks: bf16[2]
    %sink_f32 = cast(@sinks) {dtype = "f32"} : f32[2]
    %sink = reshape(%sink_f32) {shape = [2, 1, 1]} : f32[2, 1, 1]`,
      ],
      [
        '%top = reduce_max(%scores)',
        `%most = reduce_max(%scores) : f32[2, T, 1]
    %top = max(%most, %sink)`,
      ],
      [
        '%total = sum(%exp)',
        `%sum = sum(%exp) : f32[2, T, 1]
    %sink_shifted = sub(%sink, %top) : f32[2, T, 1]
    %sink_exp = exp(%sink_shifted) : f32[2, T, 1]
    %total = add(%sum, %sink_exp)`,
      ],
    );
    const result = recognize(parse(sinks));
    const node = result.nodes.find(({ op }) => op === 'attention');
    expect(node?.attributes).toEqual({ scale: 0.5, mask: 'bias', sinks: true });
    expect(node?.inputs.at(-1)?.name).toBe('sinks');
    sameMeaning(parse(sinks), result);
    // The maximum is that of the scores and the same sinks.
    checkUnchanged(edit(sinks, ['max(%most, %sink)', 'max(%most, %most)']), recognizeAttention);
    checkUnchanged(edit(sinks, ['add(%sum, %sink_exp)', 'mul(%sum, %sink_exp)']), recognizeAttention);
  });

  it('recognizes a tail of heads, whose keys all heads share', () => {
    const tailed = edit(
      ATTENTION,
      ['%bias: f32[T, T])', '%q_tail: f32[T, 2, 3], %k_tail: f32[T, 1, 3], %bias: f32[T, T])'],
      ['mul(%dot, %half)', `mul(%both, %half)`],
      [
        '    %half =',
        `    %q_turned = transpose(%q_tail) {order = [1, 0, 2]} : f32[2, T, 3]
    %one = transpose(%k_tail) {order = [1, 0, 2]} : f32[1, T, 3]
    %k_turned = repeat(%one) {times = 2} : f32[2, T, 3]
    %k_tail_transposed = transpose(%k_turned) {order = [0, 2, 1]} : f32[2, 3, T]
    %dot_of_tails = matmul(%q_turned, %k_tail_transposed) : f32[2, T, T]
    %both = add(%dot, %dot_of_tails) : f32[2, T, T]
    %half =`,
      ],
    );
    for (const text of [tailed, edit(tailed, ['add(%dot, %dot_of_tails)', 'add(%dot_of_tails, %dot)'])]) {
      const result = recognize(parse(text));
      const node = result.nodes.find(({ op }) => op === 'attention');
      expect(node?.attributes).toEqual({ scale: 0.5, mask: 'bias', tailed: true });
      expect(node?.inputs.map(({ name }) => name)).toEqual(['q', 'k', 'v', 'q_tail', 'k_tail', 'bias']);
      sameMeaning(parse(text), result);
    }
    // Tails whose heads have keys of their own, and a difference.
    const own = edit(
      tailed,
      ['%k_tail: f32[T, 1, 3]', '%k_tail: f32[T, 2, 3]'],
      ['    %one = transpose(%k_tail) {order = [1, 0, 2]} : f32[1, T, 3]\n', ''],
      ['repeat(%one) {times = 2}', 'transpose(%k_tail) {order = [1, 0, 2]}'],
    );
    checkUnchanged(own, recognizeAttention);
    checkUnchanged(edit(tailed, ['add(%dot, %dot_of_tails)', 'sub(%dot, %dot_of_tails)']), recognizeAttention);
  });

  it('recognizes slopes of heads, times a distance of positions', () => {
    const sloped = edit(
      ATTENTION,
      ['%bias: f32[T, T])', '%distance: i32[T, T], %bias: f32[T, T])'],
      ['add(%scaled, %bias)', 'add(%falling, %bias)'],
      [
        '    %scores =',
        `    %slopes = vector() {label = "alibi_slopes", values = [0.25, 0.0625]} : f32[2]
    %by_head = reshape(%slopes) {shape = [2, 1, 1]} : f32[2, 1, 1]
    %far = cast(%distance) {dtype = "f32"} : f32[T, T]
    %alibi = mul(%by_head, %far) : f32[2, T, T]
    %falling = add(%scaled, %alibi) : f32[2, T, T]
    %scores =`,
      ],
    );
    const result = recognize(parse(sloped));
    const node = result.nodes.find(({ op }) => op === 'attention');
    expect(node?.attributes).toEqual({ scale: 0.5, mask: 'bias', sloped: true });
    expect(node?.inputs.map(({ name }) => name)).toEqual(['q', 'k', 'v', 'bias', 'slopes', 'distance']);
    sameMeaning(parse(sloped), result);
    // Neither a product of both, nor a whole number of positions.
    checkUnchanged(edit(sloped, ['mul(%by_head, %far)', 'add(%by_head, %far)']), recognizeAttention);
    checkUnchanged(
      edit(
        sloped,
        ['%distance: i32[T, T]', '%distance: f32[T, T]'],
        ['cast(%distance) {dtype = "f32"}', 'neg(%distance)'],
      ),
      recognizeAttention,
    );
  });

  it('recognizes a soft cap of the scores', () => {
    const capped = edit(ATTENTION, [
      '    %scores = add(%scaled, %bias)',
      `    %fifth = const() {value = 0.2} : f32[]
    %small = mul(%scaled, %fifth) : f32[2, T, T]
    %bounded = tanh(%small) : f32[2, T, T]
    %five = const() {value = 5} : f32[]
    %capped = mul(%five, %bounded) : f32[2, T, T]
    %scores = add(%capped, %bias)`,
    ]);
    const result = recognize(parse(capped));
    expect(result.nodes.find(({ op }) => op === 'attention')?.attributes).toEqual({ scale: 0.5, mask: 'bias', cap: 5 });
    sameMeaning(parse(capped), result);
    // A factor inside the cap that is not its inverse belongs to the scale.
    const scaled = edit(capped, ['value = 0.2', 'value = 0.8']);
    expect(recognize(parse(scaled)).nodes.find(({ op }) => op === 'attention')?.attributes).toEqual({
      scale: 2,
      mask: 'bias',
      cap: 5,
    });
    sameMeaning(parse(scaled), recognize(parse(scaled)));
    checkUnchanged(edit(capped, ['value = 5', 'value = -5']), recognizeAttention);
    checkUnchanged(edit(capped, ['tanh(%small)', 'erf(%small)']), recognizeAttention);
  });

  it('reads key heads unrepeated that were repeated for groups of query heads', () => {
    check(
      `
      func @g(%q: f32[T, 6, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %bias: f32[T, T]) -> (f32[6, T, 4]) {
        %q_by_head = transpose(%q) {order = [1, 0, 2]} : f32[6, T, 4]
        %k_by_head = transpose(%k) {order = [1, 0, 2]} : f32[2, T, 4]
        %v_by_head = transpose(%v) {order = [1, 0, 2]} : f32[2, T, 4]
        %k_shared = repeat(%k_by_head) {times = 3} : f32[6, T, 4]
        %v_shared = repeat(%v_by_head) {times = 3} : f32[6, T, 4]
        %k_transposed = transpose(%k_shared) {order = [0, 2, 1]} : f32[6, 4, T]
        %dot = matmul(%q_by_head, %k_transposed) : f32[6, T, T]
        %scores = add(%bias, %dot) : f32[6, T, T]
        %top = reduce_max(%scores) : f32[6, T, 1]
        %shifted = sub(%scores, %top) : f32[6, T, T]
        %exp = exp(%shifted) : f32[6, T, T]
        %total = sum(%exp) : f32[6, T, 1]
        %p = div(%exp, %total) : f32[6, T, T]
        %mixed = matmul(%p, %v_shared) : f32[6, T, 4]
        return %mixed
      }
    `,
      recognize,
      `
      func @g(%q: f32[T, 6, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %bias: f32[T, T]) -> (f32[6, T, 4]) {
        %attended = attention(%q, %k, %v, %bias) {mask = "bias", scale = 1} : f32[T, 6, 4]
        %mixed = transpose(%attended) {order = [1, 0, 2]} : f32[6, T, 4]
        return %mixed
      }
    `,
    );
  });

  it('accepts operands of + and · in either order, a scale behind a cast, and keys that another reader shares', () => {
    const variants = [
      edit(ATTENTION, ['mul(%dot, %half)', 'mul(%half, %dot)']),
      edit(ATTENTION, ['add(%scaled, %bias)', 'add(%bias, %scaled)']),
      edit(
        ATTENTION,
        ['mul(%dot, %half)', 'mul(%dot, %factor)'],
        ['    %scaled', '    %factor = cast(%half) {dtype = "f32"} : f32[]\n    %scaled'],
      ),
      edit(
        ATTENTION,
        ['(f32[2, T, 4]) {', '(f32[2, T, 4], f32[2, 4, T]) {'],
        ['return %mixed', 'return %mixed, %k_transposed'],
      ),
    ];
    for (const text of variants) {
      const graph = parse(text);
      const result = recognize(graph);
      expect(result.nodes.filter((n) => n.op === 'attention').map((n) => n.attributes)).toEqual([
        { scale: 0.5, mask: 'bias' },
      ]);
      sameMeaning(graph, result);
    }
  });

  it('keeps the value of a scale that a cast rounds', () => {
    const graph = parse(
      edit(
        ATTENTION,
        ['mul(%dot, %half)', 'mul(%dot, %factor)'],
        ['value = 0.5', 'value = 0.3'],
        [
          '    %scaled',
          '    %narrow = cast(%half) {dtype = "bf16"} : bf16[]\n    %factor = cast(%narrow) {dtype = ' +
            '"f32"} : f32[]\n    %scaled',
        ],
      ),
    );
    const result = recognize(graph);
    expect(result.nodes.find((n) => n.op === 'attention')?.attributes['scale']).toBe(0.30078125);
    sameMeaning(graph, result);
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    ['the maximum of something else', ['reduce_max(%scores)', 'reduce_max(%scaled)']],
    ['the sum of something else', ['sum(%exp)', 'sum(%shifted)']],
    ['no exponential', ['exp(%shifted)', 'cos(%shifted)']],
    [
      'a softmax over queries',
      ['    %top', '    %turned = transpose(%scores) {order = [0, 2, 1]} : f32[2, T, T]\n    %top'],
      ['reduce_max(%scores)', 'reduce_max(%turned)'],
      ['sub(%scores, %top)', 'sub(%turned, %top)'],
      ['    %mixed', '    %back = transpose(%p) {order = [0, 2, 1]} : f32[2, T, T]\n    %mixed'],
      ['matmul(%p,', 'matmul(%back,'],
    ],
    ['a bias for each head', ['%bias: f32[T, T]', '%bias: f32[2, T, T]']],
    ['a bias for each key', ['%bias: f32[T, T]', '%bias: f32[1, T]']],
    ['a bias for each query', ['%bias: f32[T, T]', '%bias: f32[T, 1]']],
    ['no bias', ['add(%scaled, %bias)', 'neg(%scaled)']],
    [
      'a scale that is an input',
      ['%bias: f32[T, T]', '%bias: f32[T, T], %s: f32[]'],
      ['mul(%dot, %half)', 'mul(%dot, %s)'],
    ],
    [
      'a scale of scores and bias',
      ['add(%scaled, %bias)', 'add(%dot, %bias)'],
      ['    %top', '    %late = mul(%scores, %half) : f32[2, T, T]\n    %top'],
      ['reduce_max(%scores)', 'reduce_max(%late)'],
      ['sub(%scores', 'sub(%late'],
    ],
    [
      'values with tokens on another axis',
      ['%v: f32[T, 2, 4]', '%v: f32[2, T, 4]'],
      ['transpose(%v) {order = [1, 0, 2]}', 'neg(%v)'],
    ],
  ])('leaves %s alone', (_what, ...edits) => {
    checkUnchanged(edit(ATTENTION, ...edits), recognizeAttention);
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    [
      'queries that were repeated',
      ['%q: f32[T, 2, 4]', '%q: f32[T, 1, 4]'],
      [
        '%q_by_head = transpose(%q) {order = [1, 0, 2]} : f32[2, T, 4]',
        '%one = transpose(%q) {order = [1, 0, 2]} : f32[1, T, 4]\n    %q_by_head = repeat(%one) ' +
          '{times = 2} : f32[2, T, 4]',
      ],
    ],
    [
      'values in more groups than keys',
      ['%k: f32[T, 2, 4]', '%k: f32[T, 1, 4]'],
      [
        '%k_by_head = transpose(%k) {order = [1, 0, 2]} : f32[2, T, 4]',
        '%one = transpose(%k) {order = [1, 0, 2]} : f32[1, T, 4]\n    %k_by_head = repeat(%one) ' +
          '{times = 2} : f32[2, T, 4]',
      ],
    ],
  ])('leaves %s alone, whose heads would be counted wrongly', (_what, ...edits) => {
    checkUnchanged(edit(ATTENTION, ...edits), recognizeAttention);
  });
});
