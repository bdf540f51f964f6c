import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifyGraph } from '../../ir/graph/verify.js';
import { eliminateCommonSubexpressions } from '../../passes/eliminateCommonSubexpressions.js';
import { program } from './randomProgram.js';
import { check, checkUnchanged, sameMeaning } from './support.js';

describe('eliminateCommonSubexpressions', () => {
  it('merges equal nodes, however deep, and keeps the first name and path', () => {
    check(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4], f32[T, 1]) {
        %one = const() {value = 1} : f32[]
        %a = add(%x, %one) : f32[T, 4] at "layers.0"
        %uno = const() {value = 1} : f32[]
        %b = add(%x, %uno) : f32[T, 4] at "layers.1"
        %product = mul(%a, %b) : f32[T, 4]
        %total = sum(%b) : f32[T, 1]
        return %product, %total
      }
    `,
      eliminateCommonSubexpressions,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4], f32[T, 1]) {
        %one = const() {value = 1} : f32[]
        %a = add(%x, %one) : f32[T, 4] at "layers.0"
        %product = mul(%a, %a) : f32[T, 4]
        %total = sum(%a) : f32[T, 1]
        return %product, %total
      }
    `,
    );
  });

  it('merges equal results', () => {
    check(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4], f32[T, 4]) {
        %a = neg(%x) : f32[T, 4]
        %b = neg(%x) : f32[T, 4]
        return %a, %b
      }
    `,
      eliminateCommonSubexpressions,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4], f32[T, 4]) {
        %a = neg(%x) : f32[T, 4]
        return %a, %a
      }
    `,
    );
  });

  it('distinguishes attributes, to the last bit', () => {
    checkUnchanged(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 2, 2], f32[T, 4, 1], f32[], f32[], f32[], f32[], f32[2], f32[2]) {
        %a = reshape(%x) {shape = [T, 2, 2]} : f32[T, 2, 2]
        %b = reshape(%x) {shape = [T, 4, 1]} : f32[T, 4, 1]
        %zero = const() {value = 0} : f32[]
        %minus_zero = const() {value = -0} : f32[]
        %most = const() {value = inf} : f32[]
        %least = const() {value = -inf} : f32[]
        %u = vector() {label = "u", values = [1, inf]} : f32[2]
        %v = vector() {label = "u", values = [1, -inf]} : f32[2]
        return %a, %b, %zero, %minus_zero, %most, %least, %u, %v
      }
    `,
      eliminateCommonSubexpressions,
    );
  });

  it('distinguishes the order of operands, ops and dtypes', () => {
    checkUnchanged(
      `
      func @g(%x: f32[T, 4], %y: f32[T, 4]) -> (f32[T, 4], f32[T, 4], f32[T, 4], bf16[T, 4], f16[T, 4]) {
        %a = sub(%x, %y) : f32[T, 4]
        %b = sub(%y, %x) : f32[T, 4]
        %c = add(%x, %y) : f32[T, 4]
        %d = cast(%x) {dtype = "bf16"} : bf16[T, 4]
        %e = cast(%x) {dtype = "f16"} : f16[T, 4]
        return %a, %b, %c, %d, %e
      }
    `,
      eliminateCommonSubexpressions,
    );
  });

  it('keeps the meaning of random graphs and leaves no two equal nodes', () => {
    let smaller = 0;
    fc.assert(
      fc.property(program, (graph) => {
        const result = eliminateCommonSubexpressions(graph);
        verifyGraph(result);
        sameMeaning(graph, result, 0);
        if (result.nodes.length < graph.nodes.length) smaller++;
        const keys = result.nodes.map(
          (n) => `${n.op} ${n.inputs.map((v) => `${v.kind} ${v.name}`).join()} ${JSON.stringify(n.attributes)}`,
        );
        expect(new Set(keys).size).toBe(keys.length);
        expect(eliminateCommonSubexpressions(result)).toBe(result);
      }),
      { numRuns: 300, seed: 1 },
    );
    expect(smaller).toBeGreaterThan(20);
  });
});
