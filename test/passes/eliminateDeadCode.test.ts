import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifyGraph } from '../../ir/graph/verify.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { program } from './randomProgram.js';
import { check, checkUnchanged, sameMeaning } from './support.js';

describe('eliminateDeadCode', () => {
  it('removes what no result needs, including weights; parameters belong to the signature and stay', () => {
    check(
      `
      func @g(%x: f32[T, 4], %unused: i32[R]) -> (f32[T, 2]) {
        weight @used : f32[2, 4]
        weight @unused : f32[2, 4]
        %y = linear(%x, @used) : f32[T, 2]
        %z = linear(%x, @unused) : f32[T, 2]
        %both = add(%y, %z) : f32[T, 2]
        return %y
      }
    `,
      eliminateDeadCode,
      `
      func @g(%x: f32[T, 4], %unused: i32[R]) -> (f32[T, 2]) {
        weight @used : f32[2, 4]
        %y = linear(%x, @used) : f32[T, 2]
        return %y
      }
    `,
    );
  });

  it('removes a weight that was declared and never read', () => {
    check(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        weight @forgotten : f32[2, 4]
        %y = neg(%x) : f32[T, 4]
        return %y
      }
    `,
      eliminateDeadCode,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %y = neg(%x) : f32[T, 4]
        return %y
      }
    `,
    );
  });

  it('keeps results that are parameters or weights, and everything on the way to a result', () => {
    checkUnchanged(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4], f32[2, 4], f32[T, 1]) {
        weight @w : f32[2, 4]
        %y = neg(%x) : f32[T, 4]
        %z = mul(%y, %y) : f32[T, 4]
        %s = sum(%z) : f32[T, 1]
        return %x, @w, %s
      }
    `,
      eliminateDeadCode,
    );
  });

  it('keeps the meaning of random graphs, and every node that is left is read or returned', () => {
    let smaller = 0;
    fc.assert(
      fc.property(program, (graph) => {
        const result = eliminateDeadCode(graph);
        verifyGraph(result);
        sameMeaning(graph, result, 0);
        if (result.nodes.length < graph.nodes.length) smaller++;
        const read = new Set([...result.results, ...result.nodes.flatMap((n) => n.inputs)]);
        expect([...result.nodes.map((n) => n.result), ...result.weights].filter((v) => !read.has(v))).toEqual([]);
        expect(eliminateDeadCode(result)).toBe(result);
      }),
      { numRuns: 300, seed: 2 },
    );
    expect(smaller).toBeGreaterThan(100);
  });
});
