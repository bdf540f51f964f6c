/**
 * The Hopper contraction as text: goldens, tensor maps and launch, legality, choice of tiles, and what NVIDIA's
 * compiler makes of it.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule } from '../../../codegen/cuda/index.js';
import {
  defaultWgmmaSchedule,
  isLegalWgmma,
  waveEfficiency,
  wgmmaCandidates,
} from '../../../codegen/cuda/wgmma/index.js';
import { remainderColumns, waveCount } from '../../../codegen/cuda/wgmma/layout.js';
import { rasterOf } from '../../../codegen/cuda/wgmma/tileRates.js';
import { mapScalar, type Scalar } from '../../../ir/scalar.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { openUnit } from '../../support/cudaWarp/units.js';
import { hasNvcc } from '../../support/nvcc.js';
import { headKernel, inE4m3, layerGemm, type LayerGemm, type WgmmaCase } from './wgmmaKernels.js';
import {
  ALL,
  COMPILED_FIRST,
  COOPERATIVE,
  DEFERRED,
  emit,
  H100,
  HEAD,
  HIDDEN,
  INTER,
  large,
  legal,
  PINGPONG,
  testRegisters,
} from './wgmmaRegisters.js';
import { expectGolden } from './golden.js';

if (!hasNvcc) console.warn('SKIPPED: nvcc is not on PATH, so no wgmma kernel was compiled for a GPU.');

describe('the text of a wgmma contraction', () => {
  it.each([
    ['wgmmaQkvPingPong', layerGemm('qkv', 256, 512, 64), { ...PINGPONG, tn: 96, stages: 6 }],
    ['wgmmaHeadCooperative', headKernel(256, 600), { ...COOPERATIVE, stages: 3, cluster: 1 }],
    ['wgmmaDownDeferred', layerGemm('down', 256, 520, 64, 'f16'), { ...DEFERRED, tn: 96 }],
    ['wgmmaGateUpDeferred', layerGemm('gateUp', 256, 512), { ...DEFERRED, tn: 224 }],
    ['wgmmaGateUpRemainder', layerGemm('gateUp', 256, 512), { ...DEFERRED, remainderTn: 64 }],
    ['wgmmaOPingPong', layerGemm('o', 416, 512), { ...PINGPONG, tn: 208 }],
    ['wgmmaODeferred', layerGemm('o', 512, 512), DEFERRED],
    ['wgmmaDownE4m3', inE4m3(layerGemm('down', 256, 512), true), { ...DEFERRED, tk: 128 }],
    ['wgmmaDownCooperative', layerGemm('down', 256, 520, 64, 'f16'), { ...COOPERATIVE, tn: 96, stages: 3, cluster: 1 }],
  ] as const)('is golden %s', async (file, c, schedule) => {
    expect(legal(c, schedule)).toBe(true);
    const { source } = emit(c, schedule);
    await expectGolden(source, file);
  });

  it('takes the tensor maps that its copies read by', () => {
    const { tensorMaps, parameters } = emit(large('qkv'), PINGPONG);
    const box = { dtype: 'bf16', columns: HIDDEN, stride: HIDDEN, boxColumns: 64, swizzle: 128 };
    expect(tensorMaps).toEqual([
      { ...box, parameter: parameters.indexOf('x'), rows: 'T', boxRows: 128 },
      ...['w0', 'w1', 'w2'].map((w) => ({ ...box, parameter: parameters.indexOf(w), rows: HIDDEN, boxRows: 96 })),
    ]);
    // Columns end with the data; rows continue to the next multiple of 16 bytes. The padding is never read.
    expect(emit(layerGemm('down', 256, 500), { ...PINGPONG, tn: 64, cluster: 1 }).tensorMaps[1]).toMatchObject({
      columns: 500,
      stride: 504,
      rows: 256,
      boxRows: 64,
    });
    expect(emit(large('gateUp'), COOPERATIVE).tensorMaps[1]).toMatchObject({ rows: 2 * INTER, boxRows: 128 });
  });

  it('is launched as whole clusters of persistent blocks', () => {
    const { launch } = emit(large('qkv'), PINGPONG);
    expect(launch).toEqual({
      threads: 384,
      cluster: 2,
      sharedBytes: 1024 + 5 * (128 + 192) * 128 + 2 * 8 * 5 + 32 + 2 * 128 * 4,
      gridX: { kind: 'persistent', extent: 'T', per: 256, times: 2 * 3 * 35, blocksPerMultiprocessor: 1 },
      gridY: { kind: 'constant', count: 1 },
    });
  });

  it('lets the next kernel start, and waits for the preceding one before it reads its results', () => {
    const text = openUnit(emit(large('o'), PINGPONG).source);
    const body = (name: string): string => {
      const from = text.search(new RegExp(`^TW_DEVICE \\w+ ${name}\\(`, 'm'));
      expect(from).toBeGreaterThan(0);
      return text.slice(from, text.indexOf('\n}\n', from));
    };
    const wait = 'wait_for_previous();';
    expect(body('hopper_gemm')).toContain('launch_dependents();');
    // The producer: weights, wait, left operand. The consumers: wait, then whatever the epilogue reads.
    const [producer, consumer] = [body('produce'), body('consume')];
    expect(producer.split(wait)).toHaveLength(2);
    expect(producer.indexOf('load_b<config>(block, i')).toBeLessThan(producer.indexOf(wait));
    expect(producer.indexOf('load_a<config>')).toBeGreaterThan(producer.indexOf(wait));
    expect(consumer.split(wait)).toHaveLength(2);
    expect(consumer.indexOf('segments...)')).toBeGreaterThan(consumer.indexOf(wait));
    // Row values are read by the producer's other warps, which also run deferred epilogues.
    for (const [name, reader] of [
      ['run_ahead', 'keep_row_values<config>'],
      ['run_deferred', 'load_column_values<config>'],
    ] as const)
      expect(body(name).indexOf(reader)).toBeGreaterThan(body(name).indexOf(wait));
  });
});

describe('isLegalWgmma', () => {
  const o = large('o');
  const f16 = layerGemm('o', HIDDEN, INTER, 128, 'f16');
  const panels = {
    ...o,
    module: { ...o.module, weights: o.module.weights.map((w) => ({ ...w, layout: 'panels' as const })) },
  };
  const plain = (s: Scalar): Scalar => mapScalar(s, (each) => (each.op === 'roundF20' ? each.a : each));
  const unrounded = {
    ...o,
    kernel: {
      ...o.kernel,
      segments: o.kernel.segments.map((s) => ({
        ...s,
        outputs: s.outputs.map((output) => ({ ...output, value: plain(output.value) })),
      })),
    },
  };
  const narrow = {
    ...o,
    kernel: {
      ...o.kernel,
      segments: o.kernel.segments.map((s) => ({ ...s, pairing: { kind: 'interleave', width: 4 } as const })),
    },
  };
  const summedPairs = {
    ...o,
    kernel: {
      ...o.kernel,
      segments: o.kernel.segments.map((s) => ({ ...s, pairing: { kind: 'interleave', width: 8 } as const })),
    },
  };
  it.each([
    ['a tile that splits row-sum blocks of pairs', summedPairs, { ...PINGPONG, tn: 208 }, /multiple of 32/],
    ['columns between the steps', o, { ...PINGPONG, tn: 200 }, /multiple of 16/],
    ['remainder tiles in ping-pong mode', o, { ...PINGPONG, remainderTn: 64 }, /need the deferred mode/],
    [
      'remainder tiles that are no narrower',
      o,
      { ...DEFERRED, remainderTn: 256 },
      /remainderTn must be .* less than tn/,
    ],
    [
      'remainder tiles that split pairs',
      large('gateUp'),
      { ...DEFERRED, remainderTn: 72 },
      /remainderTn must be a multiple of 16/,
    ],
    ['a warpgroup for epilogues that are shown', o, { ...PINGPONG, epilogueGroups: 1 }, /need the deferred mode/],
    ['a warpgroup for epilogues of 16 bits', o, { ...DEFERRED, epilogueGroups: 1 }, /take long enough/],
    ['too many accumulators', o, { ...PINGPONG, tn: 224 }, /224 accumulators, 208 at most/],
    ['a deferred epilogue of tall tiles', o, { ...DEFERRED, tm: 256, tn: 96 }, /deferred tiles take 128 rows/],
    ['a deferred epilogue of the vocabulary', HEAD, DEFERRED, /rounded to 20 bits/],
    ['a deferred epilogue of products that nobody rounds', unrounded, DEFERRED, /rounded to 20 bits/],
    [
      'a deferred epilogue with a stage too many',
      o,
      { ...DEFERRED, stages: 4 },
      /bytes of shared memory, 232448 are there/,
    ],
    ['half a warpgroup', o, { ...COOPERATIVE, tm: 64 }, /cooperative tiles take a multiple of 128 rows/],
    ['too many stages', o, { ...COOPERATIVE, stages: 5 }, /bytes of shared memory, 232448 are there/],
    ['a k step beside the swizzle', o, { ...PINGPONG, tk: 32 }, /tk must be 64 or 128/],
    ['a schedule of another skeleton', o, { ...PINGPONG, skeleton: 'mma' }, /schedule is for mma/],
    ['weights in panels', panels, PINGPONG, /cannot read weight w0 in layout panels/],
    ['a tile that is no block of the vocabulary', HEAD, PINGPONG, /tn must be 256/],
    ['narrow pairs', narrow, PINGPONG, /width 4/],
    [
      'operands of two dtypes',
      { kernel: o.kernel, module: { ...o.module, weights: f16.module.weights } },
      PINGPONG,
      /w0 is f16, its left operand bf16/,
    ],
  ] as const)('refuses %s', (_, c, schedule, reason) => {
    expect(legal(c, schedule)).toMatch(reason);
  });

  it('refuses a GPU without wgmma', () => {
    expect(isLegalWgmma(o.kernel, o.module, PINGPONG, { ...H100, arch: 'sm_80' })).toMatch(/needs sm_90a/);
  });

  it('accepts tiles of every mode', () => {
    for (const which of ALL) {
      expect(legal(large(which), PINGPONG)).toBe(true);
      for (const tn of [176, 208]) expect(legal(large(which), { ...PINGPONG, tn })).toBe(true);
      expect(legal(large(which), COOPERATIVE)).toBe(true);
      expect(legal(large(which), { ...PINGPONG, tm: 192, tn: 128 })).toBe(true);
    }
    expect(legal(o, { ...PINGPONG, tm: 64, tn: 416, stages: 3 })).toBe(true);
    expect(legal(HEAD, COOPERATIVE)).toBe(true);
    expect(legal(HEAD, { ...PINGPONG, tm: 64, tn: 256 })).toBe(true);
  });
});

describe('choice of tiles', () => {
  it('counts whole waves', () => {
    const { kernel } = large('o');
    // 8 row tiles × 26 column tiles on 132 multiprocessors: two waves, 208 of 264 tiles.
    expect(waveEfficiency(kernel, COOPERATIVE, 132, 1024)).toBeCloseTo(208 / 264, 10);
    // One row of tiles is one row of a wave, whatever the cluster.
    expect(waveEfficiency(kernel, { ...COOPERATIVE, cluster: 1 }, 132, 1)).toBeCloseTo(HIDDEN / (132 * 128 * 256), 10);
  });

  it('uses remainder tiles if there is at most one for each cluster', () => {
    const [qkv, gateUp] = (['qkv', 'gateUp'] as const).map((which) => large(which).kernel.segments);
    // 66 clusters, pairs of row tiles. 4.7 waves: 264 tiles stay, and 12 columns of tiles become 16 of 192.
    expect(remainderColumns(qkv!, { ...DEFERRED, remainderTn: 192 }, 66, 4)).toEqual({ whole: 66, narrow: 16 });
    expect(waveCount(qkv!, { ...DEFERRED, remainderTn: 192 }, 66, 4)).toBeCloseTo(4.9, 10);
    // Narrower tiles would be more than one for each cluster.
    expect(remainderColumns(qkv!, { ...DEFERRED, remainderTn: 176 }, 66, 4)).toEqual({ whole: 78, narrow: 0 });
    expect(waveCount(qkv!, DEFERRED, 66, 4)).toBe(5);
    // 9.5 waves. Two clusters have eight whole tiles and start with narrow ones.
    expect(remainderColumns(qkv!, { ...DEFERRED, remainderTn: 128 }, 66, 8)).toEqual({ whole: 74, narrow: 8 });
    expect(remainderColumns(gateUp!, { ...DEFERRED, remainderTn: 128 }, 66, 4)).toEqual({ whole: 132, narrow: 16 });
    // 39 whole waves.
    expect(remainderColumns(qkv!, { ...DEFERRED, remainderTn: 128 }, 66, 33)).toEqual({ whole: 78, narrow: 0 });
    // The last wave reaches into k, which has no remainder tiles.
    expect(remainderColumns(qkv!, { ...DEFERRED, remainderTn: 64 }, 50, 1)).toEqual({ whole: 78, narrow: 0 });
    const chosen = (which: LayerGemm, rows: number): number | undefined =>
      defaultWgmmaSchedule(large(which).kernel, large(which).module, H100, rows)!.remainderTn;
    expect([
      chosen('qkv', 1024),
      chosen('qkv', 2048),
      chosen('gateUp', 1024),
      chosen('gateUp', 2048),
      chosen('qkv', 8448),
    ]).toEqual([192, 128, 128, undefined, undefined]);
  });

  it.each([1, 100, 1024, 2048, 3840, 5760, 7680])('is legal at %i tokens, with the default first', (rows) => {
    for (const which of ALL) {
      const { kernel, module } = large(which);
      const list = wgmmaCandidates(kernel, module, H100, rows);
      expect(list.length).toBeGreaterThan(4);
      for (const schedule of list) expect(isLegalWgmma(kernel, module, schedule, H100)).toBe(true);
      expect(defaultWgmmaSchedule(kernel, module, H100, rows)).toEqual(list[0]);
    }
    const heads = wgmmaCandidates(HEAD.kernel, HEAD.module, H100, rows);
    expect(heads.length).toBeGreaterThan(4);
    for (const schedule of heads) expect(legal(HEAD, schedule)).toBe(true);
    const bucket = scoringBucket({ tokens: rows, rows, longest: rows });
    // Few rows have a skeleton of their own.
    if (rows > 64) expect(defaultCudaSchedule(HEAD.kernel, HEAD.module, H100, bucket)).toEqual(heads[0]);
  });

  it('leaves no small group of row tiles where blocks may come to others', () => {
    const groups = ({ kernel, module }: WgmmaCase, rows: number): number =>
      defaultWgmmaSchedule(kernel, module, H100, rows)!.raster;
    // Of 66, 60, 45 and 30 row tiles: 11 six times; 11 five times and 5; 9 five times; 11, 11, 8.
    expect([8448, 7680, 5760, 3840].map((rows) => groups(inE4m3(large('o')), rows))).toEqual([11, 11, 9, 11]);
    // Others keep theirs, whatever is left.
    for (const other of [large('o'), inE4m3(large('qkv')), inE4m3(large('gateUp'))])
      expect(groups(other, 5760)).toBe(22);
    const height = { most: 2816, finishes: false, mayWander: true };
    expect(rasterOf(132, { cluster: 2, tm: 128 }, { ...height, rows: 46 * 128 })).toBe(16);
    expect(rasterOf(132, { cluster: 2, tm: 128 }, { ...height, rows: 46 * 128, mayWander: false })).toBe(22);
    expect(rasterOf(132, { cluster: 1, tm: 128 }, { ...height, rows: 5760, finishes: true })).toBe(15);
    expect(rasterOf(132, { cluster: 1, tm: 128 }, { ...height, rows: 5760, finishes: true, mayWander: false })).toBe(
      22,
    );
  });

  it('is what was fastest on an H100 where numbers of waves differ', () => {
    const chooseOf = ({ kernel, module }: WgmmaCase, rows: number): string => {
      const { mode, tm, tn, cluster } = defaultWgmmaSchedule(kernel, module, H100, rows)!;
      return `${mode} ${tm}×${tn} ×${cluster}`;
    };
    const choose = (which: LayerGemm, rows: number): string => chooseOf(large(which), rows);
    // 32 column tiles of 208 are whole waves where 35 of 192 and 26 of 256 are not.
    for (const rows of [1024, 2048])
      for (const which of ['o', 'down'] as const) expect(choose(which, rows)).toBe('pingpong 128×208 ×1');
    // Epilogues under the next product, in the tiles that use least power for shared memory at the power limit.
    for (const rows of [1024, 2048])
      for (const which of ['gateUp', 'qkv'] as const) expect(choose(which, rows)).toBe('deferred 128×256 ×1');
    for (const rows of [3840, 7680, 8448])
      for (const which of ['gateUp', 'qkv'] as const) expect(choose(which, rows)).toBe('deferred 128×256 ×2');
    for (const rows of [3840, 7680, 8448]) expect(choose('down', rows)).toBe('deferred 128×256 ×2');
    // A kernel that waits for memory does better without clusters.
    for (const rows of [3840, 7680, 8448]) expect(choose('o', rows)).toBe('deferred 128×256 ×1');
    // 45 row tiles: with pairs, one row tile would be empty.
    for (const which of ALL) expect(choose(which, 5760)).toBe('deferred 128×256 ×1');
    // Few rows: tiles of 64 rows in one wave, or wide ones in whole waves.
    for (const which of ['o', 'down'] as const) expect(choose(which, 128)).toBe('pingpong 64×112 ×1');
    expect(choose('gateUp', 128)).toBe('pingpong 64×192 ×1');
    for (const which of ['o', 'down', 'qkv'] as const) expect(choose(which, 256)).toBe('pingpong 64×208 ×1');
    // A block with one tile has no next product.
    for (const which of ['o', 'down'] as const) expect(choose(which, 528)).toBe('cooperative 128×256 ×1');
    // In E4M3, whole waves of narrower tiles are faster where those of 256 columns leave most of the last one idle.
    const narrow = (which: LayerGemm, rows: number): string => chooseOf(inE4m3(large(which)), rows);
    for (const which of ['o', 'down'] as const) {
      for (const rows of [1024, 2048]) expect(narrow(which, rows)).toBe('deferred 128×208 ×2');
      expect(narrow(which, 768)).toBe('deferred 128×128 ×2');
      expect(narrow(which, 4608)).toBe('deferred 128×208 ×1');
      expect(narrow(which, 6144)).toBe('deferred 128×128 ×1');
      for (const rows of [5376, 6528]) expect(narrow(which, rows)).toBe('deferred 128×240 ×1');
      for (const rows of [3840, 4352, 5760, 7680, 8448]) expect(narrow(which, rows)).toBe('deferred 128×256 ×1');
    }
    expect(narrow('o', 4096)).toBe('deferred 128×128 ×1');
    expect(narrow('down', 4096)).toBe('deferred 128×240 ×1');
    for (const rows of [3840, 8448])
      for (const which of ['gateUp', 'qkv'] as const) expect(narrow(which, rows)).toBe('deferred 128×256 ×2');
  });

  it('offers none without wgmma', () => {
    const { kernel, module } = large('o');
    expect(defaultWgmmaSchedule(kernel, module, { ...H100, arch: 'sm_80' }, 1024)).toBeUndefined();
  });
});

testRegisters(COMPILED_FIRST);
