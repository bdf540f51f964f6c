import { describe, expect, it } from 'vitest';
import { lower, optimize } from '../../passes/runPasses.js';
import { unrecognized } from '../../passes/unrecognized.js';
import { llama } from './llamaGraph.js';
import { F32, lowerAsIs, TENSOR_CORES } from './lowered.js';
import { parse } from './support.js';

describe('unrecognized', () => {
  it.each([F32, TENSOR_CORES])('reports nothing for LLaMA', (numerics) => {
    expect(unrecognized(lower(optimize(llama(), numerics), numerics))).toEqual([]);
  });

  it('names attention whose mask stays a bias', () => {
    expect(unrecognized(lower(optimize(llama({}, 'slidingWindow'), F32), F32))).toEqual([
      'layers.0.attention.mix: the mask is kept as a bias, because it could not be proved to have column form',
      'layers.1.attention.mix: the mask is kept as a bias, because it could not be proved to have column form',
    ]);
  });

  it('names ops after a product that no epilogue took, but not what prepares its input', () => {
    const module = lowerAsIs(
      parse(`
        func @g(%x: f32[T, 4]) -> (f32[T, 3]) {
          weight @w : f32[3, 4]
          %bent = cos(%x) : f32[T, 4] at "prepare"
          %y = linear(%bent, @w) : f32[T, 3] at "head"
          %squares = mul(%y, %y) : f32[T, 3] at "norm"
          %mean = mean(%squares) : f32[T, 1] at "norm"
          %unit = div(%y, %mean) : f32[T, 3] at "norm"
          return %unit
        }
      `),
    );
    expect(unrecognized(module)).toEqual(['norm: not fused: a separate loop computes div']);
  });
});
