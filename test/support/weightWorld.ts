/** Weights of every kind that a GPU reads, with tensors in files or generated, and the bits that they must have. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ConstantVector, WeightDecl } from '../../ir/kernel.js';
import type { FormatName } from '../../ir/storage.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import {
  floatBits,
  packReference,
  randomValue,
  roundTo,
  toBf16,
  toF16,
  type Matrix,
} from '../runtime/packReference.js';

/** Columns of most weights: not a multiple of 8. */
export const K = 52;

export interface WeightWorld {
  readonly tensors: ReadonlyMap<string, TensorSource>;
  readonly weights: readonly WeightDecl[];
  readonly constants: readonly ConstantVector[];
  /** Stored bits of a weight, one entry for each element. */
  expected(weight: WeightDecl): number[];
}

export const decl = (
  name: string,
  sources: readonly [string, number][],
  change: Partial<WeightDecl> = {},
): WeightDecl => ({
  name,
  layout: 'kmajor',
  format: 'bf16',
  k: K,
  pairing: { kind: 'none' },
  sources: sources.map(([tensor, rows]) => ({ tensor, rows })),
  ...change,
});

/** The bits of a weight as they were read back. */
export const elements = (weight: WeightDecl, bytes: ArrayBuffer): number[] => [
  ...(weight.format === 'f32' ? new Uint32Array(bytes) : new Uint16Array(bytes)),
];

export function weightWorld(folder: string): WeightWorld {
  const tensors = new Map<string, TensorSource>();
  const matrices = new Map<string, Matrix>();
  let seed = 1n;

  /** A tensor in a separate file, at an odd offset, or a generated one. */
  function tensor(name: string, format: FormatName, shape: readonly number[], kind: 'file' | 'random' = 'file'): void {
    const own = seed++;
    const k = shape.at(-1)!;
    const value = (i: number): number => roundTo(format, randomValue(own, i, 0.5));
    matrices.set(name, (row, column) => value(row * k + column));
    if (kind === 'random') {
      tensors.set(name, { kind, format, shape, seed: own, scale: 0.5 });
      return;
    }
    const file = join(folder, `${name}.bin`);
    const bits = Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) =>
      (format === 'f32' ? floatBits : format === 'bf16' ? toBf16 : toF16)(value(i)),
    );
    const bytes = Buffer.from((format === 'f32' ? Uint32Array : Uint16Array).from(bits).buffer);
    writeFileSync(file, Buffer.concat([Buffer.alloc(7), bytes]));
    tensors.set(name, { kind, format, shape, file, offset: 7, byteLength: bytes.length });
  }
  tensor('norm1', 'bf16', [K]);
  tensor('norm2', 'f32', [K]);
  tensor('q', 'bf16', [96, K]);
  tensor('k', 'f16', [32, K]);
  tensor('gate', 'f32', [61, K]);
  tensor('up', 'bf16', [61, K]);
  tensor('down', 'bf16', [K, 61]);
  tensor('table', 'f16', [70, K]);
  tensor('noise', 'bf16', [70, K], 'random');

  const weights: readonly WeightDecl[] = [
    decl('w_q', [['q', 96]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl('w_k', [['k', 32]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl(
      'w_gu',
      [
        ['gate', 61],
        ['up', 61],
      ],
      { pairing: { kind: 'interleave', width: 8 }, columnScale: 'norm2' },
    ),
    decl('w_down', [['down', K]], { k: 61 }),
    decl('w_table', [['table', 70]], { layout: 'rows', format: 'f16' }),
    decl('w_noise', [['noise', 70]], { format: 'f16', columnScale: 'norm2' }),
    decl(
      'w_stacked',
      [
        ['q', 96],
        ['noise', 70],
        ['table', 70],
      ],
      { format: 'f16' },
    ),
    decl('w_twin', [['q', 96]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl('w_frequency', [['frequency', 5]], { layout: 'rows', format: 'f32', k: 1 }),
  ];
  const constants: readonly ConstantVector[] = [{ name: 'frequency', values: [1, 0.5, 0.25, 0.125, 3] }];

  return {
    tensors,
    weights,
    constants,
    expected: (weight) => {
      const scale = weight.columnScale === undefined ? undefined : matrices.get(weight.columnScale);
      const sources = weight.sources.map(
        ({ tensor: name }): Matrix => matrices.get(name) ?? ((row) => constants[0]!.values[row]!),
      );
      return packReference(weight, sources, scale && ((column) => scale(0, column)));
    },
  };
}
