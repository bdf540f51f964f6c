/**
 * Contractions of few rows: on fibres their bits are those of the other tensor-core skeletons, for every epilogue and
 * number of rows; the defaults; and what NVIDIA's compiler makes of the text.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { segmentsOf } from '../../../codegen/cuda/text/contraction.js';
import { columnTiles } from '../../../codegen/cuda/wgmma/layout.js';
import type { CudaGemmSchedule, CudaKernelText, CudaSchedule } from '../../../ir/cuda.js';
import { LOGPROB_BLOCK } from '../../../ir/kernel.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { openUnit } from '../../support/cudaWarp/units.js';
import { expectSame } from '../../support/numbers.js';
import { compileByNvcc, hasNvcc, type NvccReport } from '../../support/nvcc.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { emulateModule } from './emulate.js';
import { emulateLayerGemm } from './emulateLayerGemm.js';
import { cudaLayer } from './modules.js';
import { type HeadCase, headKernel, layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';
import { expectGolden } from './golden.js';

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no skinny kernel was compiled for a GPU.');

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const A100 = { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 } as const;
const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;

const skinny = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...GEMM,
  ...{ skeleton: 'skinny', tm, tn, tk, stages },
});
const onHopper = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...skinny(tm, tn, tk, stages),
  skeleton: 'skinnyWgmma',
});
const inPairs = (schedule: CudaGemmSchedule): CudaGemmSchedule => ({ ...schedule, cluster: 2 });
const MMA: CudaGemmSchedule = { ...GEMM, ...{ skeleton: 'mma', tm: 32, tn: 64, tk: 32, stages: 3 } };
const WGMMA: CudaGemmSchedule = {
  ...GEMM,
  ...{ skeleton: 'wgmma', tm: 64, tn: 96, tk: 64, stages: 3, mode: 'pingpong' },
};
const WGMMA_HEAD: CudaGemmSchedule = { ...WGMMA, tn: LOGPROB_BLOCK };

const ODD_TILES = 'a cluster is a whole number of column tiles';

/** k of 144 and 200 ends within a stage; 600 columns end within a block of the vocabulary. */
const SHAPE = { hidden: 144, heads: 3, kvHeads: 3, headDim: 48, inter: 200, vocab: 600, width: 8 } as const;

describe('a layer of few rows', () => {
  const run = (
    rows: number,
    layer: CudaSchedule,
    head: CudaSchedule,
    backwards = false,
  ): ReadonlyMap<string, Float64Array> => {
    const sizes = { T: rows, R: Math.max(1, rows - 2) };
    const { module, tensors, inputs } = cudaLayer(SHAPE, sizes, 40 + rows);
    const bucket = scoringBucket({ tokens: rows, rows: sizes.R, longest: rows });
    const schedules = module.kernels.map((kernel) => {
      const schedule =
        kernel.anchor === 'gemm'
          ? isLegalCuda(kernel, module, layer, H100) === ODD_TILES
            ? { ...layer, cluster: 1 as const }
            : layer
          : kernel.anchor === 'logprob'
            ? head
            : defaultCudaSchedule(kernel, module, H100, bucket);
      expect({ kernel: kernel.name, legal: isLegalCuda(kernel, module, schedule, H100) }).toEqual({
        kernel: kernel.name,
        legal: true,
      });
      return schedule;
    });
    return emulateModule(module, { sizes, inputs, tensors, schedules, backwards, tokensCapacity: 128 }).values;
  };

  /** Layers by wgmma, whose bits are those of mma at any number of rows: two of them are compared. */
  const references = new Map<number, ReadonlyMap<string, Float64Array>>();
  const MMA_ROWS: readonly number[] = [7, 70];

  const CASES = [
    [7, skinny(8, 96, 64, 16), skinny(8, 256, 128, 3)],
    [9, skinny(16, 32, 64, 5), skinny(16, 256, 64, 3)],
    [31, skinny(32, 48, 64, 4), skinny(32, 256, 64, 3)],
    [70, skinny(64, 64, 128, 3), skinny(32, 256, 64, 4)],
    [1, onHopper(8, 32, 64, 3), onHopper(8, 256, 64, 2)],
    [9, onHopper(16, 240, 64, 4), onHopper(16, 256, 64, 2)],
    [30, onHopper(32, 48, 256, 2), onHopper(32, 256, 64, 3)],
    [70, onHopper(32, 192, 64, 3), onHopper(16, 256, 64, 3)],
    [30, inPairs(onHopper(32, 96, 64, 2)), onHopper(32, 256, 64, 3)],
    [70, inPairs(onHopper(16, 96, 128, 3)), onHopper(16, 256, 64, 3)],
  ] as const;
  thorough.each<(typeof CASES)[number]>(CASES)('of %i has the bits of mma and of wgmma', (rows, layer, head) => {
    const got = run(rows, layer, head, rows % 2 === 0);
    const expected = references.get(rows) ?? run(rows, WGMMA, WGMMA_HEAD);
    for (const [name, values] of expected) expectSame(got.get(name), values, name);
    if (references.has(rows)) return;
    references.set(rows, expected);
    if (MMA_ROWS.includes(rows))
      for (const [name, values] of run(rows, MMA, WGMMA_HEAD)) expectSame(got.get(name), values, name);
  });
});

describe('every epilogue of a layer', () => {
  const [hidden, inter, headDim] = [192, 208, 32];
  const run = (each: WgmmaCase, rows: number, schedule: CudaSchedule): ReadonlyMap<string, Float64Array> => {
    expect(isLegalCuda(each.kernel, each.module, schedule, H100)).toBe(true);
    return emulateLayerGemm(each, rows, schedule);
  };

  const epilogues = casesHere<LayerGemm>(['qkv', 'o', 'gateUp', 'down'], 2).flatMap((which) =>
    casesHere([1, 20], 1).map((rows) => ({ which, rows })),
  );
  thorough.each(epilogues)('has the bits of mma and of wgmma: $which of $rows', ({ which, rows }) => {
    const layer = layerGemm(which, hidden, inter, headDim);
    // Several row tiles, or one that is mostly empty: both numbers of rows run the same kernels.
    const tm = which === 'qkv' || which === 'gateUp' ? 8 : 32;
    const got = run(layer, rows, skinny(tm, 48, 64, 4));
    // The layer above shows that mma has the bits of wgmma.
    const others = [{ ...WGMMA, mode: 'deferred', tm: 128 } as const, onHopper(tm, 96, 128, 2), MMA];
    for (const other of casesHere(others, 0)) {
      for (const [name, values] of run(layer, rows, other)) expectSame(got.get(name), values, name);
    }
  });
});

/** A model of eight billion weights. */
const [HIDDEN, INTER, VOCAB] = [4096, 14_336, 128_256];
const HEAD = headKernel(HIDDEN, VOCAB);
/** Of 33 billion weights: tiles of 144 columns, two for each multiprocessor. */
const WIDE = layerGemm('gateUp', 6656, 17_920);
const emit = ({ kernel, module }: WgmmaCase | HeadCase, schedule: CudaSchedule): CudaKernelText =>
  emitCudaKernel(kernel, module, schedule, { T: 8192, R: 8192 });
const chosen = (
  { kernel, module }: WgmmaCase | HeadCase,
  rows: number,
  facts: typeof H100 | typeof A100 = H100,
): CudaGemmSchedule => {
  const schedule = defaultCudaSchedule(kernel, module, facts, scoringBucket({ tokens: rows, rows, longest: rows }));
  if (schedule.kind !== 'gemm') throw new Error(`a contraction has schedule ${JSON.stringify(schedule)}`);
  return schedule;
};
const ALL = (['qkv', 'o', 'gateUp', 'down'] as const).map((which) => layerGemm(which, HIDDEN, INTER));

describe('the default of few rows', () => {
  it.each([1, 2, 8, 9, 16, 32, 64])("keeps all of a multiprocessor's memory in flight: %i rows", (rows) => {
    for (const each of [...ALL, HEAD]) {
      const schedule = chosen(each, rows);
      const { tn, tk, stages } = schedule;
      expect(schedule).toMatchObject({ skeleton: 'skinnyWgmma', tm: Math.max(8, 2 ** Math.ceil(Math.log2(rows))) });
      const blocks = columnTiles(segmentsOf(each.kernel), tn).total;
      // 3.35 TB/s for 0.8 µs.
      expect(Math.min(blocks, 264) * (stages - 1) * tn * tk * 2).toBeGreaterThan(2.7e6);
      // A multiprocessor has one block that takes all of its memory, or two: of many tiles, or of long epilogues.
      const bytes = (emit(each, schedule).launch.sharedBytes + 1024) * (blocks > 132 || rows * tn > 8192 ? 2 : 1);
      expect(bytes).toBeLessThanOrEqual(228 << 10);
      expect(bytes).toBeGreaterThan(150 << 10);
    }
  });

  it('is one tile for each multiprocessor where the columns divide so', () => {
    const blocks = ALL.map((each) => columnTiles(segmentsOf(each.kernel), chosen(each, 1).tn).total);
    for (const count of blocks) expect(count).toBeLessThanOrEqual(132);
  });

  it('is another skeleton for more rows, before Hopper, and for the vocabulary without wgmma', () => {
    expect(chosen(ALL[1]!, 65).skeleton).toBe('wgmma');
    expect(chosen(layerGemm('o', HIDDEN, INTER, 128, 'f16'), 1).skeleton).toBe('skinnyWgmma');
    expect(chosen(layerGemm('o', HIDDEN, INTER, 128, 'f16'), 1, A100).skeleton).toBe('skinny');
    expect(chosen(HEAD, 1, A100).skeleton).toBe('mma');
  });
});

describe('legality', () => {
  const legal = (
    each: WgmmaCase | HeadCase,
    schedule: CudaGemmSchedule,
    facts: typeof H100 | typeof A100 = H100,
  ): true | string => isLegalCuda(each.kernel, each.module, schedule, facts);
  it.each([
    ['rows between the steps', skinny(24, 32, 64, 4), /have 8, 16, 32, 64 rows/],
    ['a short stage', skinny(8, 32, 32, 4), /64, 128, 256 of k/],
    ['two stages', skinny(8, 32, 64, 2), /3 to 16 stages/],
    ['half a warp of columns', skinny(8, 40, 64, 4), /multiples of 16/],
    ['too many warps', skinny(8, 272, 64, 3), /17 warps/],
    ['too much shared memory', skinny(64, 256, 128, 3), /shared memory/],
    ['clusters', inPairs(skinny(16, 32, 64, 4)), /wgmma/],
    ['on Hopper: rows between the steps', onHopper(24, 32, 64, 4), /have 8, 16, 32, 64 rows/],
    ['on Hopper: half a slab', onHopper(8, 32, 32, 4), /tk must be 64, 128, 256/],
    ['on Hopper: one stage', onHopper(8, 32, 64, 1), /stages must be 2 to 24/],
    ['on Hopper: more columns than an instruction has', onHopper(8, 272, 64, 3), /at most 256/],
    ['on Hopper: too much shared memory', onHopper(64, 256, 128, 4), /shared memory/],
    ['on Hopper: pairs of four rows each', inPairs(onHopper(8, 32, 64, 4)), /at least eight rows/],
    ['on Hopper: half a pair', inPairs(onHopper(16, 224, 64, 4)), /whole number of column tiles/],
  ] as const)('refuses %s', (_what, schedule, reason) => {
    expect(legal(ALL[1]!, schedule)).toMatch(reason);
  });
  it('refuses half a block of the vocabulary, and any of it without wgmma', () => {
    expect(legal(HEAD, skinny(8, 128, 64, 4))).toMatch(/tn must be 256/);
    expect(legal(HEAD, skinny(8, 256, 64, 3), A100)).toMatch(/summed as wgmma does it/);
    expect(legal(HEAD, onHopper(8, 128, 64, 4))).toMatch(/tn must be 256/);
    expect(legal(ALL[1]!, onHopper(8, 32, 64, 4), A100)).toMatch(/needs sm_90a/);
  });
});

describe('the text', () => {
  it('is golden', async () => {
    const layer = layerGemm('gateUp', 512, 512);
    await expectGolden(emit(layer, skinny(8, 32, 128, 4)).source, 'gateUpSkinny');
    await expectGolden(emit(layer, onHopper(8, 32, 128, 4)).source, 'gateUpSkinnyWgmma');
    await expectGolden(emit(HEAD, onHopper(8, 256, 64, 3)).source, 'headSkinnyWgmma');
    await expectGolden(emit(HEAD, skinny(8, 256, 64, 3)).source, 'headSkinny');
  });

  it('reads weights, and nothing else, before the preceding kernel has ended', () => {
    const partsOf = (schedule: CudaGemmSchedule, products: string, wait: string): readonly string[] => {
      const text = openUnit(emit(ALL[1]!, schedule).source);
      const from = text.indexOf(`TW_DEVICE Tile ${products}(`);
      return text.slice(from, text.indexOf('\n}\n', from)).split(wait);
    };
    const [before, after] = partsOf(chosen(ALL[1]!, 8), 'skinny_wgmma_products', 'wait_for_previous();');
    expect(before).toContain('load_weights(i, i);');
    expect(before).not.toMatch(/load_rows\(\w|row_values<|\breturn\b/);
    expect(after).toContain('load_rows(i, i);');
    const [first, then] = partsOf(chosen(ALL[1]!, 8, A100), 'skinny_products', 'await_previous();');
    expect(first).toContain('skinny_copy_weights<config>(w, ');
    expect(first).not.toMatch(/skinny_copy_rows|row_values<|\breturn\b/);
    expect(then).toContain('skinny_copy_rows<config>(a, ');
  });
});

describe.skipIf(!hasNvcc)('compiled', () => {
  const cases = casesHere([1, 16, 32, 64], 3).flatMap((rows) =>
    casesHere([...ALL, WIDE, HEAD], 2, 5).map((each) => ({ each, rows, path: each.kernel.path })),
  );
  const compiled = { sm_90a: [] as NvccReport[], sm_80: [] as NvccReport[] };
  beforeAll(() => {
    compiled.sm_90a = compileByNvcc(
      cases.map(({ each, rows }) => emit(each, chosen(each, rows))),
      'sm_90a',
    );
    compiled.sm_80 = compileByNvcc(
      casesHere(ALL, 2).map((each) => emit(each, chosen(each, 8, A100))),
      'sm_80',
    );
  });

  it.each(cases.map((each, i) => ({ ...each, i })))(
    'keeps everything in registers: $path of $rows',
    ({ each, rows, i }) => {
      const { registers, spillStores } = compiled.sm_90a[i]!;
      const { threads } = emit(each, chosen(each, rows)).launch;
      expect(spillStores).toBe(0);
      // Two blocks share the registers of a multiprocessor where they share its memory.
      const isOneOfTwo = each === HEAD || each === WIDE || (each === ALL[2] && rows === 64);
      expect((isOneOfTwo ? 2 : 1) * threads * registers).toBeLessThanOrEqual(65_536);
    },
  );

  // A loop is unrolled twice at most, and may need moves where it begins.
  it.each(cases.map((each, i) => ({ ...each, i })))('multiplies without moves between: $path of $rows', ({ i }) => {
    expect(compiled.sm_90a[i]!.movesBeforeProducts).toBeLessThanOrEqual(2);
  });

  it('runs on older GPUs too', () => {
    for (const { spillStores } of compiled.sm_80) expect(spillStores).toBe(0);
  });
});
