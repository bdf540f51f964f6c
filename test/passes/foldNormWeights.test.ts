import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { GraphBuilder, isOp, type Graph } from '../../ir/graph/graph.js';
import { FORMATS } from '../../ir/storage.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { foldNormWeights as foldFor } from '../../passes/foldNormWeights.js';
import { program } from './randomProgram.js';
import { check, checkUnchanged, edit, parse, sameMeaning } from './support.js';

const foldNormWeights = (graph: Graph): Graph => foldFor(graph, 'f32');

/** The normed value, which is no longer read, is left to eliminateDeadCode. */
const fold = (graph: Graph): Graph => {
  const result = foldNormWeights(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

const NORM = `
  func @g(%x: f32[T, 4]) -> (f32[T, 2]) {
    weight @norm : bf16[4]
    weight @matrix : bf16[2, 4]
    %square = mul(%x, %x) : f32[T, 4]
    %mean = mean(%square) : f32[T, 1]
    %eps = const() {value = 0.01} : f32[]
    %safe = add(%mean, %eps) : f32[T, 1]
    %scale = rsqrt(%safe) : f32[T, 1]
    %unit = mul(%x, %scale) : f32[T, 4]
    %weight = cast(@norm) {dtype = "f32"} : f32[4]
    %normed = mul(%unit, %weight) : f32[T, 4]
    %y = linear(%normed, @matrix) : f32[T, 2] at "layers.0.ffn.gate"
    return %y
  }
`;

describe('foldNormWeights', () => {
  it('moves the norm weight into the matrix and 1/rms behind the contraction', () => {
    check(
      NORM,
      fold,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 2]) {
        weight @norm : bf16[4]
        weight @matrix : bf16[2, 4]
        %square = mul(%x, %x) : f32[T, 4]
        %mean = mean(%square) : f32[T, 1]
        %eps = const() {value = 0.01} : f32[]
        %safe = add(%mean, %eps) : f32[T, 1]
        %scale = rsqrt(%safe) : f32[T, 1]
        %weight = cast(@norm) {dtype = "f32"} : f32[4]
        %y_matrix = cast(@matrix) {dtype = "f32"} : f32[2, 4] at "layers.0.ffn.gate"
        %y_folded = mul(%y_matrix, %weight) : f32[2, 4] at "layers.0.ffn.gate"
        %y_unscaled = linear(%x, %y_folded) : f32[T, 2] at "layers.0.ffn.gate"
        %y = mul(%y_unscaled, %scale) : f32[T, 2] at "layers.0.ffn.gate"
        return %y
      }
    `,
    );
  });

  /** The norm weight stays with the operand. */
  const WEIGHTED = `
    func @g(%x: f32[T, 4]) -> (f32[T, 2]) {
      weight @norm : bf16[4]
      weight @matrix : bf16[2, 4]
      %square = mul(%x, %x) : f32[T, 4]
      %mean = mean(%square) : f32[T, 1]
      %eps = const() {value = 0.01} : f32[]
      %safe = add(%mean, %eps) : f32[T, 1]
      %scale = rsqrt(%safe) : f32[T, 1]
      %weight = cast(@norm) {dtype = "f32"} : f32[4]
      %x_weighted = mul(%x, %weight) : f32[T, 4] at "layers.0.ffn.gate"
      %y_unscaled = linear(%x_weighted, @matrix) : f32[T, 2] at "layers.0.ffn.gate"
      %y = mul(%y_unscaled, %scale) : f32[T, 2] at "layers.0.ffn.gate"
      return %y
    }
  `;

  it('multiplies the operand if the storage format of a matrix takes no column scale', () => {
    const takes = vi.spyOn(FORMATS.bf16, 'takesColumnScale', 'get').mockReturnValue(false);
    check(NORM, fold, WEIGHTED);
    expect(takes).toHaveBeenCalled();
    takes.mockRestore();
  });

  it.each(['bf16', 'f16', 'f32'])('multiplies the operand of a matrix that stays as it is stored: %s', (dtype) => {
    const stored = (text: string): string => text.replace('@matrix : bf16', `@matrix : ${dtype}`);
    check(stored(NORM), (graph) => eliminateDeadCode(foldFor(graph, 'stored')), stored(WEIGHTED));
  });

  it('folds one norm into every matrix that reads it', () => {
    check(
      `
      func @g(%x: f32[T, 4], %scale: f32[T, 1]) -> (f32[T, 2], f32[T, 3]) {
        weight @norm : f32[4]
        weight @gate : f32[2, 4]
        weight @up : f32[3, 4]
        %unit = mul(%scale, %x) : f32[T, 4]
        %normed = mul(@norm, %unit) : f32[T, 4]
        %y = linear(%normed, @gate) : f32[T, 2]
        %z = linear(%normed, @up) : f32[T, 3]
        return %y, %z
      }
    `,
      fold,
      `
      func @g(%x: f32[T, 4], %scale: f32[T, 1]) -> (f32[T, 2], f32[T, 3]) {
        weight @norm : f32[4]
        weight @gate : f32[2, 4]
        weight @up : f32[3, 4]
        %y_folded = mul(@gate, @norm) : f32[2, 4]
        %y_unscaled = linear(%x, %y_folded) : f32[T, 2]
        %y = mul(%y_unscaled, %scale) : f32[T, 2]
        %z_folded = mul(@up, @norm) : f32[3, 4]
        %z_unscaled = linear(%x, %z_folded) : f32[T, 3]
        %z = mul(%z_unscaled, %scale) : f32[T, 3]
        return %y, %z
      }
    `,
    );
  });

  it.each<[string, ...(readonly [string, string])[]]>([
    [
      'the normed value is also returned',
      ['(f32[T, 2]) {', '(f32[T, 2], f32[T, 4]) {'],
      ['return %y', 'return %y, %normed'],
    ],
    [
      'something that is no contraction reads it too',
      ['(f32[T, 2]) {', '(f32[T, 2], f32[T, 4]) {'],
      ['    return %y', '    %also = cos(%normed) : f32[T, 4]\n    return %y, %also'],
    ],
    [
      'something lies between norm and contraction',
      ['    %y = linear(%normed,', '    %bent = cos(%normed) : f32[T, 4]\n    %y = linear(%bent,'],
    ],
    ['the scale differs between columns', ['%unit = mul(%x, %scale)', '%unit = mul(%x, %square)']],
    [
      'the weight is an input',
      ['%x: f32[T, 4]', '%x: f32[T, 4], %given: f32[4]'],
      ['mul(%unit, %weight)', 'mul(%unit, %given)'],
    ],
    [
      'the weight is a matrix, one row a token',
      ['@norm : bf16[4]', '@norm : bf16[1, 4]'],
      ['%weight = cast(@norm) {dtype = "f32"} : f32[4]', '%weight = cast(@norm) {dtype = "f32"} : f32[1, 4]'],
    ],
    [
      'the matrix is an input',
      ['%x: f32[T, 4]', '%x: f32[T, 4], %given: f32[2, 4]'],
      ['linear(%normed, @matrix)', 'linear(%normed, %given)'],
    ],
    ['the weight is added', ['mul(%unit, %weight)', 'add(%unit, %weight)']],
    ['there is no scale', ['%unit = mul(%x, %scale)', '%unit = add(%x, %scale)']],
  ])('does nothing if %s', (_what, ...edits) => {
    checkUnchanged(edit(NORM, ...edits), foldNormWeights);
  });

  it('does nothing to a norm in 16 bits, because the folded matrix is f32', () => {
    checkUnchanged(
      `
      func @g(%x: bf16[T, 4], %scale: bf16[T, 1]) -> (f32[T, 2]) {
        weight @norm : bf16[4]
        weight @matrix : bf16[2, 4]
        %unit = mul(%x, %scale) : bf16[T, 4]
        %normed = mul(%unit, @norm) : bf16[T, 4]
        %y = linear(%normed, @matrix) : f32[T, 2]
        return %y
      }
    `,
      foldNormWeights,
    );
  });

  it('keeps the meaning for every number of columns and readers', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 9 }),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        (columns, readers, swapped) => {
          const b = new GraphBuilder('g');
          const [x, scale, weight] = [
            b.param('x', 'f32', ['T', columns]),
            b.param('scale', 'f32', ['T', 1]),
            b.weight('norm', 'f32', [columns]),
          ];
          const unit = b.add('mul', swapped ? { a: scale, b: x } : { a: x, b: scale });
          const normed = b.add('mul', swapped ? { a: weight, b: unit } : { a: unit, b: weight });
          const graph = b.finish(
            Array.from({ length: readers }, (_, i) =>
              b.add('linear', { x: normed, w: b.weight(`w${i}`, 'bf16', [i + 1, columns]) }),
            ),
          );
          const result = fold(graph);
          verifyGraph(result);
          sameMeaning(graph, result);
          expect(result.nodes.filter((n) => isOp(n, 'linear')).every((n) => n.operands.x === x)).toBe(true);
        },
      ),
      { numRuns: 50, seed: 31 },
    );
  });

  it('keeps the meaning of random graphs', () => {
    fc.assert(
      fc.property(program, (graph) => sameMeaning(graph, fold(graph))),
      { numRuns: 300, seed: 32 },
    );
  });

  it('keeps the path and the name of the contraction', () => {
    const result = fold(parse(NORM));
    expect(result.nodes.find((n) => n.op === 'linear')?.path).toBe('layers.0.ffn.gate');
    expect(result.results[0]?.name).toBe('y');
  });
});
