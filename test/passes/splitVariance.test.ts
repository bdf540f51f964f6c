import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifyGraph } from '../../ir/graph/verify.js';
import { splitVariance } from '../../passes/splitVariance.js';
import { program } from './randomProgram.js';
import { check, checkUnchanged, parse, sameMeaning } from './support.js';

const VARIANCE = `
  func @g(%x: f32[T, 4]) -> (f32[T, 1]) {
    %mean = mean(%x) : f32[T, 1]
    %centred = sub(%x, %mean) : f32[T, 4]
    %square = mul(%centred, %centred) : f32[T, 4]
    %variance = mean(%square) : f32[T, 1]
    %root = rsqrt(%variance) : f32[T, 1]
    return %root
  }
`;

describe('splitVariance', () => {
  it('computes a variance from the sums of x and of x²', () => {
    check(
      VARIANCE,
      splitVariance,
      `
      func @g(%x: f32[T, 4]) -> (f32[T, 1]) {
        %mean = mean(%x) : f32[T, 1]
        %centred = sub(%x, %mean) : f32[T, 4]
        %square = mul(%centred, %centred) : f32[T, 4]
        %x_square = mul(%x, %x) : f32[T, 4]
        %variance_of_squares = mean(%x_square) : f32[T, 1]
        %mean_square = mul(%mean, %mean) : f32[T, 1]
        %variance_difference = sub(%variance_of_squares, %mean_square) : f32[T, 1]
        %zero = const() {value = 0} : f32[]
        %variance = max(%variance_difference, %zero) : f32[T, 1]
        %root = rsqrt(%variance) : f32[T, 1]
        return %root
      }
    `,
    );
    sameMeaning(parse(VARIANCE), splitVariance(parse(VARIANCE)));
  });

  it.each([
    ['the mean of something else', VARIANCE.replace('sub(%x, %mean)', 'sub(%mean, %x)')],
    ['a sum in place of a mean', VARIANCE.replace('= mean(%x)', '= sum(%x)')],
    ['a product of two values', VARIANCE.replace('mul(%centred, %centred)', 'mul(%centred, %x)')],
  ])('leaves %s', (_, text) => {
    checkUnchanged(text, splitVariance);
  });

  it('keeps the meaning of random graphs', () => {
    fc.assert(
      fc.property(program, (graph) => {
        const result = splitVariance(graph);
        verifyGraph(result);
        sameMeaning(graph, result);
      }),
      { numRuns: 100, seed: 45 },
    );
    expect(splitVariance(parse(VARIANCE))).not.toEqual(parse(VARIANCE));
  });
});
