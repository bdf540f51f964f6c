/**
 * Slopes of heads, exact and in bf16, and chunks of positions, over trees and paths: kernels of both targets beside
 * float64, and the same bits whatever the tile.
 */
import { describe, expect, it } from 'vitest';
import type { CudaAttentionSchedule } from '../../ir/cuda.js';
import type { AttentionKernel, BufferDecl, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuAttentionSchedule } from '../../ir/plan.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { casesHere } from '../support/thorough.js';
import { emulateModule } from './cuda/emulate.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';
import { randomTrees } from './modules.js';

const [T, C, HEADS, KV_HEADS, D] = [70, 600, 6, 2, 16];
/** Where a path of a token begins in the list of keys, and how long it is: positions that bf16 rounds. */
const LAST = Array.from({ length: T }, (_, token) => 180 + ((token * 37) % 140));

const column = (name: string, dtype: BufferDecl['dtype'], columns: number, rows: BufferDecl['rows'] = 'T') =>
  ({ name, dtype, rows, columns, space: 'input' }) as const;

interface Case {
  readonly title: string;
  readonly mask: 'column' | 'path';
  readonly own: Pick<AttentionKernel, 'slopes' | 'slopeFactor'>;
  readonly chunk?: number;
}
const SLOPES = { slopes: 'slopes' };
const ROUNDED = { ...SLOPES, slopeFactor: 0.25 };
const CASES: readonly Case[] = [
  { title: 'paths with slopes in bf16', mask: 'path', own: ROUNDED },
  { title: 'paths in chunks', mask: 'path', own: {}, chunk: 48 },
  { title: 'trees with slopes, in chunks', mask: 'column', own: SLOPES, chunk: 6 },
  { title: 'paths with slopes', mask: 'path', own: SLOPES },
  { title: 'trees with slopes in bf16', mask: 'column', own: ROUNDED },
];

/** A kernel `o<i>` for each of `count` tiles. */
function moduleOf({ mask, own, chunk }: Case, count: number): KernelModule {
  const tiles = Array.from({ length: count }, (_, i) => i);
  const reach = chunk === undefined ? {} : { chunk };
  const keys = mask === 'path' ? 'C' : 'T';
  return {
    interface: {
      ...interfaceOf([]),
      extents: [
        { name: 'T', counts: 'tokens' },
        { name: 'C', counts: 'keys' },
      ],
    },
    weights: [],
    buffers: [
      column('q', 'f32', HEADS * D),
      column('k', 'f32', KV_HEADS * D, keys),
      column('v', 'f32', KV_HEADS * D, keys),
      column('position', 'i32', 1),
      ...(own.slopes === undefined ? [] : [column('slopes', 'f32', 1, HEADS)]),
      ...(mask === 'path'
        ? [column('begin', 'i32', 1), column('key', 'i32', 1, 'C')]
        : [column('subtree_end', 'i32', 1)]),
      ...tiles.map((i) => ({ ...column(`o${i}`, 'f32', HEADS * D), space: 'arena' }) as const),
    ],
    kernels: tiles.map((i) => ({
      ...({ name: `a${i}`, path: `test.a${i}`, anchor: 'attention', rows: 'T', ops: [] } as const),
      ...{ q: 'q', k: 'k', v: 'v', out: `o${i}`, heads: HEADS, kvHeads: KV_HEADS, headDim: D, scale: 0.3 },
      ...own,
      mask:
        mask === 'path'
          ? { kind: 'path', begin: 'begin', position: 'position', key: 'key', ...reach }
          : { kind: 'column', subtreeEnd: 'subtree_end', position: 'position', ...reach },
    })),
  };
}

function inputsOf({ mask, own }: Case): ReadonlyMap<string, Float64Array> {
  const random = randomSource(9);
  const rows = mask === 'path' ? C : T;
  const shared = {
    q: randomArray(random, T * HEADS * D, 2),
    k: randomArray(random, rows * KV_HEADS * D, 2),
    v: randomArray(random, rows * KV_HEADS * D, 2),
    ...(own.slopes === undefined
      ? {}
      : { slopes: Float64Array.of(0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.70703125) }),
  };
  const { position, subtreeEnd } = randomTrees(T, 11) as Readonly<Record<string, Float64Array>>;
  return new Map(
    Object.entries<Float64Array>(
      mask === 'path'
        ? {
            ...shared,
            position: Float64Array.from(LAST),
            begin: Float64Array.from(LAST, (_, token) => (token % 5) * 50),
            // Keys of a path lie anywhere.
            key: Float64Array.from({ length: C }, (_, i) => (i * 7) % C),
          }
        : { ...shared, position: position!, subtree_end: subtreeEnd! },
    ),
  );
}

const sizes = { T, C };

/** Greatest distance from float64. */
function distance(module: KernelModule, inputs: ReadonlyMap<string, Float64Array>, got: Float64Array): number {
  const want = interpretModule(module, { sizes, buffers: inputs }).get('o0')!;
  return got.reduce((most, x, i) => Math.max(most, Number.isNaN(x) ? Infinity : Math.abs(x - want[i]!)), 0);
}

const TILES = [
  [32, 64],
  [16, 8],
  [48, 256],
] as const;

describe.each(casesHere(CASES, 0, 2))('$title', (own) => {
  const inputs = inputsOf(own);

  it.each(
    casesHere(
      RUNNABLE.filter((isa) => isa !== 'amx'),
      0,
    ),
  )('in C, %s', (isa) => {
    const module = moduleOf(own, TILES.length);
    verifyKernels(module);
    const schedules = TILES.map(([queries, keys]): CpuAttentionSchedule => ({ kind: 'attention', isa, queries, keys }));
    const { values } = runGenerated(module, {
      ...{ sizes, inputs, schedules, workers: 2 },
      tokensCapacity: 640,
      isQuick: true,
    });
    expect(distance(module, inputs, values.get('o0')!)).toBeLessThan(4e-5);
    for (const i of TILES.keys()) expectSame(values.get(`o${i}`), values.get('o0'), `o${i}`);
  });

  it('in CUDA', () => {
    const module = moduleOf(own, 1);
    const schedules: CudaAttentionSchedule[] = [{ kind: 'attention', skeleton: 'simt', queries: 16, keys: 32 }];
    const { values } = emulateModule(module, { sizes, inputs, tensors: new Map(), schedules, tokensCapacity: 640 });
    expect(distance(module, inputs, values.get('o0')!)).toBeLessThan(4e-5);
  });
});
