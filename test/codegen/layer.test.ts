/**
 * Whole layers of generated code, compared with the float64 interpreter: every instruction set, dtype and pairing
 * width.
 */
import { scoringBucket } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import { defaultSchedule, isLegal } from '../../codegen/cpu/index.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuIsa } from '../../ir/plan.js';
import { casesHere } from '../support/thorough.js';
import { RUNNABLE, runGenerated } from './harness.js';
import type { LayerShape } from './modules.js';
import { layerCase } from './modules.js';

const SHAPES: readonly (Omit<LayerShape, 'mode'> & { T: number; R: number })[] = [
  { hidden: 64, heads: 2, kvHeads: 2, headDim: 32, inter: 96, vocab: 600, width: 16, T: 70, R: 33 },
  { hidden: 144, heads: 3, kvHeads: 3, headDim: 48, inter: 400, vocab: 1100, width: 8, T: 45, R: 20 },
  { hidden: 96, heads: 6, kvHeads: 2, headDim: 32, inter: 100, vocab: 513, width: 16, T: 129, R: 64 },
  { hidden: 80, heads: 2, kvHeads: 1, headDim: 40, inter: 72, vocab: 70, width: 4, T: 1, R: 1 },
  { hidden: 256, heads: 2, kvHeads: 2, headDim: 128, inter: 352, vocab: 1024, width: 32, T: 100, R: 41 },
];

const TOLERANCE = { f32: 2e-5, bf16: 3e-2, amx: 3e-2 };

/** Largest difference, relative to the largest value of the buffer. */
function error(got: Float64Array, want: Float64Array): number {
  let [most, scale] = [0, 1e-30];
  want.forEach((x, i) => {
    const d = Math.abs(got[i]! - x);
    most = Number.isNaN(d) ? Infinity : Math.max(most, d);
    scale = Math.max(scale, Math.abs(x));
  });
  return most / scale;
}

function check(
  isa: CpuIsa,
  mode: LayerShape['mode'],
  shape: (typeof SHAPES)[number],
  seed: number,
  isQuick: boolean,
): void {
  const sizes = { T: shape.T, R: shape.R };
  const { module, tensors, inputs } = layerCase({ ...shape, mode }, sizes, seed);
  const facts = {
    isas: isa === 'amx' ? (['portable', 'avx2', 'avx512', 'amx'] as const) : ([isa] as const),
    l1: 32768,
    l2: 1 << 20,
  };
  const schedules = module.kernels.map((kernel) =>
    defaultSchedule(kernel, module, facts, scoringBucket({ tokens: shape.T, rows: shape.R, longest: shape.T })),
  );
  module.kernels.forEach((kernel, i) => {
    expect(isLegal(kernel, module, schedules[i]!, facts)).toBe(true);
  });
  const got = runGenerated(module, { sizes, inputs, tensors, schedules, workers: 2, isQuick });
  const want = interpretModule(module, { sizes, buffers: inputs, tensors, round: true });
  expect(got.dirtyPads).toEqual([]);
  expect(got.overruns).toEqual([]);
  for (const { name } of module.buffers) {
    if (name === 'isArgmax') expect([...got.values.get(name)!]).toEqual([...want.get(name)!]);
    else if (!name.startsWith('parts'))
      expect({ name, error: error(got.values.get(name)!, want.get(name)!) }).toSatisfy(
        (x: { error: number }) => x.error < TOLERANCE[mode],
      );
  }
}

/**
 * One instruction set runs every shape; the others run those with the most awkward pairs and heads. In CI, layers
 * are of tiles where these run: commands score and generate with f32.
 */
function casesOf(isa: CpuIsa) {
  const modes = isa === 'amx' ? (['amx'] as const) : (['f32', 'bf16'] as const);
  const shapesOf = {
    f32: casesHere(
      [1, 0, 3],
      ...(RUNNABLE.length > 2 ? [] : isa === RUNNABLE[1] ? [0] : RUNNABLE.length === 1 ? [2] : []),
    ),
    bf16: casesHere([2, 1, 4]),
    amx: casesHere([0, 1, 2, 3, 4], 2),
  };
  return modes.flatMap((mode) => shapesOf[mode].map((i) => ({ mode, i, shape: SHAPES[i]! })));
}

describe.each(RUNNABLE.filter((isa) => casesOf(isa).length > 0))('a layer on %s', (isa) => {
  it.each(casesOf(isa))('agrees with float64: $mode, shape $i', ({ mode, i, shape }) => {
    // One shape of the vector instruction sets is compiled with the product's own flags.
    check(isa, mode, shape, 11 + i, isa === 'portable' || i !== (isa === 'avx2' ? 1 : 0));
  });
});
