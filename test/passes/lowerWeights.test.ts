import { describe, expect, it } from 'vitest';
import { definitions } from '../../ir/graph/graph.js';
import { matchWeight, pairingWidth, type WeightMatch } from '../../passes/lowerWeights.js';
import { parse } from './support.js';

/** What the packer is told about the right operand of the last contraction. */
function matched(lines: string): WeightMatch {
  const graph = parse(`
    func @g(%x: f32[T, 4]) -> (f32[T, 3]) {
      weight @layers.0.w : bf16[3, 4]
      weight @full : f32[3, 4]
      weight @norm : bf16[4]
      weight @row : f32[1, 4]
      %wide = cast(@layers.0.w) {dtype = "f32"} : f32[3, 4]
      %scale = cast(@norm) {dtype = "f32"} : f32[4]
      ${lines}
      return %y
    }`);
  return matchWeight(definitions(graph), graph.nodes.at(-1)!.inputs[1]!);
}

describe('matchWeight', () => {
  it('reads a tensor of the checkpoint, widened or not, alone or with its columns scaled', () => {
    expect(matched('%y = linear(%x, @layers.0.w) : f32[T, 3]')).toEqual({
      tensor: 'layers.0.w',
      rows: 3,
      format: 'bf16',
    });
    expect(matched('%y = linear(%x, %wide) : f32[T, 3]')).toEqual({ tensor: 'layers.0.w', rows: 3, format: 'bf16' });
    expect(matched('%m = mul(%wide, %scale) : f32[3, 4]\n%y = linear(%x, %m) : f32[T, 3]')).toEqual({
      tensor: 'layers.0.w',
      rows: 3,
      columnScale: 'norm',
      format: 'f32',
    });
    expect(matched('%m = mul(@full, %scale) : f32[3, 4]\n%y = linear(%x, %m) : f32[T, 3]')).toEqual({
      tensor: 'full',
      rows: 3,
      columnScale: 'norm',
      format: 'f32',
    });
  });

  it.each([
    ['a rounded matrix', '%m = cast(@full) {dtype = "bf16"} : bf16[3, 4]'],
    ['a sum', '%m = add(%wide, @full) : f32[3, 4]'],
    ['a product of matrices', '%m = mul(%wide, @full) : f32[3, 4]'],
    ['a scale that is a matrix of one row', '%m = mul(@full, @row) : f32[3, 4]'],
    ['a scale scaled again', '%n = mul(%scale, %scale) : f32[4]\n%m = mul(@full, %n) : f32[3, 4]'],
    ['another shape of a tensor', '%m = reshape(%wide) {shape = [3, 4]} : f32[3, 4]'],
  ])('refuses %s by name', (_what, lines) => {
    expect(() => matched(`${lines}\n%y = linear(%x, %m) : f32[T, 3]`)).toThrow(
      '%m: the weight packer does not support this load-time expression',
    );
  });
});

describe('pairingWidth', () => {
  it('is at most what the target wants', () => {
    expect([64, 24, 12, 5, Infinity].map((half) => pairingWidth(half, 8))).toEqual([8, 8, 4, 1, 8]);
  });

  it('is the widest power of two, up to a vector of 16 lanes, that divides half a head', () => {
    expect(
      [64, 48, 40, 32, 24, 16, 12, 8, 6, 5, 4, 3, 2, 1, Infinity].map((half) => [half, pairingWidth(half)]),
    ).toEqual([
      [64, 16],
      [48, 16],
      [40, 8],
      [32, 16],
      [24, 8],
      [16, 16],
      [12, 4],
      [8, 8],
      [6, 2],
      [5, 1],
      [4, 4],
      [3, 1],
      [2, 2],
      [1, 1],
      [Infinity, 16],
    ]);
  });
});
