import { describe, expect, it } from 'vitest';
import { packAdapter, requireFits } from '../../../driver/adapters/pack.js';
import { slotsOf } from '../../../driver/adapters/slotsOf.js';
import { UserError } from '../../../errors.js';
import type { Pairing, WeightDecl } from '../../../ir/kernel.js';
import { logicalWeight, type RawTensor } from '../../../ir/logicalWeight.js';
import { packedDepth, panelColumns, physicalToLogical } from '../../../ir/packing.js';
import { FORMATS, type FormatName } from '../../../ir/storage.js';
import type { Adapter, LowRank } from '../../../models/adapters/adapter.js';
import { Dice } from '../../support/families.js';

const RANK = 16;
const K = 40;

interface Made {
  readonly product: LowRank;
  readonly a: Float32Array;
  readonly b: Float32Array;
}

function made(tensor: string, rank: number, outputs: number, dice: Dice, inputs = K): Made {
  const values = (count: number): Float32Array => Float32Array.from({ length: count }, () => 4 * dice.next() - 2);
  const [a, b] = [values(rank * inputs), values(outputs * rank)];
  return { product: { tensor, rank, inputs, outputs, scale: 0.3, read: () => ({ a, b }) }, a, b };
}

const adapterOf = (all: readonly Made[], rank = Math.max(0, ...all.map(({ product }) => product.rank))): Adapter => ({
  path: '/adapters/one',
  hash: '0'.repeat(64),
  products: new Map(all.map(({ product }) => [product.tensor, product])),
  rank,
  replaced: [],
  sizeBytes: 0,
  warnings: [],
});

/** The weights of a kernel whose matrices are `sources`, as passes declare them. */
function kernelWeights(
  sources: WeightDecl['sources'],
  pairing: Pairing,
  stored: Pick<WeightDecl, 'layout' | 'format'>,
  folded: Pick<WeightDecl, 'columnScale' | 'columnOffset'> = {},
): readonly WeightDecl[] {
  const none = { kind: 'none' } as const;
  const slots = (holds: 'a' | 'b' | 'scale') => ({ slots: { count: 3, holds } });
  const each = (rows: number) => sources.map(({ tensor }) => ({ tensor, rows }));
  return [
    { name: 'a', ...stored, sources: each(RANK), ...slots('a'), k: K, pairing: none, ...folded },
    { name: 's', layout: 'rows', format: 'f32', sources: each(1), ...slots('scale'), k: 1, pairing: none },
    { name: 'b', ...stored, sources, ...slots('b'), k: RANK, pairing },
  ];
}

/** [rows, columns] of the left upper part `values` [own rows, own columns], zeros elsewhere. */
function padded(values: Float32Array, own: number, rows: number, columns: number): RawTensor {
  const data = new Float64Array(rows * columns);
  values.forEach((value, i) => (data[Math.floor(i / own) * columns + (i % own)] = value));
  return { rows, columns, data };
}

/** What a weight stands for, before any rounding, by the semantics of every weight. */
function wanted(weight: WeightDecl, all: readonly Made[], norm: Float32Array): Float64Array {
  const { slots, sources, k } = weight;
  const tensors = new Map<string, RawTensor>([['norm', { rows: 1, columns: K, data: Float64Array.from(norm) }]]);
  for (const { tensor, rows } of sources) {
    const found = all.find(({ product }) => product.tensor === tensor);
    const zeros = { rows, columns: k, data: new Float64Array(rows * k) };
    if (found === undefined) tensors.set(tensor, zeros);
    else if (slots?.holds === 'a') tensors.set(tensor, padded(found.a, K, rows, k));
    else if (slots?.holds === 'b') tensors.set(tensor, padded(found.b, found.product.rank, rows, k));
    else tensors.set(tensor, { rows, columns: 1, data: Float64Array.of(found.product.scale) });
  }
  return logicalWeight(weight, tensors, false);
}

/** Compares every element of a slot, padding included, with its value rounded in f32 and then to the format. */
function compare(weight: WeightDecl, bytes: Uint8Array, logical: Float64Array): void {
  const format = FORMATS[weight.format as FormatName];
  const stored = format.decode(bytes);
  const map = physicalToLogical(weight);
  const [depth, lanes] = [packedDepth(weight), weight.layout === 'panels' ? panelColumns(weight) : 1];
  const { k } = weight;
  const expected = new Float64Array(stored.length);
  map.forEach((row, column) => {
    if (row < 0) return;
    for (let i = 0; i < k; i++)
      expected[(Math.floor(column / lanes) * depth + i) * lanes + (column % lanes)] = Math.fround(
        logical[row * k + i]!,
      );
  });
  expect(stored).toEqual(format.decode(format.encode(expected)));
}

const STORED = [
  { layout: 'panels', format: 'f32' },
  { layout: 'panels', format: 'bf16' },
  { layout: 'kmajor', format: 'bf16' },
  { layout: 'kmajor', format: 'f16' },
] as const;

const SHAPES = {
  'matrices one behind another': {
    sources: [
      { tensor: 'q', rows: 24 },
      { tensor: 'v', rows: 40 },
    ],
    pairing: { kind: 'none' },
  },
  'two that alternate': {
    sources: [
      { tensor: 'gate', rows: 40 },
      { tensor: 'up', rows: 40 },
    ],
    pairing: { kind: 'interleave', width: 16 },
  },
  'heads that rotate': {
    sources: [{ tensor: 'q', rows: 64, order: { headDim: 32, rotated: 16, interleaved: true } }],
    pairing: { kind: 'rotate', headDim: 32, width: 8 },
  },
} as const satisfies Record<string, { readonly sources: WeightDecl['sources']; readonly pairing: Pairing }>;

const pack = (adapter: Adapter, weights: readonly WeightDecl[], norm: Float32Array) => [
  ...packAdapter(adapter, { weights }, () => norm),
];

describe('an adapter in slots', () => {
  for (const [name, { sources, pairing }] of Object.entries(SHAPES))
    it.each(STORED)(`holds factors of ${name} in $layout of $format`, (stored) => {
      const dice = new Dice(7);
      const norm = Float32Array.from({ length: K }, () => dice.next() - 0.5);
      const all = sources.map(({ tensor, rows }, i) => made(tensor, 5 + i, rows, dice));
      const weights = kernelWeights(sources, pairing, stored, { columnScale: 'norm', columnOffset: 1 });
      const packed = pack(adapterOf(all), weights, norm);
      expect(packed.map(({ weight }) => weight)).toEqual(['a', 's', 'b']);
      packed.forEach(({ bytes }, i) => {
        // The offset is added in f32, as packers of matrices add it.
        const { columnOffset, ...weight } = weights[i]!;
        const factors = columnOffset === undefined ? norm : norm.map((value) => value + columnOffset);
        compare(weights[i]!, bytes, wanted(weight, all, factors));
      });
    });

  it('holds zeros for matrices that the adapter leaves alone', () => {
    const { sources, pairing } = SHAPES['matrices one behind another'];
    const weights = kernelWeights(sources, pairing, STORED[2]);
    const all = [made('v', 16, 40, new Dice(1))];
    const norm = new Float32Array(K);
    pack(adapterOf(all), weights, norm).forEach(({ bytes }, i) =>
      compare(weights[i]!, bytes, wanted(weights[i]!, all, norm)),
    );
    for (const { bytes } of pack(adapterOf([]), weights, norm)) expect(bytes.every((byte) => byte === 0)).toBe(true);
  });

  it.each(['bf16', 'f16'] as const)('rounds to the nearest %s, ties to even', (format) => {
    const edges = [1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -11, 1 + 3 * 2 ** -11, 2 ** -14, 2 ** -24, 2 ** -25];
    const more = [3 * 2 ** -25, 65504, 65519, 65520, 65536, 3.4e38, 0, 1e-30, 2 ** -14 - 2 ** -25, 1 / 3];
    const values = Float32Array.from([...edges, ...more].flatMap((value) => [value, -value]));
    const weights = kernelWeights([{ tensor: 'q', rows: 1 }], { kind: 'none' }, { layout: 'kmajor', format });
    const a = new Float32Array(K);
    a.set(values);
    const product: LowRank = {
      ...{ tensor: 'q', rank: 1, inputs: K, outputs: 1, scale: 1 },
      read: () => ({ a, b: new Float32Array(1) }),
    };
    const [first] = pack({ ...adapterOf([]), rank: 1, products: new Map([['q', product]]) }, weights, a);
    const stored = FORMATS[format].decode(first!.bytes).subarray(0, values.length);
    expect(stored).toEqual(FORMATS[format].decode(FORMATS[format].encode(Float64Array.from(values))));
  });

  it('reads each product once', () => {
    const dice = new Dice(3);
    const { sources, pairing } = SHAPES['two that alternate'];
    let reads = 0;
    const all = sources.map(({ tensor, rows }) => {
      const own = made(tensor, 4, rows, dice);
      const read = (): ReturnType<LowRank['read']> => {
        reads++;
        return own;
      };
      return { ...own, product: { ...own.product, read } };
    });
    pack(adapterOf(all), kernelWeights(sources, pairing, STORED[0]), new Float32Array(K));
    expect(reads).toBe(2);
  });
});

describe('an adapter that does not fit', () => {
  const { sources, pairing } = SHAPES['matrices one behind another'];
  const weights = kernelWeights(sources, pairing, STORED[0]);
  const dice = new Dice(2);
  const refusal = (adapter: Adapter, plan: readonly WeightDecl[] = weights): UserError => {
    try {
      requireFits(adapter, { weights: plan });
    } catch (error) {
      if (error instanceof UserError) return error;
      throw error;
    }
    throw new Error('it was accepted');
  };

  it('is refused with what to do', () => {
    expect(slotsOf({ weights })).toEqual({ slots: 3, rank: RANK });
    requireFits(adapterOf([made('q', 16, 24, dice)]), { weights });
    expect(refusal(adapterOf([made('q', 17, 24, dice)]))).toMatchObject({
      message: expect.stringContaining('rank is 17, and slots of the compiled model have rank 16'),
      hint: expect.stringContaining('--adapter-rank 17'),
    });
    expect(refusal(adapterOf([made('lm_head.weight', 4, 24, dice)]))).toMatchObject({
      message: expect.stringContaining('"lm_head.weight", for which the compiled model has no slot'),
      hint: expect.stringContaining('merge-adapter'),
    });
    expect(refusal(adapterOf([made('q', 4, 32, dice)])).message).toContain('as [32, 40], and the model has [24, 40]');
    expect(refusal(adapterOf([made('q', 4, 24, dice, 8)])).message).toContain('as [24, 8], and the model has [24, 40]');
    expect(refusal(adapterOf([made('q', 4, 24, dice)]), [])).toMatchObject({
      message: expect.stringContaining('without slots'),
      hint: expect.stringContaining('--adapter-slots'),
    });
    // One that changes nothing fits every model.
    requireFits(adapterOf([]), { weights: [] });
  });
});
