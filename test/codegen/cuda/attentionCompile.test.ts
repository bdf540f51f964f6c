/**
 * Generated attention as text: goldens, legality, defaults, and what NVIDIA's compiler makes of it (which needs no
 * GPU).
 */
import { describe, expect, it } from 'vitest';
import {
  type AttentionLimits,
  attentionSchedules,
  defaultAttentionSchedule,
  isLegalAttention,
} from '../../../codegen/cuda/attention/schedules.js';
import type { ClusterSize, CudaAttentionSchedule } from '../../../ir/cuda.js';
import { hasNvcc } from '../../support/nvcc.js';
import { attentionModule, generate, type Shape } from './attentionHarness.js';
import { COMPILED_FIRST, HOPPER, LEAST, legal, schedule, SHAPE, testRegisters } from './attentionRegisters.js';
import { blocksOf } from './emulate.js';
import { expectGolden } from './golden.js';

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no attention kernel was compiled for a GPU.');

describe('the text of attention', () => {
  it.each([
    ['attentionMma', { heads: 4, kvHeads: 2, headDim: 64, dtype: 'bf16' }, schedule('mma', 64)],
    [
      'attentionMmaLong',
      { heads: 2, kvHeads: 2, headDim: 192, dtype: 'f16', out: 'f32', hasQueryRow: true },
      schedule('mma', 32),
    ],
    [
      'attentionPathMma',
      { heads: 8, kvHeads: 2, headDim: 128, dtype: 'bf16', mask: 'path', hasQueryRow: true },
      schedule('mma', 16),
    ],
    [
      'attentionPathShared',
      { heads: 4, kvHeads: 2, headDim: 96, dtype: 'bf16', mask: 'path' },
      { ...schedule('mma', 32), sharesTiles: true },
    ],
    [
      'attentionPathWgmma',
      { heads: 8, kvHeads: 2, headDim: 128, dtype: 'bf16', mask: 'path', hasQueryRow: true },
      schedule('wgmma', 32),
    ],
    [
      'attentionPathDecode',
      { heads: 4, kvHeads: 1, headDim: 64, dtype: 'f16', out: 'f32', mask: 'path' },
      schedule('mma', 1),
    ],
    [
      'attentionPathClusters',
      { heads: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', mask: 'path', hasQueryRow: true },
      { ...schedule('mma', 1), cluster: 4, teams: 2 },
    ],
    [
      'attentionPathRuns',
      { heads: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', mask: 'path', hasQueryRow: true },
      { ...schedule('mma', 4), cluster: 4 },
    ],
    [
      'attentionPathLone',
      { heads: 4, kvHeads: 1, headDim: 64, dtype: 'bf16', mask: 'path' },
      { ...schedule('mma', 1), lone: 8 },
    ],
    [
      'attentionPathStems',
      { heads: 8, kvHeads: 2, headDim: 128, dtype: 'bf16', mask: 'path', hasQueryRow: true },
      { ...schedule('mma', 4), lone: 5 },
    ],
    ['attentionPathSimt', { heads: 2, kvHeads: 1, headDim: 40, dtype: 'f32', mask: 'path' }, schedule('simt', 16)],
    ['attentionBias', { heads: 2, kvHeads: 1, headDim: 40, dtype: 'f32', mask: 'bias' }, schedule('simt', 16)],
  ] as const)('is golden %s', async (file, s, plan) => {
    expect(legal(s, plan)).toBe(true);
    const { source } = generate(s, plan, 1024);
    await expectGolden(/^#include/m.test(source) ? source : source.slice(source.indexOf('#endif\n\n') + 8), file);
  });

  it('is launched with one block for each tile of queries and each head', () => {
    expect(generate(SHAPE, schedule('mma', 64), 7680).launch).toEqual({
      threads: 128,
      sharedBytes: (64 + 4 * 32) * 136 * 2,
      cluster: 1,
      gridX: { kind: 'constant', count: 52 },
      gridY: { kind: 'tiles', extent: 'T', per: 64, times: 1 },
    });
    expect(generate({ ...SHAPE, hasQueryRow: true }, schedule('simt', 8), 64).launch.gridY).toEqual({
      kind: 'tiles',
      extent: 'R',
      per: 8,
      times: 1,
    });
  });

  it('is launched with one block for each tile of queries and each head of keys, over paths', () => {
    const s: Shape = { heads: 28, kvHeads: 4, headDim: 128, dtype: 'bf16', mask: 'path' };
    expect(generate(s, schedule('mma', 4), 7680).launch).toEqual({
      threads: 64,
      sharedBytes: (32 + 6 * 32) * 136 * 2 + 32 * 136 * 4,
      cluster: 1,
      gridX: { kind: 'tiles', extent: 'T', per: 4, times: 4 },
      gridY: { kind: 'constant', count: 1 },
    });
    expect(generate(s, { ...schedule('mma', 1), cluster: 8 }, 7680).launch).toMatchObject({
      threads: 128,
      cluster: 8,
      gridX: { kind: 'tiles', extent: 'T', per: 1, times: 32 },
      gridY: { kind: 'constant', count: 1 },
    });
  });

  it('has a legal grid for the largest call, in every schedule', () => {
    for (const mask of ['column', 'path'] as const) {
      const { module, kernel } = attentionModule({ ...SHAPE, kvHeads: 13, mask });
      for (const plan of attentionSchedules(kernel, module, HOPPER)) {
        const { gridX, gridY, cluster } = generate({ ...SHAPE, kvHeads: 13, mask }, plan, 65_536).launch;
        const [x, y] = [gridX, gridY].map((extent) => blocksOf(extent, { T: 65_536 }, 132));
        expect(x! % cluster).toBe(0);
        expect(x).toBeLessThan(2 ** 31);
        expect(y).toBeLessThan(65_536);
      }
    }
  });

  it('has room for every batch it may meet, or is not generated', () => {
    expect(() => generate(SHAPE, schedule('mma', 64), 65_537)).toThrow(
      /attend over 65537 tokens in a batch, 65536 at most: compile with/,
    );
    expect(() => generate(SHAPE, schedule('mma', 64), 65_536)).not.toThrow();
    expect(() => generate(SHAPE, schedule('simt', 16), 65_537)).not.toThrow();
  });
});

describe('schedules of attention', () => {
  it('use tensor cores where they can', () => {
    const choose = (s: Shape): CudaAttentionSchedule => {
      const { module, kernel } = attentionModule(s);
      return defaultAttentionSchedule(kernel, module, LEAST);
    };
    for (const headDim of [16, 32, 48, 64, 80, 96, 128])
      expect(choose({ ...SHAPE, headDim }), `${headDim}`).toEqual(schedule('mma', 64));
    expect(choose({ ...SHAPE, headDim: 256 })).toEqual(schedule('mma', 16));
    expect(choose({ ...SHAPE, headDim: 40 })).toEqual(schedule('simt', 16));
    expect(choose({ ...SHAPE, dtype: 'f32' })).toEqual(schedule('simt', 16));
    expect(choose({ ...SHAPE, mask: 'bias' })).toEqual(schedule('simt', 16));
    expect(() => choose({ ...SHAPE, headDim: 600 })).toThrow(
      /attend \(layers.0.attention\) has no legal attention schedule: simt wants heads of at most 512, not 600/,
    );
  });

  it('take a query a block where a call over paths has few', () => {
    const s: Shape = { heads: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', mask: 'path' };
    const choose = (
      shape: Shape,
      rows: number,
      run?: number,
      limits: AttentionLimits = HOPPER,
    ): CudaAttentionSchedule => {
      const { module, kernel } = attentionModule(shape);
      return defaultAttentionSchedule(kernel, module, limits, { rows, multiprocessors: 132, run });
    };
    const runs = (queries: number, cluster: ClusterSize, teams?: number): CudaAttentionSchedule => ({
      ...schedule('mma', queries),
      cluster,
      ...(teams === undefined ? {} : { teams }),
    });
    const old = { ...HOPPER, arch: 'sm_80' } as const;
    // Where more blocks than four are there for each multiprocessor, and at most eight, each is a lone warp.
    expect(choose({ ...s, kvHeads: 16 }, 40, 1)).toEqual({ ...schedule('mma', 1), lone: 5 });
    expect(choose({ ...s, kvHeads: 16 }, 64, 1)).toEqual({ ...schedule('mma', 1), lone: 8 });
    // Otherwise a text has as many blocks as keep all multiprocessors busy, in turns of equally many.
    expect(choose({ ...s, kvHeads: 32 }, 64, 1)).toEqual(schedule('mma', 1));
    expect(choose(s, 64, 1)).toEqual({ ...schedule('mma', 1), resident: 2 });
    expect(choose(s, 32, 1)).toEqual({ ...schedule('mma', 1), resident: 2 });
    expect(choose(s, 16, 1)).toEqual({ ...schedule('mma', 1), teams: 2 });
    expect(choose(s, 8, 1)).toEqual({ ...schedule('mma', 1), cluster: 2, teams: 2 });
    expect(choose(s, 2, 1)).toEqual({ ...schedule('mma', 1), cluster: 8, teams: 2 });
    expect(choose(s, 1)).toEqual({ ...schedule('mma', 1), cluster: 8, teams: 2 });
    expect(choose({ ...s, headDim: 256 }, 1)).toEqual({ ...schedule('mma', 1), cluster: 8 });
    expect(choose({ ...s, heads: 8 * 17 }, 1)).toEqual(schedule('mma', 1));
    expect(choose(s, 64, 1, old)).toEqual(schedule('mma', 1));
    // Drafts behind a text read its keys together, if clusters have room for several queries.
    for (const run of [undefined, 16]) {
      expect(choose(s, 64, run)).toEqual(runs(2, 2));
      expect(choose(s, 32, run)).toEqual(runs(2, 2));
      expect(choose({ ...s, window: 4096 }, 32, run)).toEqual(runs(2, 2));
      expect(choose({ ...s, scaled: 'e4m3' }, 64, run)).toEqual(runs(2, 2));
      expect(choose(s, 16, run)).toEqual(runs(2, 2, 2));
      expect(choose(s, 8, run)).toEqual(runs(4, 8));
      expect(choose(s, 4, run)).toEqual(runs(4, 8, 2));
      expect(choose(s, 2, run)).toEqual(runs(2, 8, 2));
      expect(choose(s, 64, run, old)).toEqual(schedule('mma', 1));
      expect(choose({ ...s, headDim: 256 }, 64, run)).toEqual(schedule('mma', 1));
    }
    expect(choose(s, 128, 16)).toEqual(runs(2, 2));
    expect(choose(s, 512)).toEqual(schedule('wgmma', 32));
    expect(choose(s, 512, undefined, old)).toEqual(schedule('mma', 16));
    // Many queries that go on are taken by fours, in turns of as many warps each: of drafts from fewer on.
    expect(choose(s, 256, 16)).toEqual({ ...schedule('mma', 4), lone: 5 });
    for (const run of [1, 16]) {
      expect(choose(s, 512, run)).toEqual({ ...schedule('mma', 4), lone: 5 });
      expect(choose({ ...s, headDim: 64 }, 512, run)).toEqual({ ...schedule('mma', 4), lone: 8 });
      expect(choose({ ...s, headDim: 64 }, 768, run)).toEqual({ ...schedule('mma', 4), lone: 6 });
      expect(choose({ ...s, kvHeads: 32, headDim: 64 }, 384, run)).toEqual({ ...schedule('mma', 16), lone: 6 });
      expect(choose(s, 512, run, old)).toEqual(schedule('mma', 1));
      expect(choose({ ...s, headDim: 256 }, 512, run)).toEqual(schedule('mma', 1));
      expect(choose({ ...s, dtype: 'f32' }, 512, run)).toEqual(schedule('simt', 16));
    }
    expect(choose({ ...s, window: 4096 }, 512, 16)).toEqual(runs(2, 2));
    expect(choose({ ...s, heads: 56 }, 512)).toEqual(schedule('mma', 8));
    expect(choose({ ...s, heads: 8 }, 512)).toEqual(schedule('wgmma', 128));
    expect(choose({ ...s, dtype: 'f32' }, 512)).toEqual(schedule('simt', 16));
  });

  it('give latent attention of few queries large clusters', () => {
    const s: Shape = { heads: 16, kvHeads: 1, headDim: 512, tail: 64, dtype: 'bf16', mask: 'path' };
    const choose = (shape: Shape, rows: number, multiprocessors = 132): CudaAttentionSchedule => {
      const { module, kernel } = attentionModule(shape);
      return defaultAttentionSchedule(kernel, module, HOPPER, { rows, multiprocessors, run: 1 });
    };
    const of = (cluster?: ClusterSize): CudaAttentionSchedule => ({
      ...schedule('mma', 1),
      teams: 2,
      ...(cluster === undefined ? {} : { cluster }),
    });
    for (const rows of [1, 5]) expect(choose(s, rows)).toEqual(of(16));
    for (const rows of [6, 13]) expect(choose(s, rows)).toEqual(of(8));
    for (const rows of [14, 29]) expect(choose(s, rows)).toEqual(of(4));
    for (const rows of [30, 66]) expect(choose(s, rows)).toEqual(of(2));
    expect(choose(s, 67)).toEqual(of());
    // Eight parts of heads; too few columns for 16 blocks; groups of multiprocessors that may all be smaller.
    expect(choose({ ...s, heads: 128 }, 1)).toEqual(of(8));
    expect(choose({ ...s, headDim: 128 }, 1)).toEqual(of(8));
    expect(choose(s, 1, 112)).toEqual(of(8));
    expect(choose(s, 1, 114)).toEqual(of(16));
    expect(choose(s, 2, 114)).toEqual(of(8));
  });

  it('are refused with the reason', () => {
    expect(legal(SHAPE, schedule('mma', 64, 64))).toMatch(
      /mma takes 32 keys at a time: answers must not depend on the schedule/,
    );
    expect(legal(SHAPE, schedule('mma', 48))).toMatch(/16, 32, 64 or 128 queries/);
    expect(legal(SHAPE, schedule('simt', 12))).toMatch(/4, 8, 16 or 32 queries/);
    expect(legal({ ...SHAPE, headDim: 40 }, schedule('mma', 64))).toMatch(/multiple of 16, at most 256, not 40/);
    expect(legal({ ...SHAPE, headDim: 272 }, schedule('mma', 64))).toMatch(/multiple of 16, at most 256, not 272/);
    expect(legal({ ...SHAPE, dtype: 'f32' }, schedule('mma', 64))).toMatch(/16 bits, not f32/);
    expect(legal({ ...SHAPE, mask: 'bias' }, schedule('mma', 64))).toMatch(/only simt takes a materialized bias/);
    const grouped: Shape = { ...SHAPE, heads: 56, kvHeads: 8, mask: 'path' };
    expect(legal(grouped, schedule('mma', 64))).toMatch(/64 queries of 7 heads are 448 rows, 128 at most/);
    expect(legal(grouped, schedule('mma', 12))).toMatch(/mma takes 1, 2, 4, 8, 16, 32, 64 or 128 queries/);
    expect(legal(grouped, schedule('mma', 16))).toBe(true);
    expect(legal(grouped, { ...schedule('mma', 1), teams: 2, cluster: 8 })).toBe(true);
    expect(legal(grouped, { ...schedule('mma', 1), teams: 3 })).toMatch(/a block has 2 or 4 teams/);
    expect(legal(grouped, { ...schedule('mma', 1), lone: 8, teams: 2 })).toMatch(/a lone warp has no teams/);
    expect(legal({ ...grouped, headDim: 256 }, { ...schedule('mma', 1), lone: 8 })).toMatch(
      /registers for 8 heads of 128 at most/,
    );
    expect(legal({ ...grouped, heads: 32 }, { ...schedule('mma', 1), resident: 2 })).toBe(true);
    expect(legal(grouped, { ...schedule('mma', 1), resident: 2 })).toMatch(/room on a multiprocessor: 2$/);
    expect(legal(grouped, { ...schedule('mma', 1), resident: 2, teams: 2 })).toMatch(/one team, each of one query/);
    expect(legal(grouped, { ...schedule('mma', 16), resident: 2 })).toMatch(/one team, each of one query/);
    expect(legal({ ...grouped, headDim: 256 }, { ...schedule('mma', 1), resident: 2 })).toMatch(
      /room on a multiprocessor: 1$/,
    );
    expect(legal(grouped, { ...schedule('mma', 4), lone: 8 })).toMatch(
      /a lone warp wants mma over paths, and at most 16 heads of its queries/,
    );
    const four: Shape = { ...grouped, heads: 32 };
    expect(legal(four, { ...schedule('mma', 4), lone: 6 })).toBe(true);
    expect(legal(four, { ...schedule('mma', 4), lone: 7 })).toMatch(/7 lone warps leave no room for keys and values/);
    expect(legal(four, { ...schedule('mma', 2), lone: 5 })).toMatch(/one query, or as many as its tile has rows for/);
    expect(legal({ ...four, window: 64 }, { ...schedule('mma', 4), lone: 5 })).toMatch(/paths without a window/);
    expect(legal(grouped, { ...schedule('mma', 1), cluster: 1 })).toMatch(/a cluster has 2, 4, 8 or 16 blocks/);
    expect(legal(grouped, { ...schedule('mma', 1), cluster: 2 }, LEAST)).toMatch(/sm_80 has no clusters/);
    // Blocks of a cluster share the queries of a run.
    for (const plan of [
      { ...schedule('mma', 4), cluster: 4 },
      { ...schedule('mma', 2), cluster: 8, teams: 2 },
    ] as const)
      expect(legal(grouped, plan)).toBe(true);
    expect(legal(grouped, { ...schedule('mma', 4), cluster: 2 })).toMatch(
      /each query of a cluster brings as many blocks/,
    );
    expect(legal(grouped, { ...schedule('mma', 8), cluster: 8 })).toMatch(
      /queries of a cluster have 32 heads at most that share a head of keys/,
    );
    expect(legal({ ...grouped, headDim: 256 }, { ...schedule('mma', 2), cluster: 2 })).toMatch(/heads of 128 at most/);
    expect(legal(grouped, { ...schedule('mma', 2), cluster: 2, resident: 2 })).toMatch(/one team, each of one query/);
    expect(legal({ ...grouped, heads: 32 }, { ...schedule('mma', 8), cluster: 8, teams: 2 })).toMatch(
      /needs \d+ bytes of shared memory, 232448 are there/,
    );
    for (const shared of [{ teams: 2 }, { cluster: 2 }] as const) {
      const reason = /teams and clusters want mma over paths, and one query of at most 16 heads a block/;
      expect(legal(grouped, { ...schedule('mma', 2), teams: 2 })).toMatch(reason);
      expect(legal({ ...grouped, heads: 136 }, { ...schedule('mma', 1), ...shared })).toMatch(reason);
      expect(legal(SHAPE, { ...schedule('mma', 16), ...shared })).toMatch(reason);
    }
    const tiles = { sharesTiles: true } as const;
    expect(legal(grouped, { ...schedule('mma', 16), ...tiles })).toBe(true);
    for (const [s, plan] of [
      [grouped, schedule('mma', 1)],
      [SHAPE, schedule('mma', 64)],
      [{ ...SHAPE, mask: 'path' }, schedule('simt', 16)],
    ] as const)
      expect(legal(s, { ...plan, ...tiles })).toMatch(/shared tiles want mma over paths, and several queries a block/);
    expect(legal({ ...SHAPE, kvHeads: 3 }, schedule('mma', 64))).toMatch(/52 heads cannot share 3/);
    expect(legal({ ...SHAPE, headDim: 256 }, schedule('mma', 128), LEAST)).toMatch(
      /needs \d+ bytes of shared memory, 101376 are there/,
    );
    expect(legal({ ...SHAPE, headDim: 256 }, schedule('mma', 128), HOPPER)).toBe(true);
    const { module, kernel } = attentionModule(SHAPE);
    expect(isLegalAttention({ ...kernel, scale: -1 }, module, schedule('mma', 64))).toMatch(/positive scale/);
    expect(isLegalAttention({ ...kernel, q: 'subtreeEnd' }, module, schedule('mma', 64))).toMatch(/one dtype/);
    expect(attentionSchedules(kernel, module).every((plan) => isLegalAttention(kernel, module, plan) === true)).toBe(
      true,
    );
  });
});

testRegisters(COMPILED_FIRST, ['sm_90a']);
