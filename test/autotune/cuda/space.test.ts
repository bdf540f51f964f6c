/** The schedules that the tuner tries for a kernel on a GPU, and the estimates that rank them. */
import { describe, expect, it } from 'vitest';
import { CudaSpace, referenceSchedule, mayReplace } from '../../../autotune/cuda/candidates.js';
import { cudaCost } from '../../../autotune/cuda/costModel.js';
import { contractionOf } from '../../../autotune/cuda/vendorBaseline.js';
import { defaultCudaSchedule, isLegalCuda } from '../../../codegen/cuda/index.js';
import { cudaScheduling } from '../../../codegen/cuda/encoding.js';
import { cudaNumerics } from '../../../driver/targets/cudaDevice.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import type { Bucket } from '../../../ir/plan.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { normedQkv } from '../../codegen/cuda/normedHeads.js';
import { kernelAt } from '../fixture.js';
import { cudaModule, FACTS, MACHINE, WIDE } from './fixture.js';

const wide = cudaModule(WIDE);
const LARGE = scoringBucket({ tokens: 3840, rows: 3840, longest: 256 });

describe('the space of a kernel', () => {
  it("holds only legal schedules of the default's skeleton, each once, and steps within itself", () => {
    for (const path of ['layers.0.attention.qkv', 'layers.0.ffn.down', 'layers.0.attention.mix', 'prepare', 'head']) {
      const kernel = kernelAt(wide, path);
      const start = defaultCudaSchedule(kernel, wide, FACTS, LARGE);
      const space = new CudaSpace(kernel, wide, FACTS);
      const all = space.enumerate(start);
      expect(all.length).toBeGreaterThan(0);
      expect(new Set(all.map(cudaScheduling.key)).size).toBe(all.length);
      for (const schedule of [...all.slice(0, 40), ...space.neighbours(start)]) {
        expect(isLegalCuda(kernel, wide, schedule, FACTS)).toBe(true);
        expect('skeleton' in schedule ? schedule.skeleton : 'loop').toBe('skeleton' in start ? start.skeleton : 'loop');
      }
      expect(space.neighbours(start).map(cudaScheduling.key)).not.toContain(cudaScheduling.key(start));
      const reference = referenceSchedule(kernel, wide, FACTS, start);
      expect(isLegalCuda(kernel, wide, reference, FACTS)).toBe(true);
      expect('skeleton' in reference ? reference.skeleton : 'loop').toBe('skeleton' in start ? 'simt' : 'loop');
    }
  });
});

describe('heads that are normed behind their product', () => {
  it('are tried whole and in more parts', () => {
    const { kernel, module } = normedQkv({ hidden: 4096, headDim: 128, heads: 32, kvHeads: 8 });
    const start = defaultCudaSchedule(kernel, module, FACTS, scoringBucket({ tokens: 1, rows: 1, longest: 256 }));
    expect(start).toMatchObject({ tn: 64, parts: 2 });
    const found = new CudaSpace(kernel, module, FACTS).neighbours(start) as readonly CudaGemmSchedule[];
    const shares = found.map(({ tn, parts }) => `${tn} × ${parts ?? 1}`);
    expect(shares).toEqual(expect.arrayContaining(['128 × 1', '32 × 4']));
    const gateUp = kernelAt(wide, 'layers.0.ffn.gate_up');
    const plain = defaultCudaSchedule(gateUp, wide, FACTS, scoringBucket({ tokens: 1, rows: 1, longest: 256 }));
    for (const each of new CudaSpace(gateUp, wide, FACTS).neighbours(plain)) expect(each).not.toHaveProperty('parts');
  });
});

describe('products of E4M3', () => {
  const narrow = cudaModule(WIDE, cudaNumerics('fp8'));
  const bucketOf = (rows: number): Bucket => scoringBucket({ tokens: rows, rows, longest: 256 });
  /** In which o finishes its rows, too. */
  const finishing = cudaModule(WIDE, { ...cudaNumerics('fp8'), finishing: 'all' });
  const defaultOf = (path: string, rows: number, module = narrow): CudaGemmSchedule =>
    defaultCudaSchedule(kernelAt(module, path), module, FACTS, bucketOf(rows)) as CudaGemmSchedule;
  const deferred = { skeleton: 'wgmma', mode: 'deferred', tm: 128, tn: 256, tk: 128, stages: 3 };

  it('start with deferred tiles, and with two warpgroups for epilogues where rows are finished', () => {
    const three = { ...deferred, cluster: 2, raster: 22 };
    for (const [path, rows] of [
      ['layers.0.attention.qkv', 8448],
      ['layers.0.ffn.gate_up', 3840],
    ] as const) {
      expect(defaultOf(path, rows)).toMatchObject(three);
      expect(defaultOf(path, rows).epilogueGroups).toBeUndefined();
    }
    // What adds to the stream waits for no neighbour.
    expect(defaultOf('layers.0.attention.o', 8448)).toMatchObject({ ...three, cluster: 1, raster: 11 });
    expect(defaultOf('layers.0.ffn.down', 8448)).toMatchObject({ ...three, cluster: 1, raster: 11 });
    expect(defaultOf('layers.0.ffn.down', 8448).epilogueGroups).toBeUndefined();
    // Groups of 11 of 45 row tiles would leave one.
    expect(defaultOf('layers.0.ffn.down', 5760)).toMatchObject({ ...three, cluster: 1, raster: 9 });
    expect(defaultOf('layers.0.attention.o', 8448, finishing)).toMatchObject({ ...three, epilogueGroups: 1 });
    expect(defaultOf('layers.0.attention.qkv', 512).mode).toBe('pingpong');
  });

  it('are estimated as they were measured: three warps are late where rows are finished', () => {
    const order = (path: string): number[] => {
      const cost = cudaCost(kernelAt(finishing, path), finishing, bucketOf(8448), MACHINE);
      const three = { ...defaultOf('layers.0.attention.qkv', 8448) };
      return [
        three,
        { ...three, epilogueGroups: 1 } as const,
        { ...three, mode: 'cooperative', stages: 4 } as const,
      ].map(cost);
    };
    const [three, , together] = order('layers.0.attention.qkv');
    expect(three).toBeLessThan(together!);
    const [late, four, shown] = order('layers.0.attention.o');
    expect(four).toBeLessThan(shown!);
    expect(four).toBeLessThan(late!);
  });

  it('are enumerated with stages of their own, and reach warpgroups for epilogues in one step', () => {
    const kernel = kernelAt(narrow, 'layers.0.attention.o');
    const space = new CudaSpace(kernel, narrow, FACTS);
    const start = defaultOf('layers.0.attention.qkv', 8448);
    expect(space.enumerate(start).length).toBeGreaterThan(20);
    expect(space.neighbours(start)).toContainEqual({ ...start, epilogueGroups: 1 });
    expect(space.neighbours({ ...start, epilogueGroups: 1 })).toContainEqual(start);
  });
});

describe('estimates', () => {
  const gemm = (tn: number): CudaSchedule => ({
    kind: 'gemm',
    skeleton: 'wgmma',
    tm: 128,
    tn,
    tk: 64,
    stages: 4,
    cluster: 2,
    raster: 16,
    mode: 'pingpong',
  });

  it('count whole waves: at 1,920 tokens, narrower column tiles fill the last wave of the output projection', () => {
    const cost = cudaCost(
      kernelAt(wide, 'layers.0.attention.o'),
      wide,
      { extents: { T: 1920, R: 1920 }, longest: 256 },
      MACHINE,
    );
    // 15 row tiles (16 in clusters) × 26 column tiles of 256 make 4 waves of 132 blocks; × 35 of 192 make 5 waves, each
    // three quarters as long.
    expect(cost(gemm(192))).toBeLessThan(cost(gemm(256)));
  });

  it('never exceed the peak of the device, and grow with the micro-batch', () => {
    for (const kernel of wide.kernels.slice(0, 8)) {
      let before = 0;
      for (const T of [128, 1024, 4096]) {
        const schedule = defaultCudaSchedule(kernel, wide, FACTS, scoringBucket({ tokens: T, rows: T, longest: 256 }));
        const seconds = cudaCost(kernel, wide, { extents: { T, R: T }, longest: 256 }, MACHINE)(schedule);
        expect(seconds).toBeGreaterThan(before);
        before = seconds;
        if (kernel.anchor === 'gemm') {
          const { m, n, k } = contractionOf(kernel, wide, scoringBucket({ tokens: T, rows: T, longest: 256 }))!;
          expect((2 * m * n * k) / seconds).toBeLessThan(MACHINE.flopsPerSecond);
        }
      }
    }
  });
});

it('keep what reads a text once for its drafts, where the default does: calls that are measured have none', () => {
  const single = { kind: 'attention', skeleton: 'mma', queries: 1, keys: 32 } as const;
  const [runs, wider] = [
    { ...single, queries: 4, cluster: 4 } as const,
    { ...single, queries: 8, cluster: 8, teams: 2 } as const,
  ];
  expect(mayReplace(runs, wider)).toBe(true);
  expect(mayReplace(runs, { ...single, cluster: 8 })).toBe(false);
  expect(mayReplace(single, runs)).toBe(true);
  expect(mayReplace({ kind: 'loop', threads: 64 }, { kind: 'loop', threads: 128 })).toBe(true);
});
