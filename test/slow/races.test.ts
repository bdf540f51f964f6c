/**
 * Races in the shared memory of contractions on GPUs, searched without a GPU (test/support/cudaWarp/races.cc): every
 * two accesses of different threads, of which one writes, are ordered by a barrier. Beside each kernel, the same kernel
 * with a barrier less, which must be reported.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, isLegalCuda } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { scoringBucket } from '../../ir/scoring.js';
import { adapterCase, emulateAdapters, withAdapters } from '../codegen/cuda/adapterCases.js';
import { emulateLayerGemm } from '../codegen/cuda/emulateLayerGemm.js';
import { emulateExperts, wgmma as ofExperts } from '../codegen/cuda/expertCases.js';
import { inGroups, layerGemm, type LayerGemm } from '../codegen/cuda/wgmmaKernels.js';
import { takeRaces } from '../support/cudaWarp/compile.js';
import { changed, racesOfBroken, reason, type Change } from './raceSearch.js';

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const GEMMS: readonly LayerGemm[] = ['qkv', 'o', 'gateUp', 'down'];
/** k of 192 and 208: three and four steps, so that two stages are used again. */
const [HIDDEN, INTER, HEAD_DIM] = [192, 208, 32];
const skinny = (tm: number, tn: number, stages: number): CudaGemmSchedule => ({
  ...{ kind: 'gemm', skeleton: 'skinnyWgmma', cluster: 1, raster: 1, mode: 'cooperative' },
  ...{ tm, tn, tk: 64, stages },
});

const inPairs = (tm: number, tn: number): CudaGemmSchedule => ({ ...skinny(tm, tn, 2), cluster: 2 });

describe.skipIf(reason !== undefined)('contractions of few rows on Hopper', () => {
  it.each([8, 16, 32, 64].flatMap((tm) => GEMMS.map((which) => ({ tm, which }))))(
    'have no race: tiles of $tm rows, $which',
    ({ tm, which }) => {
      const each = layerGemm(which, HIDDEN, INTER, HEAD_DIM);
      const bucket = scoringBucket({ tokens: tm, rows: tm, longest: tm });
      const chosen = defaultCudaSchedule(each.kernel, each.module, H100, bucket);
      expect(chosen).toMatchObject({ skeleton: 'skinnyWgmma', tm });
      // A ring that is used again, by one warpgroup and by two, and in pairs; a tile with fewer rows than it has.
      const pairs = tm < 16 ? [] : [inPairs(tm, which === 'gateUp' ? 208 : 96)];
      for (const schedule of [chosen, skinny(tm, 48, 2), skinny(tm, 192, 2), ...pairs]) {
        expect(isLegalCuda(each.kernel, each.module, schedule, H100)).toBe(true);
        for (const backwards of [false, true]) {
          emulateLayerGemm(each, tm + 3, schedule, { backwards });
          expect(takeRaces(), JSON.stringify({ schedule, backwards })).toEqual([]);
        }
      }
    },
  );

  const UNORDERED = /a write of thread \d+ at `\*\(float2 \*\)\(products .*and a read of .*products[(,]/;
  const GATHER = '  if constexpr (has_parts)\n    skinny_wgmma_gather';
  const EPILOGUE = `  __syncthreads();\n${GATHER}`;
  const broken = (schedule: CudaGemmSchedule, ...changes: readonly Change[]): string =>
    [false, true]
      .map((backwards) =>
        racesOfBroken(changes, (mutate) => {
          emulateLayerGemm(layerGemm('o', HIDDEN, INTER, HEAD_DIM), schedule.tm, schedule, { mutate, backwards });
        }),
      )
      .join('\n');

  it.each([16, 32, 64])('are reported without the barrier before the epilogue: tiles of %i rows', (tm) => {
    expect(broken(skinny(tm, 16, 2), [EPILOGUE, GATHER])).toMatch(UNORDERED);
  });

  it('need no barrier before the epilogue where every warp reads what it wrote: 8 rows, 16 columns', () => {
    expect(broken(skinny(8, 16, 2), [EPILOGUE, `  __syncwarp();\n${GATHER}`])).not.toMatch(UNORDERED);
  });

  it.each<{ what: string; races: RegExp; changes: readonly Change[] }>([
    {
      what: 'that other warps still read the ring',
      races: /a write of .*\(products/,
      changes: [['named_sync<32 * config.consumer_warps()>(1);', '']],
    },
    {
      what: 'to wait for its own products',
      races: /a product under way .* a write of .*\(products/,
      changes: [['wgmma_wait<0>();', '']],
    },
    {
      what: 'that its products still read a stage',
      races: /a product under way .* a copy of/,
      changes: [['wgmma_wait<1>();', '']],
    },
    {
      what: 'that other warps still read a stage',
      races: /a read of .* a copy of/,
      changes: [
        ['empty[i].init(config.consumer_warps() * cluster);', 'empty[i].init(1);'],
        ['if (lane == 0) empty[before]', 'if (thread == 0) empty[before]'],
      ],
    },
    {
      what: 'to wait for a stage',
      races: /a copy under way .* a read of/,
      changes: [['full[stage].wait(phase);', '']],
    },
    {
      what: 'that barriers must be there',
      races: /a write of thread 128 at `tw_race_write/,
      changes: [['    __syncthreads();\n  }\n\n  if (warp', '  }\n  if (warp']],
    },
  ])('are reported when they forget $what', ({ changes, races }) => {
    expect(broken(skinny(64, 48, 2), ...changes)).toMatch(races);
  });

  it.each<{ what: string; races: RegExp; changes: readonly Change[] }>([
    {
      what: 'that the neighbour still reads a stage',
      races: /a read of .* a copy of/,
      changes: [
        ['empty[i].init(config.consumer_warps() * cluster);', 'empty[i].init(config.consumer_warps());'],
        ['if (lane < cluster) empty[before].arrive_at(lane);', 'if (lane == 0) empty[before].arrive();'],
      ],
    },
    {
      what: "that the neighbour's barriers must be there",
      races: /a write of thread \d+ at `tw_race_write/,
      changes: [['cluster_arrive_aligned();\n    cluster_wait_aligned();', '__syncthreads();']],
    },
  ])('in pairs are reported when they forget $what', ({ changes, races }) => {
    expect(broken(inPairs(64, 96), ...changes)).toMatch(races);
  });

  it('in pairs must not end before their neighbours', () => {
    const RELEASE = 'if (lane < cluster) empty[before].arrive_at(';
    const LATE = 'for (int late = 0; rank == 1 && late < 2000; late++) { tw_progress++; tw_yield(); }';
    const run = (...changes: readonly Change[]): void => {
      const mutate = (source: string): string => changed(source, [[RELEASE, `${LATE} ${RELEASE}`], ...changes]);
      emulateLayerGemm(layerGemm('o', HIDDEN, INTER, HEAD_DIM), 64, inPairs(64, 96), { mutate });
    };
    run();
    expect(takeRaces()).toEqual([]);
    const endsFirst: readonly Change[] = [
      ['  if constexpr (cluster > 1 || has_parts) cluster_arrive_aligned();\n  return', '  return'],
      ['    __syncwarp();\n    cluster_wait_aligned();\n', ''],
    ];
    expect(() => {
      run(...endsFirst);
    }).toThrow(/wait for each other/);
    takeRaces();
  });
});

describe.skipIf(reason !== undefined)('contractions with adapters', () => {
  const own = adapterCase('down', { hidden: HIDDEN, inter: INTER, headDim: HEAD_DIM }, { slots: 20, rank: 16 });
  /** Every second row has a slot of its own: their factors go round the ring. */
  const rows = { slots: Array.from({ length: 40 }, (_, row) => (row % 2 === 0 ? row / 2 : -1)) };
  const wgmma = { ...skinny(64, 96, 3), skeleton: 'wgmma', mode: 'pingpong' } as const;
  it.each<CudaGemmSchedule>([
    skinny(32, 48, 2),
    inPairs(64, 96),
    { ...skinny(16, 48, 3), skeleton: 'skinny' },
    { ...skinny(32, 64, 2), skeleton: 'mma' },
    wgmma,
    { ...wgmma, tm: 128, mode: 'deferred', cluster: 2 },
  ])('have no race: $skeleton, $mode, clusters of $cluster', (gemm) => {
    expect(isLegalCuda(own.kernel, own.module, gemm, H100)).toBe(true);
    for (const backwards of [false, true]) {
      emulateAdapters(own, rows, { gemm }, { backwards });
      expect(takeRaces()).toEqual([]);
    }
  });

  it('are reported when they leave a stage of second factors before they have read it', () => {
    const changes: readonly Change[] = [
      [
        'full[next].wait(next_phase);\n        skinny',
        'full[next].wait(next_phase);\n        leave(next);\n        skinny',
      ],
      ['        __syncwarp();\n        leave(next);\n', ''],
    ];
    const races = racesOfBroken(changes, (mutate) => {
      const inProduct = (source: string): string =>
        source.includes('skinny_wgmma_gemm') ? mutate(source) : `${source}\n`;
      emulateAdapters(own, rows, { gemm: skinny(32, 48, 2) }, { mutate: inProduct });
    });
    expect(races).toMatch(/a read of .* a copy of/);
  });
});

describe.skipIf(reason !== undefined)('contractions of weights in groups with adapters', () => {
  const base = inGroups(layerGemm('down', 128, 640, HEAD_DIM), 64);
  const own = withAdapters(base, { slots: 20, rank: 48 });
  /** Second factors of a tile are more than its rings hold. */
  const rows = { slots: Array.from({ length: 20 }, (_, row) => (row % 3 === 0 ? -1 : row)) };
  const grouped = (tm: number, tn: number, tk: number): CudaGemmSchedule => ({
    ...{ kind: 'gemm', skeleton: 'grouped', cluster: 1, raster: 1, mode: 'cooperative' },
    ...{ tm, tn, tk, stages: 2 },
  });
  it.each([grouped(8, 32, 128), grouped(16, 64, 256), grouped(32, 32, 512)])(
    'have no race: $tm × $tn × $tk',
    (gemm) => {
      expect(isLegalCuda(own.kernel, own.module, gemm, H100)).toBe(true);
      for (const backwards of [false, true]) {
        emulateAdapters(own, rows, { gemm }, { backwards });
        expect(takeRaces()).toEqual([]);
      }
    },
  );

  it.each<{ what: string; races: RegExp; changes: readonly Change[] }>([
    {
      what: 'to wait for second factors',
      races: /a copy under way .* a read of/,
      changes: [
        ['    copy_wait<0>();\n    __syncthreads();\n#pragma unroll 1\n    for (int unit', '    for (int unit'],
      ],
    },
    {
      what: 'that other warps still read second factors',
      races: /a read of .* a copy of/,
      changes: [['= { d[2], d[3] };\n    }\n    __syncthreads();', '= { d[2], d[3] };\n    }']],
    },
  ])('are reported when they forget $what', ({ changes, races }) => {
    const found = [false, true].map((backwards) =>
      racesOfBroken(changes, (mutate) => {
        const inProduct = (source: string): string =>
          source.includes('grouped_gemm') ? mutate(source) : `${source}\n`;
        emulateAdapters(own, rows, { gemm: grouped(8, 32, 128) }, { mutate: inProduct, backwards });
      }),
    );
    expect(found.join('\n')).toMatch(races);
  });
});

describe.skipIf(reason !== undefined)('other contractions by tensor cores', () => {
  const each = layerGemm('o', HIDDEN, INTER, HEAD_DIM);
  const base = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
  const wgmma = { ...base, skeleton: 'wgmma', tn: 96, tk: 64, stages: 3 } as const;
  it.each<CudaGemmSchedule>([
    { ...base, skeleton: 'mma', tm: 32, tn: 64, tk: 32, stages: 3 },
    { ...base, skeleton: 'skinny', tm: 32, tn: 48, tk: 64, stages: 3 },
    { ...wgmma, tm: 128 },
    { ...wgmma, tm: 64, mode: 'pingpong' },
    { ...wgmma, tm: 128, mode: 'deferred' },
    { ...wgmma, tm: 64, mode: 'pingpong', cluster: 2 },
    { ...wgmma, tm: 128, mode: 'deferred', cluster: 2 },
  ])('have no race: $skeleton, $mode, clusters of $cluster', (schedule) => {
    expect(isLegalCuda(each.kernel, each.module, schedule, H100)).toBe(true);
    emulateLayerGemm(each, 150, schedule);
    expect(takeRaces()).toEqual([]);
  });

  const hopper = (mode: CudaGemmSchedule['mode'], cluster: 1 | 2): CudaGemmSchedule => ({
    ...{ ...wgmma, tk: 64, stages: 2, mode, cluster },
    tm: mode === 'pingpong' ? 64 : 128,
  });
  const LAST = 'release<config>(block, last, lane);';
  it.each<{ what: string; races: RegExp; schedule: CudaGemmSchedule; changes: readonly Change[] }>([
    {
      what: 'to wait for a stage',
      races: /a copy under way .* a read of/,
      schedule: hopper('cooperative', 1),
      changes: [['k_block++) {\n    block.full_barriers()[stage].wait(phase);', 'k_block++) {']],
    },
    {
      what: 'that other warps still read a stage',
      races: /a read of .* a copy of|a product under way .* a copy of/,
      schedule: hopper('cooperative', 1),
      changes: [
        ['init(consumer_warps * config.cluster)', 'init(1)'],
        ['if (lane == 0) block.empty_barriers()', 'if (thread_again() == 128) block.empty_barriers()'],
      ],
    },
    {
      what: 'that its products still read a stage',
      races: /a product under way .* a copy of/,
      schedule: hopper('pingpong', 1),
      changes: [['wgmma_wait<1>();\n    if (k_block > 0)', 'if (k_block > 0)']],
    },
    {
      what: 'that the neighbour still reads a stage',
      races: /a read of .* a copy of|a product under way .* a copy of/,
      schedule: hopper('cooperative', 2),
      changes: [
        ['init(consumer_warps * config.cluster)', 'init(consumer_warps)'],
        ['arrive_at(lane)', 'arrive()'],
        ['lane < config.cluster', 'lane == 0'],
      ],
    },
    {
      what: 'to wait for products',
      races: /a write of .* a read of/,
      schedule: hopper('deferred', 1),
      changes: [['block.handoff_full().wait(sequence & 1);', '']],
    },
    {
      what: 'that products are still taken',
      races: /a read of .* a write of|a write of .* a read of/,
      schedule: hopper('deferred', 1),
      changes: [['block.handoff_empty().wait((sequence & 1) ^ 1);\n      hand_over', 'hand_over']],
    },
  ])('by warpgroups are reported when they forget $what', ({ schedule, changes, races }) => {
    const found = racesOfBroken(changes, (mutate) =>
      // One multiprocessor, or a cluster of two: blocks have several tiles each.
      emulateLayerGemm(layerGemm('qkv', HIDDEN, INTER, HEAD_DIM), 150, schedule, {
        mutate,
        multiprocessors: schedule.cluster,
      }),
    );
    expect(found).toMatch(races);
  });
  it('by warpgroups release the last stage of a tile', () => {
    expect(() =>
      emulateLayerGemm(each, 150, hopper('cooperative', 1), { mutate: (source) => changed(source, [[LAST, '']]) }),
    ).toThrow(/wait for each other/);
    takeRaces();
  });
});

describe.skipIf(reason !== undefined)('products of experts, whose blocks take tiles', () => {
  const [schedule, multiprocessors] = [ofExperts('pingpong', 64, 64, 2), 2];
  const broken = (...changes: readonly Change[]): string =>
    racesOfBroken(changes, (mutate) => {
      const inProduct = (source: string): string => (source.includes('hopper_gemm') ? mutate(source) : `${source}\n`);
      emulateExperts(schedule, { multiprocessors, mutate: inProduct });
    });

  it('have no race', () => {
    for (const backwards of [false, true]) {
      emulateExperts(schedule, { multiprocessors, backwards });
      expect(takeRaces()).toEqual([]);
    }
  });

  it('are reported where they have room for one number', () => {
    expect(broken(['turns = tile_turns(stages);', 'turns = 1;'])).toMatch(
      /a write of .* a read of|a read of .* a write/,
    );
  });

  it('are reported when they forget to wait for a number', () => {
    expect(broken(['there(n).wait(n / turns & 1);', ''])).toMatch(/a write of .* a read of|a read of .* a write/);
  });
});
