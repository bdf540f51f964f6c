/** What NVIDIA's compiler makes of kernels with adapters: they refuse nothing, and keep their sums in registers. */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda, shrinkingSchedule } from '../../../codegen/cuda/index.js';
import { SHRINK_ROWS } from '../../../ir/cuda.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { casesHere } from '../../support/thorough.js';
import { adapterCase } from './adapterCases.js';

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no kernel with adapters was compiled for a GPU.');

const SHAPE = { hidden: 4096, inter: 14_336, headDim: 128 } as const;
const CAPACITY = { T: 8192, R: 8192 };
const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const A100 = { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 } as const;

const ALL = (['qkv', 'gateUp', 'down'] as const).flatMap((which) =>
  [16, 64].flatMap((rank) => [1, 64].map((rows) => ({ which, rank, rows }))),
);

describe.skipIf(!hasNvcc)('few rows with adapters', () => {
  it.each([H100, A100])('are compiled for $arch', (facts) => {
    const texts = casesHere(ALL, 4, 1).flatMap(({ which, rank, rows }) => {
      const { kernel, module } = adapterCase(which, SHAPE, { slots: 64, rank });
      const bucket = scoringBucket({ tokens: rows, rows, longest: rows });
      const schedule = defaultCudaSchedule(kernel, module, facts, bucket);
      const inside = schedule.kind === 'gemm' ? shrinkingSchedule(kernel, module, schedule, rows) : undefined;
      expect(inside === undefined).toBe(facts === A100);
      return [schedule, ...(inside === undefined ? [] : [inside])].map((each) =>
        emitCudaKernel(kernel, module, each, CAPACITY),
      );
    });
    const { shrink, module } = adapterCase('qkv', SHAPE, { slots: 64, rank: 16 });
    const shrinks = casesHere(SHRINK_ROWS, 0, 3, 4)
      .map((rows) => ({ kind: 'loop', threads: 256, rows }) as const)
      .filter((schedule) => isLegalCuda(shrink, module, schedule, facts) === true)
      .map((schedule) => emitCudaKernel(shrink, module, schedule, CAPACITY));
    expect(shrinks.some(({ launch }) => launch.cluster > 1)).toBe(facts === H100);
    for (const { registers, spillStores } of compileByNvcc([...texts, ...shrinks], facts.arch)) {
      expect(registers).toBeLessThanOrEqual(255);
      // Warps that wait for memory put a few words away where there are 64 rows; on sm_80 88 bytes without adapters.
      expect(spillStores).toBeLessThanOrEqual(facts === A100 ? 92 : 64);
    }
  });
});
