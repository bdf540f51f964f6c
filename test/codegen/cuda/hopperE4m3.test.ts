/** Contractions of E4M3 over fibres: their products are those of float64, and the same bits whatever the schedule. */
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, isThorough } from '../../support/thorough.js';
import { emulateLayerGemm, interpretLayerGemm } from './emulateLayerGemm.js';
import { inE4m3, layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';
import { emit } from './wgmmaRegisters.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const ROWS = 70;

const schedule = (
  skeleton: CudaGemmSchedule['skeleton'],
  [tm, tn, tk, stages]: readonly [number, number, number, number],
  mode: CudaGemmSchedule['mode'] = 'cooperative',
): CudaGemmSchedule => ({ kind: 'gemm', skeleton, tm, tn, tk, stages, cluster: 1, raster: 2, mode });

const SIMT = schedule('simt', [64, 64, 32, 1]);
const ALL_SCHEDULES = [
  schedule('wgmma', [64, 64, 128, 3], 'pingpong'),
  schedule('skinnyWgmma', [32, 64, 128, 3]),
  schedule('wgmma', [128, 128, 128, 2], 'deferred'),
  { ...schedule('wgmma', [128, 192, 128, 2], 'deferred'), epilogueGroups: 1 as const },
  schedule('wgmma', [128, 64, 256, 2]),
  schedule('skinnyWgmma', [64, 192, 256, 2]),
];
const SCHEDULES = casesHere(ALL_SCHEDULES, 0, 1);

/** Neither depth is a multiple of what a stage holds. */
const CASES: readonly (readonly [LayerGemm, number, number])[] = [
  ['o', 160, 208],
  ['gateUp', 160, 192],
  ['qkv', 160, 208],
  ['down', 160, 208],
];

const outputsOf = ({ kernel }: WgmmaCase): string[] =>
  kernel.segments.flatMap((segment) => segment.outputs.map(({ buffer }) => buffer));

type Values = ReadonlyMap<string, Float64Array>;

function expectClose(own: WgmmaCase, got: Values, wanted: Values): void {
  for (const name of outputsOf(own).filter((each) => each !== 'nextTail')) {
    const [values, right] = [got.get(name)!, wanted.get(name)!];
    const largest = right.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    right.forEach((x, i) => expect(Math.abs(values[i]! - x), `${name} ${i}`).toBeLessThan(0.01 * largest));
  }
}

describe('contractions of E4M3', () => {
  it.each(casesHere(CASES, 1))('%s', (which, hidden, inter) => {
    const own = inE4m3(layerGemm(which, hidden, inter, 32));
    const wanted = interpretLayerGemm(own, ROWS);
    const outputs = outputsOf(own);
    const close = (got: Values): void => expectClose(own, got, wanted);
    const [first, ...rest] = SCHEDULES.map((each) => {
      expect(isLegalCuda(own.kernel, own.module, each, FACTS)).toBe(true);
      return emulateLayerGemm(own, ROWS, each);
    });
    close(first!);
    for (const got of rest) for (const name of outputs) expectSame(got.get(name), first!.get(name)!, name);
    close(emulateLayerGemm(own, ROWS, SIMT));
  });

  const loads: readonly (readonly [number, readonly number[]])[] = isThorough
    ? [
        [256, [128, 208, 224, 240, 256]],
        [240, [240]],
        [208, [192, 224]],
      ]
    : [
        [256, [208, 256]],
        [240, [240]],
      ];
  it.each(loads)(
    'give the same bits where epilogues of %i columns load ahead, over tiles of %j and their ends',
    (n, tiles) => {
      const own = inE4m3(layerGemm('o', n, 208, 32), true);
      // Two blocks for three or six tiles: all but the last of each are left to other warps.
      const given = (each: CudaGemmSchedule): Values => emulateLayerGemm(own, 300, each, { multiprocessors: 2 });
      const wanted = given(ALL_SCHEDULES[0]!);
      expectClose(own, wanted, interpretLayerGemm(own, 300));
      for (const tn of tiles) {
        const ahead = schedule('wgmma', [128, tn, 128, 2], 'deferred');
        const got = given(ahead);
        for (const name of outputsOf(own)) expectSame(got.get(name), wanted.get(name)!, `${tn}: ${name}`);
        const { source } = emit(own, ahead);
        // What is loaded ahead lies in two places by turns, so batches come in pairs. 208 columns are not worth it.
        expect(source.includes('.take(ahead.'), String(tn)).toBe(tn !== 192 && tn !== 208);
        expect(source).toContain('.are_rows_of_threads = true');
      }
    },
  );

  it('are made by warpgroups alone', () => {
    const { kernel, module } = inE4m3(layerGemm('o', 160, 208));
    for (const skeleton of ['mma', 'skinny'] as const)
      expect(isLegalCuda(kernel, module, schedule(skeleton, [16, 64, 64, 3]), FACTS)).toMatch(/only where warpgroups/);
    const older = { ...FACTS, arch: 'sm_80' } as const;
    expect(isLegalCuda(kernel, module, SCHEDULES[0]!, older)).toBe('wgmma needs sm_90a, the target is sm_80');
  });
});
