/** The grid of schedules, and the cost model's estimates for it. */
import { describe, expect, it } from 'vitest';
import { defaultBuckets } from '../../../autotune/buckets.js';
import {
  enumerateSpace,
  isCandidate,
  neighbours,
  scheduleSpace,
  type Space,
} from '../../../autotune/cpu/candidates.js';
import { estimateSeconds, cpuMachine, cpuCost, cpuShareOfPeak, tileCycles } from '../../../autotune/cpu/costModel.js';
import { kernelWork } from '../../../autotune/work.js';
import { defaultSchedule, isLegal } from '../../../codegen/cpu/index.js';
import { cpuScheduling } from '../../../codegen/cpu/schedules.js';
import type { CpuGemmSchedule, CpuSchedule } from '../../../ir/plan.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { AMX_FACTS, AMX_MACHINE, FACTS, kernelAt, llamaModule, MACHINE } from '../fixture.js';

const SMALL = llamaModule();
/** A layer of a 768-wide model: large enough that tiles matter. */
const SHAPE_768 = {
  hiddenSize: 768,
  intermediateSize: 2048,
  layers: 2,
  heads: 12,
  kvHeads: 12,
  headDim: 64,
  vocabSize: 32000,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
  biased: [] as const,
};
const LARGE = llamaModule(SHAPE_768);
const LARGE_BF16 = llamaModule(SHAPE_768, 'bf16');
const BUCKET = scoringBucket({ tokens: 512, rows: 512, longest: 256 });
const SIZE = { extents: { T: 512, R: 512 }, longest: 256 };

const spaceOf = (module: typeof SMALL, end: string, facts = FACTS, bucket = BUCKET): Space => {
  const kernel = kernelAt(module, end);
  return scheduleSpace(kernel, module, defaultSchedule(kernel, module, facts, bucket), facts, bucket);
};

describe('candidates', () => {
  it.each([
    'prepare',
    'embed',
    '0.attention.qkv',
    '0.attention.mix',
    '0.attention.o',
    '0.ffn.gate_up',
    '0.ffn.down',
    'head',
    'head.reduce',
  ])('of %s are many, distinct, legal and in a fixed order', (end) => {
    for (const [module, facts] of [
      [SMALL, FACTS],
      [LARGE, FACTS],
      [LARGE_BF16, AMX_FACTS],
    ] as const) {
      const kernel = kernelAt(module, end);
      const schedules = enumerateSpace(spaceOf(module, end, facts));
      expect(schedules.length).toBeGreaterThan(3);
      expect(new Set(schedules.map(cpuScheduling.key)).size).toBe(schedules.length);
      expect(schedules.filter((schedule) => isLegal(kernel, module, schedule, facts) !== true)).toEqual([]);
      expect(enumerateSpace(spaceOf(module, end, facts))).toEqual(schedules);
    }
  });

  it("have the default schedule's instruction set in every bucket, because results must not depend on it", () => {
    for (const [module, facts] of [
      [SMALL, FACTS],
      [LARGE_BF16, AMX_FACTS],
    ] as const) {
      for (const kernel of module.kernels) {
        const isas = new Set<string>();
        for (const bucket of defaultBuckets(1024)) {
          const start = defaultSchedule(kernel, module, facts, bucket);
          for (const { isa } of [start, ...enumerateSpace(scheduleSpace(kernel, module, start, facts, bucket))])
            isas.add(isa);
        }
        expect([...isas]).toHaveLength(1);
      }
    }
  });

  it('have neighbours one step away in every direction, but not themselves', () => {
    const space = spaceOf(LARGE, '0.ffn.down');
    const from: CpuGemmSchedule = { kind: 'gemm', isa: 'avx512', mr: 8, nr: 32, kc: 256, mb: 128, nb: 256 };
    const near = neighbours(space, from).map((s) => s as CpuGemmSchedule);
    expect(near.map(cpuScheduling.key)).not.toContain(cpuScheduling.key(from));
    const changes = near.map((s) => (['kc', 'mb', 'nb'] as const).filter((key) => s[key] !== from[key]));
    expect(near.filter((_, i) => changes[i]!.join() === 'kc').map((s) => s.kc)).toEqual([192, 384]);
    expect(near.filter((s, i) => changes[i]!.join() === 'mb' && s.mr === 8).map((s) => s.mb)).toEqual([96, 192]);
    expect(near.filter((_, i) => changes[i]!.join() === 'nb').map((s) => s.nb)).toEqual([192, 384]);
    expect(new Set(near.map(({ mr, nr }) => `${mr}×${nr}`)).size).toBeGreaterThan(5);
  });

  it('have neighbours even if a schedule lies off the grid or on its edge', () => {
    const space = spaceOf(SMALL, '0.attention.mix');
    for (const schedule of [
      { kind: 'attention', isa: 'avx512', queries: 80, keys: 8 },
      { kind: 'attention', isa: 'avx512', queries: 9999, keys: 9999 },
    ] as CpuSchedule[]) {
      const near = neighbours(space, schedule);
      expect(near.length).toBeGreaterThan(0);
      for (const s of near) expect(space.isLegal(s)).toBe(true);
    }
  });

  it('are all reachable from one another by steps', () => {
    const space = spaceOf(SMALL, '0.ffn.down');
    const all = enumerateSpace(space).map(cpuScheduling.key);
    const seen = new Map<string, CpuSchedule>();
    const queue = [enumerateSpace(space)[0]!];
    for (let s = queue.pop(); s !== undefined; s = queue.pop()) {
      if (seen.has(cpuScheduling.key(s))) continue;
      seen.set(cpuScheduling.key(s), s);
      queue.push(...neighbours(space, s));
    }
    expect([...seen.keys()].sort()).toEqual([...all].sort());
  });
});

describe('isCandidate', () => {
  const kernel = kernelAt(LARGE, '0.ffn.down');
  const fine: CpuGemmSchedule = { kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 384, mb: 252, nb: 256 };
  it('passes on the refusals of code generation', () => {
    expect(isCandidate(kernel, LARGE, fine, FACTS)).toBe(true);
    expect(isCandidate(kernel, LARGE, { ...fine, nr: 24 }, FACTS)).toBe(
      isLegal(kernel, LARGE, { ...fine, nr: 24 }, FACTS),
    );
    expect(isCandidate(kernel, LARGE, { ...fine, nr: 24 }, FACTS)).not.toBe(true);
    expect(isCandidate(kernel, LARGE, fine, { ...FACTS, isas: ['avx2'] })).toMatch(/no avx512/);
  });
  it('leaves out what exceeds the given caches', () => {
    expect(isCandidate(kernel, LARGE, { ...fine, kc: 2048, nb: 512 }, FACTS)).toMatch(/block of weights/);
    expect(isCandidate(kernel, LARGE, { ...fine, kc: 2048, nb: 512 }, { ...FACTS, l2: 4 << 20 })).toBe(true);
    expect(isCandidate(kernel, LARGE, { ...fine, mb: 2044, nb: 768, kc: 128 }, FACTS)).toMatch(/tile of a work item/);
  });
});

describe('the cost model', () => {
  const gateUp = kernelAt(LARGE, '0.ffn.gate_up');
  const base: CpuGemmSchedule = { kind: 'gemm', isa: 'avx512', mr: 14, nr: 32, kc: 384, mb: 252, nb: 256 };
  const seconds = (s: CpuSchedule, size = SIZE, machine = MACHINE): number =>
    estimateSeconds(gateUp, LARGE, s, size, machine);

  it('never exceeds the peak of the machine', () => {
    for (const module of [LARGE, LARGE_BF16]) {
      const [facts, machine] = module === LARGE ? ([FACTS, MACHINE] as const) : ([AMX_FACTS, AMX_MACHINE] as const);
      for (const kernel of module.kernels) {
        const work = kernelWork(kernel, module, SIZE);
        const start = defaultSchedule(kernel, module, facts, BUCKET);
        const cost = cpuCost(kernel, module, SIZE, machine);
        const bound = Math.max(work.flops / machine.flopsPerSecond, work.bytes / machine.bytesPerSecond);
        const schedules = enumerateSpace(scheduleSpace(kernel, module, start, facts, BUCKET));
        expect(schedules.filter((schedule) => !(cost(schedule) > bound))).toEqual([]);
        expect(schedules.filter((schedule) => !(cpuShareOfPeak(work, machine, cost(schedule)) < 1))).toEqual([]);
      }
    }
  });

  it('puts a good contraction between half and all of the peak', () => {
    expect(cpuShareOfPeak(kernelWork(gateUp, LARGE, SIZE), MACHINE, seconds(base))).toBeGreaterThan(0.5);
    const amx: CpuGemmSchedule = { kind: 'gemm', isa: 'amx', mr: 32, nr: 32, kc: 768, mb: 256, nb: 256 };
    const kernel = kernelAt(LARGE_BF16, '0.ffn.gate_up');
    expect(
      cpuShareOfPeak(
        kernelWork(kernel, LARGE_BF16, SIZE),
        AMX_MACHINE,
        estimateSeconds(kernel, LARGE_BF16, amx, SIZE, AMX_MACHINE),
      ),
    ).toBeGreaterThan(0.3);
  });

  it('grows with tokens and with the depth and width of the matrices', () => {
    for (const kernel of LARGE.kernels) {
      const schedule = defaultSchedule(kernel, LARGE, FACTS, BUCKET);
      let last = 0;
      for (const T of [64, 128, 256, 512, 1024, 2048]) {
        const now = estimateSeconds(kernel, LARGE, schedule, { extents: { T, R: T }, longest: 64 }, MACHINE);
        expect(now).toBeGreaterThanOrEqual(last);
        last = now;
      }
    }
    const cost = (end: string): number =>
      estimateSeconds(kernelAt(LARGE, end), LARGE, { ...base, nb: 256 }, SIZE, MACHINE);
    expect(cost('0.ffn.gate_up')).toBeGreaterThan(cost('0.ffn.down'));
    expect(cost('0.ffn.down')).toBeGreaterThan(cost('0.attention.o'));
  });

  it('never gets slower on a faster machine', () => {
    const faster = {
      ...MACHINE,
      cyclesPerSecond: 2 * MACHINE.cyclesPerSecond,
      flopsPerSecond: 2 * MACHINE.flopsPerSecond,
    };
    expect(seconds(base, SIZE, faster)).toBeLessThan(seconds(base));
    expect(seconds(base, SIZE, { ...MACHINE, bytesPerSecond: 2 * MACHINE.bytesPerSecond })).toBeLessThan(seconds(base));
    expect(seconds(base, SIZE, { ...MACHINE, l2: 2 * MACHINE.l2 })).toBeLessThanOrEqual(seconds(base));
    expect(seconds(base, SIZE, { ...MACHINE, threads: 4 })).toBeLessThan(seconds(base));
  });

  it('ranks clearly bad schedules behind clearly good ones', () => {
    const good = seconds(base);
    // Four dependency chains of four cycles cannot fill two units.
    expect(seconds({ ...base, mr: 1, nr: 64 })).toBeGreaterThan(1.3 * good);
    expect(seconds({ ...base, nb: 1024, kc: 768 })).toBeGreaterThan(good); // 3 MB of weights in a 1 MB cache
    expect(seconds({ ...base, mb: 14 })).toBeGreaterThan(good); // weights are read again for every 14 rows
    expect(seconds({ ...base, kc: 32 })).toBeGreaterThan(good); // accumulators are stored and reloaded 24 times
  });

  it('counts idle threads', () => {
    const o = kernelAt(LARGE, '0.attention.o');
    const cost = (nb: number, threads: number): number =>
      estimateSeconds(o, LARGE, { ...base, mb: 518, nb }, SIZE, { ...MACHINE, threads, bytesPerSecond: 1e12 });
    // With 768 columns, one item keeps one thread busy, and three items need two rounds on two threads.
    expect(cost(768, 2)).toBeCloseTo(cost(768, 1), 6);
    expect(cost(384, 2)).toBeLessThan(0.6 * cost(384, 1));
    expect(cost(256, 2) / cost(256, 1)).toBeCloseTo(2 / 3, 1);
  });

  it('charges small row counts for the unused part of a register tile', () => {
    const amx: CpuGemmSchedule = { kind: 'gemm', isa: 'amx', mr: 32, nr: 32, kc: 768, mb: 32, nb: 256 };
    const kernel = kernelAt(LARGE_BF16, '0.ffn.gate_up');
    const at = (T: number): number =>
      estimateSeconds(
        kernel,
        LARGE_BF16,
        amx,
        { extents: { T, R: T }, longest: T },
        { ...AMX_MACHINE, bytesPerSecond: 1e13 },
      );
    expect(at(17)).toBeCloseTo(at(32), 4);
    expect(at(33)).toBeGreaterThan(1.2 * at(32));
  });

  it("knows what bounds a register tile: products, loads, or one accumulator's dependency chain", () => {
    expect(tileCycles('avx512', 14, 32)).toBe(14);
    expect(tileCycles('avx512', 28, 16)).toBe(14.5);
    expect(tileCycles('avx512', 1, 64)).toBe(4);
    expect(tileCycles('avx2', 6, 16)).toBe(6);
    expect(tileCycles('amx', 32, 32)).toBe(2);
    expect(tileCycles('amx', 16, 32)).toBe(52 / 32);
  });

  it('derives the clock from the peak rate', () => {
    expect(
      cpuMachine(FACTS, { isa: 'avx512', threads: 2, flopsPerSecond: 2 * 64 * 3e9, bytesPerSecond: 1 }).cyclesPerSecond,
    ).toBe(3e9);
    expect(
      cpuMachine(FACTS, { isa: 'amx', threads: 1, flopsPerSecond: 1024 * 2e9, bytesPerSecond: 1 }).cyclesPerSecond,
    ).toBe(2e9);
  });

  it('makes attention over more keys dearer, and refuses schedules of another kind', () => {
    const mix = kernelAt(LARGE, '0.attention.mix');
    const schedule: CpuSchedule = { kind: 'attention', isa: 'avx512', queries: 32, keys: 256 };
    const at = (longest: number): number => estimateSeconds(mix, LARGE, schedule, { ...SIZE, longest }, MACHINE);
    expect(at(400)).toBeGreaterThan(1.2 * at(100));
    expect(() => estimateSeconds(mix, LARGE, base, SIZE, MACHINE)).toThrow(/attention.*gemm/);
    expect(() => estimateSeconds(gateUp, LARGE, schedule, SIZE, MACHINE)).toThrow(/gemm.*attention/);
  });
});
