import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifyGraph } from '../../ir/graph/verify.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { foldConstants } from '../../passes/foldConstants.js';
import type { Graph } from '../../ir/graph/graph.js';
import { program } from './randomProgram.js';
import { check, checkUnchanged, sameMeaning } from './support.js';

/** Literals that are no longer read are left to eliminateDeadCode. */
const fold = (graph: Graph): Graph => eliminateDeadCode(foldConstants(graph));

describe('foldConstants', () => {
  it('computes arithmetic on literals, step by step', () => {
    check(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %d = const() {value = 64} : f32[]
        %root = rsqrt(%d) : f32[]
        %two = const() {value = 2} : f32[]
        %scale = mul(%root, %two) : f32[]
        %y = mul(%x, %scale) : f32[T, 4]
        return %y
      }
    `,
      fold,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %scale = const() {value = 0.25} : f32[]
        %y = mul(%x, %scale) : f32[T, 4]
        return %y
      }
    `,
    );
  });

  it('drops x·1 and x+0, and casts and reshapes that change nothing', () => {
    check(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %one = const() {value = 1} : f32[]
        %zero = const() {value = 0} : f32[]
        %a = mul(%x, %one) : f32[T, 4]
        %b = add(%a, %zero) : f32[T, 4]
        %c = cast(%b) {dtype = "f32"} : f32[T, 4]
        %d = reshape(%c) {shape = [T, 4]} : f32[T, 4]
        %e = neg(%d) : f32[T, 4]
        return %e
      }
    `,
      fold,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %e = neg(%x) : f32[T, 4]
        return %e
      }
    `,
    );
  });

  it('merges a reshape of a reshape, and removes both if the shape returns to the first', () => {
    check(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4, 1], f32[T, 4]) {
        %heads = reshape(%x) {shape = [T, 2, 2]} : f32[T, 2, 2]
        %other = reshape(%heads) {shape = [T, 4, 1]} : f32[T, 4, 1]
        %back = reshape(%heads) {shape = [T, 4]} : f32[T, 4]
        %y = neg(%back) : f32[T, 4]
        return %other, %y
      }
    `,
      fold,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4, 1], f32[T, 4]) {
        %other = reshape(%x) {shape = [T, 4, 1]} : f32[T, 4, 1]
        %y = neg(%x) : f32[T, 4]
        return %other, %y
      }
    `,
    );
  });

  it('cancels a transpose with its inverse', () => {
    check(
      `
      func @g(%x: f32[T, 2, 3]) -> (f32[T, 2, 3]) {
        %a = transpose(%x) {order = [2, 0, 1]} : f32[3, T, 2]
        %b = transpose(%a) {order = [1, 2, 0]} : f32[T, 2, 3]
        %y = neg(%b) : f32[T, 2, 3]
        return %y
      }
    `,
      fold,
      `
      func @g(%x: f32[T, 2, 3]) -> (f32[T, 2, 3]) {
        %y = neg(%x) : f32[T, 2, 3]
        return %y
      }
    `,
    );
  });

  it('leaves near misses alone', () => {
    // Nearly 1; 0 − x; a cast that rounds; transposes that are not inverse; a literal of another element type.
    checkUnchanged(
      `
      func @g(%x: f32[T, 4], %y: f32[T, 2, 3], %n: i32[T, 4])
        -> (f32[T, 4], f32[T, 4], f32[T, 4], f32[3, T, 2], i32[T, 4]) {
        %one = const() {value = 1} : f32[]
        %zero = const() {value = 0} : f32[]
        %next = const() {value = 1.0000000000000002} : f32[]
        %a = mul(%x, %next) : f32[T, 4]
        %c = sub(%zero, %x) : f32[T, 4]
        %narrow = cast(%x) {dtype = "bf16"} : bf16[T, 4]
        %d = cast(%narrow) {dtype = "f32"} : f32[T, 4]
        %e = transpose(%y) {order = [1, 2, 0]} : f32[2, 3, T]
        %f = transpose(%e) {order = [1, 2, 0]} : f32[3, T, 2]
        %whole = cast(%one) {dtype = "i32"} : i32[]
        %h = mul(%n, %whole) : i32[T, 4]
        return %a, %c, %d, %f, %h
      }
    `,
      foldConstants,
    );
  });

  it('does not fold what has no value, because the text form has no NaN', () => {
    checkUnchanged(
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %minus = const() {value = -1} : f32[]
        %nan = sqrt(%minus) : f32[]
        %y = add(%x, %nan) : f32[T, 4]
        return %y
      }
    `,
      foldConstants,
    );
  });

  it('keeps the meaning of random graphs', () => {
    let changed = 0;
    fc.assert(
      fc.property(program, (graph) => {
        const result = foldConstants(graph);
        verifyGraph(result);
        sameMeaning(graph, result, 0);
        if (result !== graph) changed++;
      }),
      { numRuns: 300, seed: 3 },
    );
    expect(changed).toBeGreaterThan(30);
  });
});
