import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { makeNode, type Graph } from '../../ir/graph/graph.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { pruneDeadRows } from '../../passes/pruneDeadRows.js';
import { program } from './randomProgram.js';
import { check, checkUnchanged, parse, sameMeaning } from './support.js';

/** What is computed but no longer read is left to eliminateDeadCode. */
const prune = (graph: Graph): Graph => {
  const result = pruneDeadRows(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

describe('pruneDeadRows', () => {
  it('moves a gather in front of what it gathers from, down to the inputs', () => {
    check(
      `
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 3]) {
        weight @w : f32[3, 4]
        %square = mul(%x, %x) : f32[T, 4] at "norm"
        %mean = mean(%square) : f32[T, 1] at "norm"
        %scaled = mul(%x, %mean) : f32[T, 4] at "norm"
        %logits = linear(%scaled, @w) : f32[T, 3] at "head"
        %scored = gather_rows(%logits, %row) : f32[R, 3]
        return %scored
      }
    `,
      prune,
      `
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 3]) {
        weight @w : f32[3, 4]
        %x_scored = gather_rows(%x, %row) : f32[R, 4]
        %square_scored = mul(%x_scored, %x_scored) : f32[R, 4] at "norm"
        %mean_scored = mean(%square_scored) : f32[R, 1] at "norm"
        %scaled_scored = mul(%x_scored, %mean_scored) : f32[R, 4] at "norm"
        %logits_scored = linear(%scaled_scored, @w) : f32[R, 3] at "head"
        return %logits_scored
      }
    `,
    );
  });

  it('keeps all keys and values of an attention, and computes only its scored queries', () => {
    check(
      `
      func @g(%h: f32[T, 8], %subtreeEnd: i32[T], %row: i32[R]) -> (f32[R, 3]) {
        weight @wq : f32[8, 8]
        weight @wo : f32[3, 8]
        %q = linear(%h, @wq) : f32[T, 8]
        %heads = reshape(%q) {shape = [T, 2, 4]} : f32[T, 2, 4]
        %mixed = attention(%heads, %heads, %heads, %subtreeEnd)
          {mask = "column", scale = 0.5} : f32[T, 2, 4] at "layers.0.attention"
        %flat = reshape(%mixed) {shape = [T, 8]} : f32[T, 8]
        %residual = add(%flat, %h) : f32[T, 8]
        %o = linear(%residual, @wo) : f32[T, 3]
        %scored = gather_rows(%o, %row) : f32[R, 3]
        return %scored
      }
    `,
      prune,
      `
      func @g(%h: f32[T, 8], %subtreeEnd: i32[T], %row: i32[R]) -> (f32[R, 3]) {
        weight @wq : f32[8, 8]
        weight @wo : f32[3, 8]
        %q = linear(%h, @wq) : f32[T, 8]
        %heads = reshape(%q) {shape = [T, 2, 4]} : f32[T, 2, 4]
        %mixed_scored = attention(%heads, %heads, %heads, %subtreeEnd, %row) \
          {mask = "column", scale = 0.5} : f32[R, 2, 4] at "layers.0.attention"
        %flat_scored = reshape(%mixed_scored) {shape = [R, 8]} : f32[R, 8]
        %h_scored = gather_rows(%h, %row) : f32[R, 8]
        %residual_scored = add(%flat_scored, %h_scored) : f32[R, 8]
        %o_scored = linear(%residual_scored, @wo) : f32[R, 3]
        return %o_scored
      }
    `,
    );
  });

  it('stops at a value that a later attention needs in full', () => {
    check(
      `
      func @g(%h: f32[T, 2, 4], %subtreeEnd: i32[T], %row: i32[R]) -> (f32[R, 2, 4]) {
        %first = attention(%h, %h, %h, %subtreeEnd) {mask = "column", scale = 0.5} : f32[T, 2, 4] at "layers.0"
        %mid = add(%first, %h) : f32[T, 2, 4]
        %second = attention(%mid, %mid, %mid, %subtreeEnd) {mask = "column", scale = 0.5} : f32[T, 2, 4] at "layers.1"
        %sum = add(%second, %mid) : f32[T, 2, 4]
        %scored = gather_rows(%sum, %row) : f32[R, 2, 4]
        return %scored
      }
    `,
      prune,
      `
      func @g(%h: f32[T, 2, 4], %subtreeEnd: i32[T], %row: i32[R]) -> (f32[R, 2, 4]) {
        %first = attention(%h, %h, %h, %subtreeEnd) {mask = "column", scale = 0.5} : f32[T, 2, 4] at "layers.0"
        %mid = add(%first, %h) : f32[T, 2, 4]
        %second_scored = attention(%mid, %mid, %mid, %subtreeEnd, %row) \
          {mask = "column", scale = 0.5} : f32[R, 2, 4] at "layers.1"
        %mid_scored = gather_rows(%mid, %row) : f32[R, 2, 4]
        %sum_scored = add(%second_scored, %mid_scored) : f32[R, 2, 4]
        return %sum_scored
      }
    `,
    );
  });

  it('shares what two gathers by the same list need, and keeps lists apart', () => {
    check(
      `
      func @g(%x: f32[T, 4], %row: i32[R], %other: i32[R]) -> (f32[R, 4], f32[R, 4], f32[R, 4]) {
        %e = exp(%x) : f32[T, 4]
        %n = neg(%e) : f32[T, 4]
        %a = gather_rows(%e, %row) : f32[R, 4]
        %b = gather_rows(%n, %row) : f32[R, 4]
        %c = gather_rows(%n, %other) : f32[R, 4]
        return %a, %b, %c
      }
    `,
      prune,
      `
      func @g(%x: f32[T, 4], %row: i32[R], %other: i32[R]) -> (f32[R, 4], f32[R, 4], f32[R, 4]) {
        %x_scored = gather_rows(%x, %row) : f32[R, 4]
        %e_scored = exp(%x_scored) : f32[R, 4]
        %n_scored = neg(%e_scored) : f32[R, 4]
        %x_scored_r1 = gather_rows(%x, %other) : f32[R, 4]
        %e_scored_r1 = exp(%x_scored_r1) : f32[R, 4]
        %n_scored_r1 = neg(%e_scored_r1) : f32[R, 4]
        return %e_scored, %n_scored, %n_scored_r1
      }
    `,
    );
  });

  it('does not gather operands that broadcast over rows', () => {
    check(
      `
      func @g(%a: f32[T, 1], %b: f32[1, T], %c: f32[4], %row: i32[R]) -> (f32[R, T], f32[R, 4]) {
        %square = mul(%a, %b) : f32[T, T]
        %wide = mul(%a, %c) : f32[T, 4]
        %x = gather_rows(%square, %row) : f32[R, T]
        %y = gather_rows(%wide, %row) : f32[R, 4]
        return %x, %y
      }
    `,
      prune,
      `
      func @g(%a: f32[T, 1], %b: f32[1, T], %c: f32[4], %row: i32[R]) -> (f32[R, T], f32[R, 4]) {
        %a_scored = gather_rows(%a, %row) : f32[R, 1]
        %square_scored = mul(%a_scored, %b) : f32[R, T]
        %wide_scored = mul(%a_scored, %c) : f32[R, 4]
        return %square_scored, %wide_scored
      }
    `,
    );
  });

  it.each([
    [
      'a value that is returned in full',
      `
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 4], f32[T, 4]) {
        %y = neg(%x) : f32[T, 4]
        %scored = gather_rows(%y, %row) : f32[R, 4]
        return %scored, %y
      }`,
    ],
    [
      'the keys of an attention',
      `
      func @g(%x: f32[T, 2, 4], %end: i32[T], %row: i32[R]) -> (f32[R, 2, 4], f32[T, 2, 4]) {
        %k = neg(%x) : f32[T, 2, 4]
        %out = attention(%x, %k, %x, %end) {mask = "column", scale = 1} : f32[T, 2, 4]
        %scored = gather_rows(%k, %row) : f32[R, 2, 4]
        return %scored, %out
      }`,
    ],
    [
      'an input',
      `
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 4]) {
        %scored = gather_rows(%x, %row) : f32[R, 4]
        return %scored
      }`,
    ],
    [
      'an embedding table: its rows are no tokens',
      `
      func @g(%tokens: i32[T]) -> (f32[T, 4]) {
        weight @table : f32[9, 4]
        %e = gather_rows(@table, %tokens) : f32[T, 4]
        return %e
      }`,
    ],
    [
      'rows that another op made of columns',
      `
      func @g(%x: f32[2, T], %q: f32[T, 2, 4], %k: f32[T, 4, 2], %row: i32[R]) -> (f32[R, 2], f32[R, 2, 2]) {
        %turned = transpose(%x) {order = [1, 0]} : f32[T, 2]
        %product = matmul(%q, %k) : f32[T, 2, 2]
        %a = gather_rows(%turned, %row) : f32[R, 2]
        %b = gather_rows(%product, %row) : f32[R, 2, 2]
        return %a, %b
      }`,
    ],
    [
      'row numbers',
      `
      func @g[R, T](%row: i32[R]) -> (i32[R]) {
        %index = iota() {size = [T]} : i32[T]
        %same = gather_rows(%index, %row) : i32[R]
        return %same
      }`,
    ],
    [
      'rows by numbers that the graph computes',
      `
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 4]) {
        %y = neg(%x) : f32[T, 4]
        %next = add(%row, %row) : i32[R]
        %scored = gather_rows(%y, %next) : f32[R, 4]
        return %scored
      }`,
    ],
    [
      'rows by a list that is no list of scored rows',
      `
      func @g(%x: f32[T, 4], %order: i32[T]) -> (f32[T, 4]) {
        %y = neg(%x) : f32[T, 4]
        %sorted = gather_rows(%y, %order) : f32[T, 4]
        return %sorted
      }`,
    ],
    [
      'a row vector that broadcasts along columns',
      `
      func @g(%x: f32[T], %square: f32[T, T], %row: i32[R]) -> (f32[R, T]) {
        %y = mul(%x, %square) : f32[T, T]
        %scored = gather_rows(%y, %row) : f32[R, T]
        return %scored
      }`,
    ],
    [
      'a product with a matrix that has a row a token',
      `
      func @g(%x: f32[T, 4], %y: f32[T, 4], %row: i32[R]) -> (f32[R, T]) {
        %dots = linear(%x, %y) : f32[T, T]
        %scored = gather_rows(%dots, %row) : f32[R, T]
        return %scored
      }`,
    ],
  ])('leaves a gather of %s alone', (_what, text) => {
    checkUnchanged(text, pruneDeadRows);
  });

  it('computes for all tokens only what it must', () => {
    const graph = parse(`
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 2]) {
        weight @a : f32[8, 4]
        weight @b : f32[4, 8]
        weight @c : f32[2, 4]
        %up = linear(%x, @a) : f32[T, 8]
        %turned = rotate_half(%up) : f32[T, 8]
        %down = linear(%turned, @b) : f32[T, 4]
        %residual = add(%down, %x) : f32[T, 4]
        %narrow = cast(%residual) {dtype = "bf16"} : bf16[T, 4]
        %logits = linear(%narrow, @c) : f32[T, 2]
        %scored = gather_rows(%logits, %row) : f32[R, 2]
        return %scored
      }
    `);
    const result = prune(graph);
    expect(result.nodes.filter((n) => n.result.type.shape.includes('T'))).toEqual([]);
    sameMeaning(graph, result);
  });

  it('keeps the meaning of random graphs whose results are gathered', () => {
    /** `graph` with `gather_rows(result, row)` for every result of T rows. */
    const gathered = (graph: Graph): Graph => {
      const row = graph.params.find((p) => p.name === 'row')!;
      const nodes = graph.results
        .filter((r) => r.type.shape[0] === 'T')
        .map((r, i) => makeNode('gather_rows', [r, row], {}, `answer${i}`, ''));
      return {
        ...graph,
        nodes: [...graph.nodes, ...nodes],
        results: [...graph.results.filter((r) => r.type.shape[0] !== 'T'), ...nodes.map((n) => n.result)],
      };
    };
    let changed = 0;
    fc.assert(
      fc.property(program, (random) => {
        const graph = gathered(random);
        const result = prune(graph);
        verifyGraph(result);
        sameMeaning(graph, result);
        if (result !== graph) changed++;
      }),
      { numRuns: 500, seed: 41 },
    );
    expect(changed).toBeGreaterThan(200);
  });
});
