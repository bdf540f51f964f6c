/**
 * Rows of adapters beside weights of 4 bits in groups, over fibres: against float64; rows without adapter have the bits
 * of a kernel without adapters, all rows those that they have in other company and in other tiles.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { GROUP_SIZES, type GroupSize } from '../../../ir/groups.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { expectSame } from '../../support/numbers.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { casesHere, isThorough, thorough } from '../../support/thorough.js';
import { type AdapterCase, emulateEach, interpretAdapters, outputsOf, withAdapters } from './adapterCases.js';
import { emulateAdapted, interpretAdapted, withAdapters as withSecond } from './adapters.js';
import { inGroups, layerGemm, type LayerGemm } from './wgmmaKernels.js';

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no grouped kernel with adapters was compiled for a GPU.');

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const grouped = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...{ kind: 'gemm', skeleton: 'grouped', cluster: 1, raster: 1, mode: 'cooperative' },
  ...{ tm, tn, tk, stages },
});

type Sizes = readonly [hidden: number, inter: number, headDim: number];
const SMALL: Sizes = [384, 128, 32];
/** Quarters of k of 3, 3, 3 and 2 chunks; columns end within a tile. */
const LONG: Sizes = [160, 1408, 32];

const SLOTS = 14;
const MIXED = [0, -1, 4, 4, 0, 1, -1, 5, 6, 3, 8, 9, 10, -1, 11, 12, 13, 2, 1, 7, 3];
/** Rows in other company. */
const CHOSEN = [12, 1, 17];

interface Case {
  readonly which: LayerGemm;
  readonly rank: number;
  readonly group: GroupSize;
  readonly half: 'bf16' | 'f16';
  readonly sizes: Sizes;
  /** The first also runs without adapters, the last also the rows apart. */
  readonly schedules: readonly CudaGemmSchedule[];
  readonly slots?: readonly number[];
}

const caseOf = ({ which, rank, group, half, sizes }: Case): AdapterCase =>
  withAdapters(inGroups(layerGemm(which, ...sizes, half), group), { slots: SLOTS, rank });

function check(each: Case): void {
  const own = caseOf(each);
  const { schedules, slots = MIXED } = each;
  for (const gemm of schedules) expect(isLegalCuda(own.kernel, own.module, gemm, H100)).toBe(true);
  const all = { slots };
  const plain: CudaGemmSchedule = { ...schedules[0]!, adapters: 'none' };
  const ran = emulateEach(own, all, [
    ...schedules.map((gemm, i) => ({ gemm, backwards: i === 1 })),
    { gemm: plain },
  ]).map((values) => outputsOf(own, values, slots.length));
  const [got, base] = [ran[0]!, ran.at(-1)!];
  for (const others of ran.slice(1, -1))
    for (const [name, rows] of others)
      rows.forEach((row, i) => expectSame(row, got.get(name)![i], `${name} of row ${i} in another tile`));

  const expected = outputsOf(own, interpretAdapters(own, all), slots.length);
  let changed = 0;
  for (const [name, rows] of got) {
    const wanted = expected.get(name)!;
    const most = wanted.reduce((a, row) => row.reduce((x, y) => Math.max(x, Math.abs(y)), a), 0);
    rows.forEach((row, i) => {
      const without = base.get(name)![i]!;
      if (slots[i]! < 0) expectSame(row, without, `${name} of base row ${i}`);
      else if (row.some((x, at) => x !== without[at])) changed++;
      if (name === 'nextTail') return;
      const furthest = row.reduce((a, x, at) => Math.max(a, Math.abs(x - wanted[i]![at]!)), 0);
      expect({ name, i, furthest }).toEqual({ name, i, furthest: Math.min(furthest, most / 64) });
    });
  }
  expect(changed > 0).toBe(slots.some((slot) => slot >= 0));

  const few = { slots: CHOSEN.map((row) => slots[row]!), rows: CHOSEN };
  const [apart] = emulateEach(own, few, [{ gemm: schedules.at(-1)! }]);
  for (const [name, rows] of outputsOf(own, apart!, CHOSEN.length))
    rows.forEach((row, i) => expectSame(row, got.get(name)![CHOSEN[i]!], `${name} of row ${CHOSEN[i]}, apart`));
}

const CASES: readonly Case[] = [
  {
    ...{ which: 'gateUp', rank: 16, group: 32, half: 'bf16', sizes: SMALL },
    schedules: [grouped(8, 64, 256, 2), grouped(32, 48, 128, 3)],
  },
  {
    ...{ which: 'qkv', rank: 32, group: 64, half: 'f16', sizes: SMALL },
    schedules: [grouped(16, 32, 512, 2), grouped(32, 96, 256, 3)],
  },
  {
    ...{ which: 'o', rank: 64, group: 128, half: 'bf16', sizes: SMALL },
    schedules: [grouped(64, 48, 512, 2), grouped(8, 96, 128, 3)],
  },
  {
    // Second factors of a tile are more than its rings hold at once.
    ...{ which: 'down', rank: 48, group: 32, half: 'f16', sizes: LONG },
    schedules: [grouped(8, 32, 128, 2), grouped(64, 64, 128, 2), grouped(16, 16, 256, 3)],
  },
  {
    // Columns of two matrices take turns, and a rank is several pieces.
    ...{ which: 'gateUp', rank: 128, group: 128, half: 'f16', sizes: SMALL },
    schedules: [grouped(8, 240, 128, 2), grouped(16, 32, 512, 4)],
  },
  {
    ...{ which: 'down', rank: 16, group: 64, half: 'bf16', sizes: LONG },
    schedules: [grouped(8, 32, 512, 2), grouped(32, 128, 256, 2)],
    slots: MIXED.map(() => -1),
  },
];

const FULL: Sizes = [4096, 14_336, 128];

describe('rows of adapters beside weights in groups', () => {
  const titled = (each: Case, i: number) => ({ what: `${i}: ${each.which} of rank ${each.rank}`, each });
  it.each(casesHere(CASES.map(titled), 0))('have the bits of every tile and any company: $what', ({ each }) => {
    check(each);
  });

  thorough('of shapes, ranks and tiles that are drawn', () => {
    let state = 20_261_201;
    const pick = <T>(list: readonly T[]): T => {
      state = (state * 48_271) % 2_147_483_647;
      return list[state % list.length]!;
    };
    for (let drawn = 0; drawn < 12; drawn++) {
      const which = pick(['qkv', 'o', 'gateUp', 'down'] as const);
      const each = {
        which,
        rank: pick([16, 32, 48, 64, 80, 128]),
        group: pick(GROUP_SIZES),
        half: pick(['bf16', 'f16'] as const),
        sizes: which === 'down' ? pick([SMALL, LONG]) : SMALL,
      };
      const own = caseOf({ ...each, schedules: [] });
      const schedules: CudaGemmSchedule[] = [];
      while (schedules.length < 2) {
        const gemm = grouped(
          pick([8, 16, 32, 64]),
          16 * pick([1, 2, 3, 4, 6, 8, 10, 12, 16]),
          pick([128, 256, 512]),
          pick([2, 3, 4, 5]),
        );
        if (isLegalCuda(own.kernel, own.module, gemm, H100) === true) schedules.push(gemm);
      }
      check({ ...each, schedules, slots: MIXED.map(() => pick([-1, -1, ...MIXED])) });
    }
  });

  thorough('add nothing to columns without adapters, and read nothing of rows without', () => {
    const slotOf = [2, -1, 0, 0, -1, 1, 2, 2, -1, 1];
    const plain = inGroups(layerGemm('qkv', ...SMALL), 64);
    const own = withSecond(plain, { slots: 3, rank: 32 }, (segment) => segment === 1);
    const schedule = grouped(8, 32, 256, 3);
    const [got, base] = [own, plain].map((each) => emulateAdapted(each, slotOf, schedule));
    for (const name of ['q', 'v']) expectSame(got!.get(name), base!.get(name), name);
    const [k, wanted] = [got!.get('k')!, interpretAdapted(own, slotOf).get('k')!];
    const most = wanted.reduce((a, x) => Math.max(a, Math.abs(x)), 0);
    k.forEach((x, i) => expect(Math.abs(x - wanted[i]!)).toBeLessThanOrEqual(most / 64));
    expect(k).not.toEqual(base!.get('k'));
  });

  it('leave the schedule of calls without adapters as it is', () => {
    const bucket = { ...scoringBucket({ tokens: 8, rows: 8, longest: 8 }), withoutAdapters: true as const };
    const plain = inGroups(layerGemm('gateUp', ...FULL), 128);
    const own = withAdapters(plain, { slots: 4, rank: 64 });
    const schedule = defaultCudaSchedule(plain.kernel, plain.module, H100, bucket);
    expect(schedule).toMatchObject({ skeleton: 'grouped' });
    expect(defaultCudaSchedule(own.kernel, own.module, H100, bucket)).toEqual(schedule);
    const without = { ...schedule, adapters: 'none' } as CudaGemmSchedule;
    const [text, alone] = [
      emitCudaKernel(own.kernel, own.module, without, { T: 64, R: 64 }),
      emitCudaKernel(plain.kernel, plain.module, schedule, { T: 64, R: 64 }),
    ];
    expect(text.launch).toEqual(alone.launch);
    expect(text.source).not.toMatch(/Adapted|\.adapter =/);
    const inside = { ...schedule, adapters: 'shrinks' } as CudaGemmSchedule;
    expect(isLegalCuda(own.kernel, own.module, inside, H100)).toBe('grouped cannot shrink its rows');
  });

  it.runIf(isThorough && hasNvcc)('keep their sums in registers', () => {
    const kernels = (['qkv', 'gateUp', 'down'] as const).flatMap((which) =>
      [1, 16, 64, 256].flatMap((rows) => {
        const plain = inGroups(layerGemm(which, ...FULL), 128);
        const own = withAdapters(plain, { slots: 64, rank: 16 });
        const bucket = scoringBucket({ tokens: rows, rows, longest: rows });
        return [plain, own].map(({ kernel, module }) => {
          const schedule = defaultCudaSchedule(kernel, module, H100, bucket);
          expect(schedule).toMatchObject({ skeleton: 'grouped' });
          return emitCudaKernel(kernel, module, schedule, { T: 8192, R: 8192 });
        });
      }),
    );
    const reports = compileByNvcc(kernels, 'sm_90a');
    reports.forEach(({ spillStores }, i) => {
      // At most a few words more than without adapters.
      if (i % 2 === 1) expect(spillStores).toBeLessThanOrEqual(reports[i - 1]!.spillStores + 16);
    });
  });
});
