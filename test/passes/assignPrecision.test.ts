import { describe, expect, it } from 'vitest';
import { isOp, type Graph } from '../../ir/graph/graph.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { assignPrecision } from '../../passes/assignPrecision.js';
import { recognizeExperts } from '../../passes/recognizeExperts.js';
import { EXPERTS } from './expertGraph.js';
import { check, checkUnchanged, parse, sameMeaning } from './support.js';

const bf16 = (graph: Graph): Graph => assignPrecision(graph, 'bf16');
/** Relative error of rounding once to 8 bits, with products of 4 terms between −4 and 4. */
const ROUNDING = 2 ** -8 * 16;

describe('assignPrecision', () => {
  it('rounds the left operand of every weight contraction, once, and nothing else', () => {
    check(
      `
      func @g(%x: f32[T, 4], %y: f32[T, 4]) -> (f32[T, 2], f32[T, 3], f32[T, 4]) {
        weight @a : bf16[2, 4]
        weight @b : bf16[3, 4]
        %mid = add(%x, %y) : f32[T, 4]
        %p = linear(%mid, @a) : f32[T, 2] at "layers.0.a"
        %q = linear(%mid, @b) : f32[T, 3] at "layers.0.b"
        %residual = mul(%mid, %y) : f32[T, 4]
        return %p, %q, %residual
      }
    `,
      bf16,
      `
      func @g(%x: f32[T, 4], %y: f32[T, 4]) -> (f32[T, 2], f32[T, 3], f32[T, 4]) {
        weight @a : bf16[2, 4]
        weight @b : bf16[3, 4]
        %mid = add(%x, %y) : f32[T, 4]
        %mid_bf16 = cast(%mid) {dtype = "bf16"} : bf16[T, 4] at "layers.0.a"
        %p = linear(%mid_bf16, @a) : f32[T, 2] at "layers.0.a"
        %q = linear(%mid_bf16, @b) : f32[T, 3] at "layers.0.b"
        %residual = mul(%mid, %y) : f32[T, 4]
        return %p, %q, %residual
      }
    `,
      ROUNDING,
    );
  });

  it('moves rows to experts and back in 16 bits', () => {
    const experts = recognizeExperts(parse(EXPERTS));
    const narrow = eliminateDeadCode(bf16(experts));
    const moved = narrow.nodes.filter((node) => isOp(node, 'gather_rows'));
    expect(moved.map(({ operands: { x } }) => x.type.dtype)).toEqual(['bf16', 'bf16', 'bf16']);
    expect(assignPrecision(experts, 'f32').nodes.every(({ result }) => result.type.dtype !== 'bf16')).toBe(true);
    sameMeaning(experts, narrow, ROUNDING);
  });

  it('rounds what the head reads, but not its scale, which stays f32', () => {
    check(
      `
      func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (f32[R], i32[R]) {
        weight @head : f32[6, 4]
        %lp = logprob(%x, @head, %scale, %target) : f32[R]
        %best = is_argmax(%x, @head, %scale, %target) : i32[R]
        return %lp, %best
      }
    `,
      bf16,
      `
      func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R]) -> (f32[R], i32[R]) {
        weight @head : f32[6, 4]
        %x_bf16 = cast(%x) {dtype = "bf16"} : bf16[R, 4]
        %lp = logprob(%x_bf16, @head, %scale, %target) : f32[R]
        %best = is_argmax(%x_bf16, @head, %scale, %target) : i32[R]
        return %lp, %best
      }
    `,
      ROUNDING * 4,
    );
  });

  it('rounds queries, keys and values if attention reads 16 bits', () => {
    check(
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 1, 4], %v: bf16[T, 1, 4], %ends: i32[T]) -> (f32[T, 2, 4]) {
        %out = attention(%q, %k, %v, %ends) {mask = "column", scale = 0.5} : f32[T, 2, 4]
        return %out
      }
    `,
      (graph) => assignPrecision(graph, 'bf16', 'bf16'),
      `
      func @g(%q: f32[T, 2, 4], %k: f32[T, 1, 4], %v: bf16[T, 1, 4], %ends: i32[T]) -> (f32[T, 2, 4]) {
        %q_bf16 = cast(%q) {dtype = "bf16"} : bf16[T, 2, 4]
        %k_bf16 = cast(%k) {dtype = "bf16"} : bf16[T, 1, 4]
        %out = attention(%q_bf16, %k_bf16, %v, %ends) {mask = "column", scale = 0.5} : f32[T, 2, 4]
        return %out
      }
    `,
      ROUNDING,
    );
  });

  it('rounds before a matrix that is folded when weights load', () => {
    const graph = parse(`
      func @g(%x: f32[T, 4]) -> (f32[T, 2]) {
        weight @a : f32[2, 4]
        weight @norm : f32[4]
        %folded = mul(@a, @norm) : f32[2, 4]
        %p = linear(%x, %folded) : f32[T, 2]
        return %p
      }
    `);
    expect(bf16(graph).nodes.map((n) => n.op)).toEqual(['mul', 'cast', 'linear']);
  });

  it('rounds rows that become codes only where nothing but contractions reads them, and not those of groups', () => {
    const graph = parse(`
      func @g(%x: f32[T, 64], %y: f32[T, 64]) -> (f32[T, 2], f32[T, 2], f32[T, 2], f32[T, 64]) {
        weight @a : f32[2, 64]
        %own = add(%x, %y) : f32[T, 64]
        %stream = mul(%x, %y) : f32[T, 64]
        %groups = mul(%x, %x) : f32[T, 64]
        %p = linear(%own, @a) {rounding = 64} : f32[T, 2]
        %q = linear(%stream, @a) {rounding = 64} : f32[T, 2]
        %r = linear(%groups, @a) {rounding = 32} : f32[T, 2]
        %next = add(%stream, %y) : f32[T, 64]
        return %p, %q, %r, %next
      }
    `);
    const read = (of: Graph): readonly (string | undefined)[] =>
      of.nodes.filter((node) => isOp(node, 'linear')).map(({ operands: { x } }) => x.type.dtype);
    expect(read(bf16(graph))).toEqual(['bf16', 'f32', 'f32']);
    expect(read(assignPrecision(graph, 'f32'))).toEqual(['f32', 'f32', 'f32']);
  });

  it('does nothing if the operand has the type already, the matrix is an input, or f32 is requested', () => {
    checkUnchanged(
      `
      func @g(%x: bf16[T, 4], %y: f32[T, 4], %given: f32[2, 4], %q: f32[2, T, 4], %k: f32[2, 4, T])
        -> (f32[T, 2], f32[T, 2], f32[2, T, T]) {
        weight @a : bf16[2, 4]
        %p = linear(%x, @a) : f32[T, 2]
        %r = linear(%y, %given) : f32[T, 2]
        %s = matmul(%q, %k) : f32[2, T, T]
        return %p, %r, %s
      }
    `,
      bf16,
    );
    checkUnchanged(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 2]) {
        weight @a : bf16[2, 4]
        %p = linear(%x, @a) : f32[T, 2]
        return %p
      }
    `,
      (graph) => assignPrecision(graph, 'f32'),
    );
  });
});
