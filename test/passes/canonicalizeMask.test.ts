import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { GraphBuilder, isOp, type Graph, type Value } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { Tensor } from '../../ir/ops/opDef.js';
import { buildMask, type MaskKind } from '../../models/model/model.js';
import { canonicalizeMask } from '../../passes/canonicalizeMask.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { randomNumbers } from '../support/numbers.js';
import { interpretLowered, lowerAsIs } from './lowered.js';
import { check, checkUnchanged, distance, edit, environment, parse } from './support.js';

/** The bias that the mask was made of is left to eliminateDeadCode. */
const canonicalize = (graph: Graph): Graph => {
  const result = canonicalizeMask(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

const masked = (params: string, mask: string): string => `
  func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4]${params}) -> (f32[T, 2, 4]) {
    %index = iota() {size = [T]} : i32[T]
    %of_query = reshape(%index) {shape = [T, 1]} : i32[T, 1]
    %of_key = reshape(%index) {shape = [1, T]} : i32[1, T]
    %not_after = le(%of_key, %of_query) : bool[T, T]
${mask}
    %zero = const() {value = 0} : f32[]
    %hidden = const() {value = -inf} : f32[]
    %bias = select(%visible, %zero, %hidden) : f32[T, T]
    %out = attention(%q, %k, %v, %bias) {mask = "bias", scale = 0.5} : f32[T, 2, 4]
    return %out
  }
`;

const CAUSAL = masked('', '    %visible = and(%not_after, %not_after) : bool[T, T]');
const TREE = masked(
  ', %subtreeEnd: i32[T]',
  `
    %end = reshape(%subtreeEnd) {shape = [1, T]} : i32[1, T]
    %not_ended = lt(%of_query, %end) : bool[T, T]
    %visible = and(%not_after, %not_ended) : bool[T, T]`,
);
const META_PAIR = masked(
  ', %branch: i32[T], %pair: i32[T]',
  `
    %pair_k = reshape(%pair) {shape = [1, T]} : i32[1, T]
    %pair_q = reshape(%pair) {shape = [T, 1]} : i32[T, 1]
    %same_pair = eq(%pair_k, %pair_q) : bool[T, T]
    %branch_k = reshape(%branch) {shape = [1, T]} : i32[1, T]
    %branch_q = reshape(%branch) {shape = [T, 1]} : i32[T, 1]
    %nought = const() {value = 0} : f32[]
    %question = cast(%nought) {dtype = "i32"} : i32[]
    %is_question = eq(%branch_k, %question) : bool[1, T]
    %same_branch = eq(%branch_k, %branch_q) : bool[T, T]
    %open = or(%is_question, %same_branch) : bool[T, T]
    %here = and(%not_after, %same_pair) : bool[T, T]
    %visible = and(%here, %open) : bool[T, T]`,
);

/** `mask` within a window of 3 keys; `more` edits it. */
const near = (mask: string): string =>
  edit(
    mask,
    [') -> (f32[T, 2, 4])', ', %position: i32[T]) -> (f32[T, 2, 4])'],
    [
      '    %out = attention(%q, %k, %v, %bias)',
      `    %position_q = reshape(%position) {shape = [T, 1]} : i32[T, 1]
    %position_k = reshape(%position) {shape = [1, T]} : i32[1, T]
    %distance = sub(%position_q, %position_k) : i32[T, T]
    %three = const() {value = 3} : f32[]
    %width = cast(%three) {dtype = "i32"} : i32[]
    %near = lt(%distance, %width) : bool[T, T]
    %far = const() {value = -inf} : f32[]
    %window_bias = select(%near, %bias, %far) : f32[T, T]
    %out = attention(%q, %k, %v, %window_bias)`,
    ],
  );

describe('canonicalizeMask', () => {
  it('reads a distance of positions below a number as a window, whatever the rest of the mask is', () => {
    check(
      near(TREE),
      canonicalize,
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %subtreeEnd: i32[T], %position: i32[T]) \
        -> (f32[T, 2, 4]) {
        %out = attention(%q, %k, %v, %subtreeEnd, %position) {mask = "column", scale = 0.5, window = 3} : f32[T, 2, 4]
        return %out
      }
    `,
    );
    for (const mask of [CAUSAL, META_PAIR])
      expect(canonicalize(parse(near(mask))).nodes.at(-1)?.attributes).toEqual({
        mask: 'column',
        scale: 0.5,
        window: 3,
      });
  });

  it.each([
    ['places in the tree', ['sub(%position_q, %position_k)', 'sub(%of_query, %of_key)']],
    ['a distance that grows the other way', ['sub(%position_q, %position_k)', 'sub(%position_k, %position_q)']],
    ['a width that is computed', ['lt(%distance, %width)', 'lt(%distance, %position_k)']],
    ['no width at all', ['{value = 3}', '{value = 0}']],
    ['keys that come later', ['lt(%distance, %width)', 'le(%distance, %width)']],
    ['a bias of keys that are far', ['%far = const() {value = -inf}', '%far = const() {value = -5}']],
  ] as const)('leaves a window of %s a bias', (_what, change) => {
    checkUnchanged(edit(near(TREE), change), canonicalizeMask);
  });

  it('reads k <= q and q < e[k] as the column form that it is', () => {
    check(
      TREE,
      canonicalize,
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %subtreeEnd: i32[T]) -> (f32[T, 2, 4]) {
        %out = attention(%q, %k, %v, %subtreeEnd) {mask = "column", scale = 0.5} : f32[T, 2, 4]
        return %out
      }
    `,
    );
  });

  it('gives a causal mask ends that no query reaches', () => {
    check(
      CAUSAL,
      canonicalize,
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4]) -> (f32[T, 2, 4]) {
        %far = const() {value = 1073741824} : f32[]
        %far_i32 = cast(%far) {dtype = "i32"} : i32[]
        %index_r1 = iota() {size = [T]} : i32[T]
        %never_ends = add(%index_r1, %far_i32) : i32[T]
        %out = attention(%q, %k, %v, %never_ends) {mask = "column", scale = 0.5} : f32[T, 2, 4]
        return %out
      }
    `,
    );
  });

  it('asks for the ends of a meta-pair as an input', () => {
    check(
      META_PAIR,
      canonicalize,
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 2, 4], %v: f32[T, 2, 4], %branch: i32[T], %pair: i32[T], \
        %subtreeEnd: i32[T] is subtreeEnd) -> (f32[T, 2, 4]) {
        %out = attention(%q, %k, %v, %subtreeEnd) {mask = "column", scale = 0.5} : f32[T, 2, 4]
        return %out
      }
    `,
    );
  });

  it('accepts conjuncts and operands in any order, and ends that the graph computes', () => {
    const variants = [
      edit(TREE, ['and(%not_after, %not_ended)', 'and(%not_ended, %not_after)']),
      edit(
        META_PAIR,
        ['or(%is_question, %same_branch)', 'or(%same_branch, %is_question)'],
        ['eq(%branch_k, %question)', 'eq(%question, %branch_k)'],
        ['eq(%pair_k, %pair_q)', 'eq(%pair_q, %pair_k)'],
        ['%here = and(%not_after, %same_pair)', '%here = and(%open, %not_after)'],
        ['and(%here, %open)', 'and(%same_pair, %here)'],
      ),
      edit(TREE, [
        '    %end = reshape(%subtreeEnd)',
        '    %later = max(%subtreeEnd, %index) : i32[T]\n    %end = reshape(%later)',
      ]),
    ];
    for (const text of variants)
      expect(canonicalizeMask(parse(text)).nodes.at(-1)?.attributes).toMatchObject({ mask: 'column' });
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    ['q <= k', ['le(%of_key, %of_query)', 'le(%of_query, %of_key)']],
    ['k < q', ['le(%of_key, %of_query)', 'lt(%of_key, %of_query)']],
    ['no k <= q at all', ['and(%not_after, %not_ended)', 'and(%not_ended, %not_ended)']],
    ['q <= e[k]', ['lt(%of_query, %end)', 'le(%of_query, %end)']],
    ['e[k] < q', ['lt(%of_query, %end)', 'lt(%end, %of_query)']],
    [
      'an end for each query',
      ['{shape = [1, T]} : i32[1, T]\n    %not_ended', '{shape = [T, 1]} : i32[T, 1]\n    %not_ended'],
      ['lt(%of_query, %end)', 'lt(%of_key, %end)'],
    ],
    [
      'k < e[k]',
      ['lt(%of_query, %end)', 'lt(%of_key, %end)'],
      ['%not_ended = lt(%of_key, %end) : bool[T, T]', '%not_ended = lt(%of_key, %end) : bool[1, T]'],
    ],
    ['one or the other', ['and(%not_after, %not_ended)', 'or(%not_after, %not_ended)']],
    [
      'the opposite',
      [
        '%visible = and(%not_after, %not_ended)',
        '%both = and(%not_after, %not_ended) : bool[T, T]\n    %visible = not(%both)',
      ],
    ],
    ['a large negative number for −∞', ['value = -inf', 'value = -1e+30']],
    ['−∞ where visible', ['select(%visible, %zero, %hidden)', 'select(%visible, %hidden, %zero)']],
    ['a bias that is not 0 where visible', ['value = 0}', 'value = 1}']],
    [
      'a −∞ that casts made 1',
      [
        '%bias = select(%visible, %zero, %hidden)',
        '%flag = cast(%hidden) {dtype = "bool"} : bool[]\n    %number = cast(%flag) {dtype = ' +
          '"f32"} : f32[]\n    %bias = select(%visible, %zero, %number)',
      ],
    ],
    [
      'numbers that an input gives',
      ['%subtreeEnd: i32[T]', '%subtreeEnd: i32[T], %position: i32[T]'],
      ['%of_query = reshape(%index)', '%of_query = reshape(%position)'],
    ],
    [
      'the number of the first token for all queries',
      [
        '%of_query = reshape(%index) {shape = [T, 1]} : i32[T, 1]',
        '%first = iota() {size = [1]} : i32[1]\n    %of_query = reshape(%first) {shape = [1, 1]} : i32[1, 1]',
      ],
      ['le(%of_key, %of_query) : bool[T, T]', 'le(%of_key, %of_query) : bool[1, T]'],
      ['lt(%of_query, %end) : bool[T, T]', 'lt(%row_number, %end) : bool[T, T]'],
      ['    %not_ended', '    %row_number = reshape(%index) {shape = [T, 1]} : i32[T, 1]\n    %not_ended'],
    ],
    [
      'a window beside the tree',
      [
        '    %visible = and(%not_after, %not_ended)',
        '    %distance = sub(%of_query, %of_key) : i32[T, T]\n    %near = lt(%distance, %of_query) ' +
          ': bool[T, T]\n    %both = and(%not_after, %not_ended) : bool[T, T]\n    %visible = ' +
          'and(%both, %near)',
      ],
    ],
  ])('leaves %s a bias', (_what, ...edits) => {
    checkUnchanged(edit(TREE, ...edits), canonicalizeMask);
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    ['pairs that are not compared', ['and(%not_after, %same_pair)', 'and(%not_after, %not_after)']],
    ['answers that are not compared', ['and(%here, %open)', 'and(%here, %here)']],
    [
      'a question that must be the query',
      ['eq(%branch_k, %question) : bool[1, T]', 'eq(%branch_q, %question) : bool[T, 1]'],
    ],
    ['a question that has number 1', ['%nought = const() {value = 0}', '%nought = const() {value = 1}']],
    ['a question and the same answer', ['or(%is_question, %same_branch)', 'and(%is_question, %same_branch)']],
    [
      'pairs under another name',
      ['%pair: i32[T]', '%group: i32[T]'],
      ['%pair_k = reshape(%pair)', '%pair_k = reshape(%group)'],
      ['%pair_q = reshape(%pair)', '%pair_q = reshape(%group)'],
    ],
    ['two pairs compared by key', ['eq(%pair_k, %pair_q) : bool[T, T]', 'eq(%pair_k, %pair_k) : bool[1, T]']],
    [
      'a fourth condition',
      [
        '    %visible = and(%here, %open)',
        '    %off = lt(%pair_q, %of_key) : bool[T, T]\n    %more = and(%here, %open) : bool[T, ' +
          'T]\n    %visible = and(%more, %off)',
      ],
    ],
  ])('leaves a meta-pair with %s a bias', (_what, ...edits) => {
    checkUnchanged(edit(META_PAIR, ...edits), canonicalizeMask);
  });
});

/** Attention under one of the model's masks. The bias is a result too, so that both forms can be compared. */
function attentionUnder(kind: Exclude<MaskKind, 'path'>): Graph {
  const b = new GraphBuilder('g');
  const heads = (name: string): Value => b.param(name, 'f32', ['T', 1, 2]);
  const [q, k, v] = [heads('q'), heads('k'), heads('v')];
  const bias = buildMask(b, kind, 3);
  return b.finish([b.add('attention', { q, k, v, bias }, { scale: 1, mask: 'bias' }, 'out'), bias]);
}

/**
 * A forest in depth-first order from depths: each token is one deeper than the one before, or as far up as requested.
 */
function subtreeEnds(climbs: readonly number[]): number[] {
  const end = climbs.map(() => climbs.length);
  let path: number[] = [];
  climbs.forEach((climb, token) => {
    const depth = Math.max(0, path.length - climb);
    for (const closed of path.slice(depth)) end[closed] = token;
    path = [...path.slice(0, depth), token];
  });
  return end;
}

/**
 * The ends that a caller derives from pairs: the end of the pair for a question's token, of the branch for an answer's.
 */
const pairEnds = (pair: readonly number[], branch: readonly number[]): number[] =>
  pair.map((p, k) => {
    let end = k;
    while (end < pair.length && pair[end] === p && (branch[k] === 0 || branch[end] === branch[k])) end++;
    return end;
  });

/** What the column form of `kind` shows must be what its bias shows, for every query and key. */
function expectSameView(kind: Exclude<MaskKind, 'path'>, inputs: Readonly<Record<string, readonly number[]>>): void {
  const graph = attentionUnder(kind);
  const tokens = Object.values(inputs)[0]!.length;
  const random = randomNumbers(99);
  const env = {
    sizes: { T: tokens, R: 1 },
    weights: new Map<string, Float64Array>(),
    params: new Map([
      ...['q', 'k', 'v'].map((name) => [name, Float64Array.from({ length: 2 * tokens }, random)] as const),
      ...Object.entries(inputs).map(([name, values]) => [name, Float64Array.from(values)] as const),
    ]),
  };
  const [attended, bias] = interpretGraph(graph, env);
  const column = canonicalizeMask(graph);
  const end = column.nodes.find((n) => isOp(n, 'attention'))!.operands.subtreeEnd!;
  const [canonical, { data: ends }] = interpretGraph({ ...column, results: [column.results[0]!, end] }, env) as [
    Tensor,
    Tensor,
  ];
  for (let q = 0; q < tokens; q++) {
    for (let k = 0; k < tokens; k++) {
      expect(bias!.data[q * tokens + k], `query ${q}, key ${k}, ends ${[...ends].join()}`).toBe(
        k <= q && q < ends[k]! ? 0 : -Infinity,
      );
    }
  }
  expect(distance(attended!.data, canonical.data)).toBeLessThan(1e-12);
}

describe('the column form shows what the bias shows', () => {
  it('on random forests in depth-first order', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 14 }), (climbs) => {
        expectSameView('tree', { subtreeEnd: subtreeEnds(climbs) });
      }),
      { numRuns: 150, seed: 21 },
    );
  });

  it('on random meta-pairs: any number of answers of any length, with or without a question', () => {
    const answers = fc
      .uniqueArray(fc.integer({ min: 1, max: 5 }), { maxLength: 4 })
      .chain((names) => fc.tuple(...names.map((name) => fc.tuple(fc.constant(name), fc.integer({ min: 1, max: 3 })))));
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat({ max: 3 }), answers), { minLength: 1, maxLength: 4 }), (pairs) => {
        const tokens = pairs.flatMap(([question, parts], pair) =>
          [[0, question] as const, ...parts].flatMap(([branch, length]) =>
            new Array<[number, number]>(length).fill([pair, branch]),
          ),
        );
        fc.pre(tokens.length > 0);
        const [pair, branch] = [tokens.map(([p]) => p), tokens.map(([, b]) => b)];
        expectSameView('metaPair', { pair, branch, subtreeEnd: pairEnds(pair, branch) });
      }),
      { numRuns: 150, seed: 22 },
    );
  });

  it('on every causal length, with ends past the last query', () => {
    const graph = canonicalizeMask(parse(CAUSAL));
    const ends = graph.nodes.find((n) => isOp(n, 'attention'))!.operands.subtreeEnd!;
    for (const tokens of [1, 2, 8, 100]) {
      const env = environment(graph);
      const [values] = interpretGraph(
        { ...graph, nodes: graph.nodes.filter((n) => n.op !== 'attention'), results: [ends] },
        {
          ...env,
          sizes: { T: tokens, R: 1 },
          params: new Map([...env.params].map(([name]) => [name, new Float64Array(8 * tokens)])),
        },
      );
      expect(values!.data.length).toBe(tokens);
      expect(Math.min(...values!.data)).toBeGreaterThanOrEqual(tokens);
    }
  });

  it('but not if an answer came in two parts: the model promises contiguous runs', () => {
    const [pair, branch] = [
      [0, 0, 0, 0],
      [0, 1, 2, 1],
    ];
    expect(() => expectSameView('metaPair', { pair, branch, subtreeEnd: pairEnds(pair, branch) })).toThrow(
      'query 3, key 1',
    );
  });
});

describe('kernels under each form of mask', () => {
  it.each([
    ['a sliding window as a bias', attentionUnder('slidingWindow'), 'bias'],
    ['a tree as a bias', attentionUnder('tree'), 'bias'],
    ['a meta-pair as a bias', attentionUnder('metaPair'), 'bias'],
    ['a window after the pass', canonicalizeMask(attentionUnder('slidingWindow')), 'bias'],
    ['a tree in column form', canonicalize(parse(TREE)), 'column'],
    ['a meta-pair in column form', canonicalize(parse(META_PAIR)), 'column'],
    ['a causal mask in column form, its ends computed by a loop', canonicalize(parse(CAUSAL)), 'column'],
  ])('%s: compute what the graph computes', (_what, graph, kind) => {
    const module = lowerAsIs(graph);
    const kernel = module.kernels.find((k) => k.anchor === 'attention');
    expect(kernel?.anchor === 'attention' ? kernel.mask.kind : undefined).toBe(kind);
    const env = environment(graph);
    const wanted = interpretGraph(graph, env);
    interpretLowered(graph, module, env).forEach((data, i) =>
      expect(distance(wanted[i]!.data, data)).toBeLessThan(1e-12),
    );
  });
});
