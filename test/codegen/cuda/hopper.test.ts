/**
 * Hopper contractions run over fibres, with boxes, barriers and warpgroup products, compared with the float64
 * interpreter.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import { type Kernel, type KernelModule, LOGPROB_BLOCK } from '../../../ir/kernel.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { emulateModule } from './emulate.js';
import { cudaLayer } from './modules.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const SHAPE = { hidden: 144, heads: 3, kvHeads: 3, headDim: 48, inter: 200, vocab: 600, width: 8 } as const;
const SIZES = { T: 150, R: 140 };

const wgmma = (mode: CudaGemmSchedule['mode'], tm: number, tn: number, stages: number, tk = 64): CudaGemmSchedule => ({
  kind: 'gemm',
  skeleton: 'wgmma',
  tm,
  tn,
  tk,
  stages,
  cluster: 1,
  raster: 2,
  mode,
});

/** `layer` for its contractions, `head` for the vocabulary, the defaults of an older GPU for the rest. */
const choose =
  (layer: CudaSchedule, head: CudaSchedule) =>
  (kernel: Kernel, module: KernelModule): CudaSchedule => {
    const schedule =
      kernel.anchor === 'gemm'
        ? layer
        : kernel.anchor === 'logprob'
          ? head
          : defaultCudaSchedule(
              kernel,
              module,
              FACTS,
              scoringBucket({ tokens: SIZES.T, rows: SIZES.R, longest: SIZES.T }),
            );
    expect({ kernel: kernel.name, legal: isLegalCuda(kernel, module, schedule, FACTS) }).toEqual({
      kernel: kernel.name,
      legal: true,
    });
    return schedule;
  };

type Values = ReadonlyMap<string, Float64Array>;

/** The interpreter's results for a layer, computed once for all schedules. */
const wanted = new Map<string, Values>();

function run(
  layer: CudaSchedule,
  head: CudaSchedule,
  dtype: 'bf16' | 'f16',
  options: { readonly backwards?: boolean; readonly multiprocessors?: number; readonly vocab?: number } = {},
): { readonly got: Values; readonly want: () => Values } {
  const { module, tensors, inputs } = cudaLayer({ ...SHAPE, vocab: options.vocab ?? SHAPE.vocab }, SIZES, 21, dtype);
  const schedules = module.kernels.map((kernel) => choose(layer, head)(kernel, module));
  const got = emulateModule(module, { sizes: SIZES, inputs, tensors, schedules, ...options }).values;
  const want = (): Values => {
    const layer = `${dtype} ${options.vocab ?? SHAPE.vocab}`;
    const values =
      wanted.get(layer) ?? interpretModule(module, { sizes: SIZES, buffers: inputs, tensors, round: true });
    wanted.set(layer, values);
    return values;
  };
  return { got, want };
}

/** Largest difference, relative to the largest value of the buffer. */
function error(got: Float64Array, want: Float64Array): number {
  let [most, scale] = [0, 1e-30];
  want.forEach((x, i) => {
    if (x === got[i]) return;
    const d = Math.abs(got[i]! - x);
    most = Number.isNaN(d) ? Infinity : Math.max(most, d);
    if (Number.isFinite(x)) scale = Math.max(scale, Math.abs(x));
  });
  return most / scale;
}

/** Parts of the log-sum-exp without the column of the maximum, which near ties decide. */
const withoutColumns = (...parts: readonly [Float64Array, Float64Array]): [Float64Array, Float64Array] => {
  const [got, want] = parts.map((values) => values.filter((_, i) => i % 4 !== 2));
  return [got!, want!];
};

describe('a layer by warpgroup products', () => {
  const CASES = [
    ['ping-pong, narrow', wgmma('pingpong', 64, 96, 3), wgmma('pingpong', 64, LOGPROB_BLOCK, 3), 'bf16', {}],
    [
      'cooperative',
      wgmma('cooperative', 128, 192, 2),
      wgmma('cooperative', 128, LOGPROB_BLOCK, 2),
      'f16',
      { vocab: 512, backwards: true },
    ],
    [
      'ping-pong, tall, two slabs a stage',
      wgmma('pingpong', 128, 96, 2, 128),
      wgmma('cooperative', 128, LOGPROB_BLOCK, 3),
      'bf16',
      { multiprocessors: 1 },
    ],
    [
      'deferred',
      wgmma('deferred', 128, 192, 3),
      wgmma('cooperative', 128, LOGPROB_BLOCK, 3),
      'bf16',
      { multiprocessors: 1 },
    ],
    // Those of them that end in narrow tiles: remainderColumns(columns, …, blocks, 2 row tiles).
    [
      'deferred, remainder tiles of v',
      { ...wgmma('deferred', 128, 96, 3), remainderTn: 48 },
      wgmma('cooperative', 128, LOGPROB_BLOCK, 3),
      'bf16',
      { multiprocessors: 5 },
    ],
    [
      'deferred, remainder tiles of o and down',
      { ...wgmma('deferred', 128, 96, 3), remainderTn: 64 },
      wgmma('cooperative', 128, LOGPROB_BLOCK, 3),
      'bf16',
      { multiprocessors: 3, backwards: true },
    ],
    [
      'deferred, remainder tiles only',
      { ...wgmma('deferred', 128, 96, 3), remainderTn: 64 },
      wgmma('cooperative', 128, LOGPROB_BLOCK, 3),
      'bf16',
      { multiprocessors: 7 },
    ],
    [
      'deferred, wide',
      wgmma('deferred', 128, 256, 3),
      wgmma('cooperative', 128, LOGPROB_BLOCK, 3),
      'f16',
      { multiprocessors: 2, backwards: true },
    ],
  ] as const;
  // The bits below are those of all others.
  it.each(casesHere<(typeof CASES)[number]>(CASES, 0))('agrees with float64: %s', (_, layer, head, dtype, options) => {
    const { got, want } = run(layer, head, dtype, options);
    for (const [name, values] of want()) {
      if (name === 'isArgmax') expect([...got.get(name)!]).toEqual([...values]);
      else if (name === 'parts')
        expect({ name, error: error(...withoutColumns(got.get(name)!, values)) }).toSatisfy(
          (x: { error: number }) => x.error < 3e-2,
        );
      else if (got.has(name))
        expect({ name, error: error(got.get(name)!, values) }).toSatisfy(
          (x: { error: number }) => x.error < (dtype === 'bf16' ? 3e-2 : 4e-3),
        );
    }
  });
});

describe('equal logits', () => {
  thorough('have their maximum in their first column', () => {
    const vocab = 600;
    const { module, tensors, inputs } = cudaLayer({ ...SHAPE, vocab }, SIZES, 8);
    const head = tensors.get('head.0')!;
    // Rows of the head repeat every 70, so each of them is in all blocks of the vocabulary.
    const data = head.data.map(
      (_, i) => head.data[(Math.floor(i / head.columns) % 70) * head.columns + (i % head.columns)]!,
    );
    const schedules = module.kernels.map((kernel) =>
      choose(wgmma('pingpong', 64, 96, 3), wgmma('cooperative', 128, LOGPROB_BLOCK, 2))(kernel, module),
    );
    const run = (target: Float64Array): ReadonlyMap<string, Float64Array> =>
      emulateModule(module, {
        sizes: SIZES,
        inputs: new Map([...inputs, ['target', target]]),
        tensors: new Map([...tensors, ['head.0', { ...head, data }]]),
        schedules,
      }).values;
    const target = inputs.get('target')!;
    const parts = run(target).get('parts')!;
    const first = Float64Array.from(target, (_, row) => parts[row * 4 * Math.ceil(vocab / LOGPROB_BLOCK) + 2]!);
    for (const at of first) expect(at).toBeLessThan(70);
    expect([...run(first).get('isArgmax')!]).toEqual([...first].map(() => 1));
    expect([...run(first.map((x) => x + 70)).get('isArgmax')!]).toEqual([...first].map(() => 0));
  });
});

describe('the bits of a result', () => {
  thorough('do not depend on the tile, the number of blocks, or the order of threads', () => {
    const first = run(wgmma('pingpong', 64, 96, 3), wgmma('pingpong', 64, LOGPROB_BLOCK, 3), 'bf16').got;
    const others = [
      [wgmma('cooperative', 256, 96, 2), 2, { backwards: true, multiprocessors: 2 }],
      [wgmma('deferred', 128, 96, 3), 3, { backwards: true, multiprocessors: 1 }],
    ] as const;
    for (const [layer, stages, options] of casesHere<(typeof others)[number]>(others, 1)) {
      const { got } = run(layer, wgmma('cooperative', 128, LOGPROB_BLOCK, stages), 'bf16', options);
      for (const [name, values] of first) expectSame(got.get(name), values, name);
    }
  });
});
