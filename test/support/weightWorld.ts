/** Weights of every kind that a GPU reads, with tensors in files or generated, and the bits that they must have. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ConstantVector, WeightDecl } from '../../ir/kernel.js';
import type { FormatName } from '../../ir/storage.js';
import { encodedRow, type EncodedSource, type TensorSource } from '../../runtime/tensorSource.js';
import {
  floatBits,
  packReference,
  randomValue,
  roundTo,
  toBf16,
  toF16,
  type Matrix,
} from '../runtime/packReference.js';
import { ENCODINGS, sampleSource } from './encodedSamples.js';

/** Columns of most weights: not a multiple of 8. */
export const K = 52;

export interface WeightWorld {
  readonly tensors: ReadonlyMap<string, TensorSource>;
  readonly weights: readonly WeightDecl[];
  /** Weights of parts of tensors and of tensors in parts, with rows in another order, with an offset of factors. */
  readonly ordered: readonly WeightDecl[];
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
  /** A part of a tensor: blocks of `rows` rows, `stride` apart, from row `first` on. */
  function part(name: string, of: string, first: number, rows: number, stride: number, count: number): void {
    const whole = tensors.get(of)!;
    const matrix = matrices.get(of)!;
    if (whole.kind !== 'file') throw new Error(`${of} is in no file`);
    const [all, ...rest] = whole.shape as readonly [number, ...number[]];
    const rowBytes = whole.byteLength / all;
    matrices.set(name, (row, column) => matrix(first + Math.floor(row / rows) * stride + (row % rows), column));
    tensors.set(name, {
      ...whole,
      shape: [rows * count, ...rest],
      offset: whole.offset + first * rowBytes,
      byteLength: rows * count * rowBytes,
      blocks: { rows, stride },
    });
  }
  tensor('q', 'bf16', [96, K]);
  tensor('k', 'f16', [32, K]);
  tensor('gate', 'f32', [61, K]);
  tensor('up', 'bf16', [61, K]);
  tensor('down', 'bf16', [K, 61]);
  tensor('table', 'f16', [70, K]);
  tensor('noise', 'bf16', [70, K], 'random');
  tensor('ordered_noise', 'bf16', [64, K], 'random');
  tensor('fused', 'bf16', [72, K]);
  part('fused_q', 'fused', 0, 8, 24, 3);
  part('fused_v', 'fused', 16, 8, 24, 3);
  tensor('bias', 'bf16', [72, 1]);
  part('fused_bias', 'bias', 8, 8, 24, 3);

  /** A tensor made of others side by side, below each other, or of the elements of one turned over. */
  function assembled(name: string, tiles: readonly (readonly [of: string, row: number, column: number])[]): void {
    const isTransposed = tiles.length === 1;
    const placed = tiles.map(([of, row, column]) => {
      const whole = tensors.get(of)!;
      if (whole.kind !== 'file') throw new Error(`${of} is in no file`);
      const [lines, length] = whole.shape as readonly [number, number];
      const [rows, columns] = isTransposed ? [length, lines] : [lines, length];
      return { file: whole.file, offset: whole.offset, row, rows, column, columns, isTransposed, stride: length };
    });
    const shape = [
      Math.max(...placed.map(({ row, rows }) => row + rows)),
      Math.max(...placed.map(({ column, columns }) => column + columns)),
    ];
    matrices.set(name, (row, column) => {
      const at = placed.findIndex(
        (tile) =>
          row >= tile.row && row < tile.row + tile.rows && column >= tile.column && column < tile.column + tile.columns,
      );
      const [of, firstRow, firstColumn] = tiles[at]!;
      const [i, j] = [row - firstRow, column - firstColumn];
      return isTransposed ? matrices.get(of)!(j, i) : matrices.get(of)!(i, j);
    });
    const { format } = tensors.get(tiles[0]![0])!;
    tensors.set(name, { kind: 'assembled', format, shape, tiles: placed });
  }
  tensor('left', 'bf16', [64, 20]);
  tensor('right', 'bf16', [64, K - 20]);
  assembled('columns', [
    ['left', 0, 0],
    ['right', 0, 20],
  ]);
  tensor('upper', 'f16', [24, K]);
  tensor('lower', 'f16', [8, K]);
  assembled('rows', [
    ['upper', 0, 0],
    ['lower', 24, 0],
  ]);
  tensor('turned', 'f32', [K, 61]);
  assembled('turned_over', [['turned', 0, 0]]);

  /** An encoded matrix of 96 rows, or the 24 rows of a part of it. */
  function encoded(name: string, encoding: string, view?: EncodedSource['view']): void {
    const { source, values } = sampleSource(folder, name, ENCODINGS[encoding]!, 96, K, Number(seed++));
    const all = values();
    matrices.set(name, (row, column) => all[encodedRow(view === undefined ? {} : { view }, row) * K + column]!);
    tensors.set(name, view === undefined ? source : { ...source, shape: [24, K], view });
  }
  encoded('packed', 'packed');
  encoded('permuted', 'gptqGroups', { first: 8, rows: 8, stride: 24 });
  encoded('small_floats', 'fp8Blocks', { first: 3, rows: 24, stride: 24 });

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
  const ordered: readonly WeightDecl[] = [
    decl('w_part_turned', [['q', 96]], {
      pairing: { kind: 'rotate', headDim: 32, width: 8 },
      sources: [{ tensor: 'q', rows: 96, order: { headDim: 32, rotated: 12, interleaved: false } }],
    }),
    decl('w_neighbours', [], {
      pairing: { kind: 'rotate', headDim: 8, width: 4 },
      sources: [{ tensor: 'fused_q', rows: 24, order: { headDim: 8, rotated: 8, interleaved: true } }],
      columnScale: 'norm1',
      columnOffset: 1,
    }),
    decl('w_ordered_noise', [], {
      sources: [{ tensor: 'ordered_noise', rows: 64, order: { headDim: 32, rotated: 16, interleaved: true } }],
    }),
    decl('w_fused_v', [['fused_v', 24]], { columnScale: 'norm1' }),
    decl('w_bias', [], {
      layout: 'rows',
      k: 1,
      sources: [{ tensor: 'fused_bias', rows: 24, order: { headDim: 8, rotated: 4, interleaved: false } }],
    }),
  ];
  const assembledWeights: readonly WeightDecl[] = [
    decl('w_columns', [], {
      pairing: { kind: 'rotate', headDim: 32, width: 8 },
      sources: [{ tensor: 'columns', rows: 64, order: { headDim: 32, rotated: 32, interleaved: true } }],
      columnScale: 'norm1',
    }),
    decl('w_column_table', [['columns', 64]], { layout: 'rows' }),
    decl('w_rows', [['rows', 32]]),
    decl('w_packed', [['packed', 96]], { pairing: { kind: 'rotate', headDim: 32, width: 8 }, columnScale: 'norm1' }),
    decl(
      'w_encoded_parts',
      [
        ['permuted', 24],
        ['small_floats', 24],
      ],
      { pairing: { kind: 'interleave', width: 8 } },
    ),
    decl('w_encoded_table', [['packed', 96]], { layout: 'rows', format: 'f32' }),
    decl(
      'w_turned',
      [
        ['turned_over', 61],
        ['gate', 61],
      ],
      { pairing: { kind: 'interleave', width: 8 }, columnScale: 'norm2' },
    ),
  ];
  const constants: readonly ConstantVector[] = [{ name: 'frequency', values: [1, 0.5, 0.25, 0.125, 3] }];

  return {
    tensors,
    weights,
    ordered: [...ordered, ...assembledWeights],
    constants,
    expected: (weight) => {
      const scale = weight.columnScale === undefined ? undefined : matrices.get(weight.columnScale);
      const sources = weight.sources.map(
        ({ tensor: name }): Matrix => matrices.get(name) ?? ((row) => constants[0]!.values[row]!),
      );
      const added = weight.columnOffset ?? 0;
      return packReference(weight, sources, scale && ((column) => Math.fround(scale(0, column) + added)));
    },
  };
}
