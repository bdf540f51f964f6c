/**
 * Weights of 4 bits in groups, on fibres: bits that depend on no tile and no number of rows, products of float64, and
 * what NVIDIA's compiler makes of the text.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { GroupSize } from '../../../ir/groups.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { loadOverFibres } from '../../support/cudaWarp/compile.js';
import { openUnit } from '../../support/cudaWarp/units.js';
import { expectSame } from '../../support/numbers.js';
import { compileByNvcc, hasNvcc, type NvccReport } from '../../support/nvcc.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { emulateLayerGemm } from './emulateLayerGemm.js';
import { expectGolden } from './golden.js';
import { inGroups, layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no kernel of weights in groups was compiled for a GPU.');

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const grouped = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...GEMM,
  ...{ skeleton: 'grouped', tm, tn, tk, stages },
});
const SIMT: CudaGemmSchedule = { ...GEMM, ...{ skeleton: 'simt', tm: 16, tn: 64, tk: 32, stages: 1 } };

/** A layer's contraction with its weights in groups. */
const layerInGroups = (
  which: LayerGemm,
  group: GroupSize,
  half: 'bf16' | 'f16',
  [hidden, inter, headDim]: readonly [number, number, number],
): WgmmaCase => inGroups(layerGemm(which, hidden, inter, headDim, half), group);

const run = (
  each: WgmmaCase,
  rows: number,
  schedule: CudaGemmSchedule,
  backwards = false,
): ReadonlyMap<string, Float64Array> => {
  expect(isLegalCuda(each.kernel, each.module, schedule, H100)).toBe(true);
  return emulateLayerGemm(each, rows, schedule, { backwards });
};

const RESULTS = ['q', 'k', 'v', 'gated', 'nextHalf', 'next', 'nextTail', 'nextParts'];

describe('weights of 4 bits', () => {
  const SMALL = [384, 128, 32] as const;
  /** Quarters of k of 3, 3, 3 and 2 chunks. */
  const LONG = [128, 1408, 32] as const;
  const CASES = [
    ['o', 128, 'bf16', 1, grouped(8, 96, 128, 3), grouped(64, 48, 256, 2), SMALL],
    ['gateUp', 64, 'f16', 9, grouped(16, 64, 512, 2), grouped(32, 128, 256, 2), SMALL],
    ['qkv', 32, 'bf16', 20, grouped(8, 32, 512, 2), grouped(16, 96, 256, 3), SMALL],
    ['down', 128, 'f16', 70, grouped(64, 32, 128, 4), grouped(16, 16, 256, 3), SMALL],
    ['o', 64, 'bf16', 17, grouped(8, 16, 512, 3), grouped(32, 256, 128, 4), SMALL],
    ['down', 128, 'bf16', 5, grouped(8, 32, 512, 2), grouped(16, 64, 256, 3), LONG],
    ['down', 32, 'f16', 3, grouped(8, 128, 256, 4), grouped(64, 16, 128, 5), LONG],
  ] as const;
  thorough.each<(typeof CASES)[number]>(CASES)(
    '%s in groups of %i, %s, %i rows: one result in any tile, near that of CUDA cores',
    (which, group, half, rows, first, second, sizes) => {
      const layer = layerInGroups(which, group, half, sizes);
      const got = run(layer, rows, first, rows % 2 === 0);
      for (const [name, values] of run(layer, rows, second)) expectSame(got.get(name), values, name);
      const reference = run(layer, rows, SIMT);
      for (const name of RESULTS) {
        const [own, other] = [got.get(name), reference.get(name)];
        if (own === undefined || other === undefined || name === 'nextTail') continue;
        const most = other.reduce((a, x) => (Number.isFinite(x) ? Math.max(a, Math.abs(x)) : a), 0);
        own.forEach((x, i) => {
          if (Number.isFinite(other[i]!)) expect(Math.abs(x - other[i]!)).toBeLessThan(most * 2 ** -7);
        });
      }
    },
  );
});

describe('the text', () => {
  it('is golden', async () => {
    const emitted = (which: LayerGemm, group: GroupSize, half: 'bf16' | 'f16', schedule: CudaGemmSchedule): string => {
      const { kernel, module } = layerInGroups(which, group, half, [384, 128, 32]);
      return emitCudaKernel(kernel, module, schedule, { T: 128, R: 128 }).source;
    };
    await expectGolden(emitted('o', 128, 'bf16', grouped(8, 96, 128, 3)), 'oGrouped');
    await expectGolden(emitted('qkv', 32, 'f16', grouped(16, 96, 256, 3)), 'qkvGrouped');
  });
});

describe('the compiler', () => {
  const WIDE = [6656, 17_920, 128] as const;
  const kernels = (['o', 'gateUp'] as const).flatMap((which) =>
    [1, 16, 32, 64].map((rows) => {
      const { kernel, module } = layerInGroups(which, 128, 'bf16', WIDE);
      const bucket = scoringBucket({ tokens: rows, rows, longest: rows });
      const schedule = defaultCudaSchedule(kernel, module, H100, bucket);
      expect(schedule).toMatchObject({ skeleton: 'grouped' });
      return {
        which,
        rows,
        schedule: schedule as CudaGemmSchedule,
        text: emitCudaKernel(kernel, module, schedule, { T: 8192, R: 8192 }),
      };
    }),
  );
  const compiled = casesHere(kernels, 4);
  let reports: readonly NvccReport[] = [];
  beforeAll(() => {
    if (hasNvcc)
      reports = compileByNvcc(
        compiled.map(({ text }) => text),
        'sm_90a',
      );
  });
  it('keeps a second block of a kernel of few rows off a multiprocessor, by shared memory or by registers', () => {
    for (const { which, rows, text } of kernels.filter(({ rows }) => rows <= 16)) {
      const { sharedBytes, threads } = text.launch;
      expect({ rows, isHalf: 2 * (sharedBytes + 1024) <= 228 << 10 }).toEqual({ rows, isHalf: which === 'gateUp' });
      if (which === 'gateUp') expect(2 * threads * 56).toBeGreaterThan(65_536);
    }
  });
  it('lets the next kernel begin once the last ring of copies is left', () => {
    const few = kernels.filter(({ rows }) => rows <= 16);
    expect(openUnit(few[0]!.text.source)).toContain('block == config.late_block()) launch_dependents();');
    // Numbers that the Config computes, told by a compiler.
    const text = few.map(({ text: { source } }, i) => {
      const config = /constexpr GroupedConfig config = \{[^}]*\};/.exec(source)![0];
      return `namespace of_${i} { using namespace tw; ${config} }
        extern "C" void late_${i}(int *to) { to[0] = of_${i}::config.late_block(); }`;
    });
    const library = loadOverFibres(['#include "gemm/grouped.cuh"', ...text].join('\n'));
    few.forEach(({ rows, schedule }, i) => {
      const late = Buffer.alloc(4);
      library.func(`void late_${i}(void *to)`)(late);
      const [chunks, split] = [6656 / 128, schedule.tk / 128];
      const fills = Math.min(chunks, (4 / split) * Math.ceil(chunks / 4));
      const expected = Math.max(Math.min(schedule.stages, fills), fills - schedule.stages);
      expect({ rows, late: late.readInt32LE() }).toEqual({ rows, late: expected });
    });
  });
  it('has tiles for most multiprocessors', () => {
    for (const { text } of kernels) {
      expect(text.launch.gridX).toMatchObject({ kind: 'tiles' });
      if (text.launch.gridX.kind === 'tiles') expect(text.launch.gridX.times).toBeGreaterThanOrEqual(104);
    }
  });
  it.runIf(hasNvcc)('spills no registers', () => {
    expect(reports).toHaveLength(compiled.length);
    reports.forEach(({ spillStores, spillLoads, registers }, i) => {
      expect({ ...compiled[i], text: '', spillStores, spillLoads }).toMatchObject({ spillStores: 0, spillLoads: 0 });
      expect(registers).toBeLessThanOrEqual(168);
    });
  });
});
