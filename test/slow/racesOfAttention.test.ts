/**
 * Races in the shared memory of attention on GPUs, searched without a GPU as those of contractions (races.test.ts).
 * Beside each kernel, the same kernel with a barrier less, which must be reported.
 */
import { describe, expect, it } from 'vitest';
import type { ClusterSize, CudaAttentionSchedule } from '../../ir/cuda.js';
import { emulate, type AttentionData, type Shape } from '../codegen/cuda/attentionHarness.js';
import { LATENT_SHAPES, withTails } from '../codegen/cuda/latentCases.js';
import { pathSchedule, PathWorld, siblingsCall } from '../codegen/cuda/pathCases.js';
import { LONG, pathShape } from '../codegen/cuda/pathSchedules.js';
import { takeRaces } from '../support/cudaWarp/compile.js';
import { racesOfBroken, reason, type Change } from './raceSearch.js';

describe.skipIf(reason !== undefined)('attention of one query a block', () => {
  const decode = (cluster?: ClusterSize, teams?: number): CudaAttentionSchedule => ({
    ...pathSchedule('mma', 1),
    ...(cluster === undefined ? {} : { cluster }),
    ...(teams === undefined ? {} : { teams }),
  });
  const callOf = (world: PathWorld): AttentionData =>
    world.call(
      world.lengths.map((to, sequence) => ({ sequence, from: to - 1, to })),
      { placement: 1 },
    );
  const CAPACITY = { tokensCapacity: 2048 };
  const LENGTHS = [700, 300, 129, 1];
  const ends = callOf(new PathWorld(LONG, LENGTHS, 6));
  const wide = pathShape(4, 1, 128, 'bf16');

  it.each([
    ...[decode(), decode(2), decode(4, 2), decode(8), decode(undefined, 4)].map((plan) => ({ s: LONG, plan })),
    ...[decode(4), decode(2, 2)].map((plan) => ({ s: wide, plan })),
    ...[LONG, wide].map((s) => ({ s, plan: { ...decode(), lone: 8 } as const })),
  ])(
    'has no race: head dimension $s.headDim, cluster $plan.cluster, teams $plan.teams, lone $plan.lone',
    ({ s, plan }) => {
      for (const backwards of [false, true]) {
        emulate(s, plan, s === LONG ? ends : callOf(new PathWorld(s, LENGTHS, 6)), { ...CAPACITY, backwards });
        expect(takeRaces()).toEqual([]);
      }
    },
  );

  const ONE_BUFFER = ['round_bytes = workers * chunk_bytes', 'round_bytes = 0'] as const;
  it.each<readonly [what: string, plan: CudaAttentionSchedule, changes: readonly Change[]]>([
    ['the maxima of other warps', decode(), [['team.meet();  /* The maxima of all warps are there. */', '']]],
    [
      'the maxima of other warps of a team',
      decode(2, 2),
      [['team.meet();  /* The maxima of all warps are there. */', '']],
    ],
    [
      'the weights of others',
      decode(),
      [['team.meet();  /* The weights and the values of all warps are there. */', '']],
    ],
    ['that values are still read', decode(), [['team.meet();  /* The values have been read. */', '']]],
    ['that its lanes still read keys', decode(), [["__syncwarp();  /* The warp's keys have been read. */", '']]],
    ['to wait for keys', decode(), [['      copy_wait<1>();\n      __syncwarp();', '      __syncwarp();']]],
    ['to wait for values', decode(), [['      copy_wait<1>();\n      team.meet();', '      team.meet();']]],
    ['that teams still read', decode(undefined, 4), [ONE_BUFFER]],
    ['that blocks still read', decode(4), [ONE_BUFFER]],
    ['the partial results of other blocks', decode(4), [['chunks_there.wait((round - 1) / 2 % 2);', '']]],
  ])('is reported when it forgets %s', (_, plan, changes) => {
    expect(racesOfBroken(changes, (mutate) => emulate(LONG, plan, ends, { ...CAPACITY, mutate }))).not.toBe('');
  });
});

describe.skipIf(reason !== undefined)('attention of runs of queries', () => {
  const OPTIONS = { tokensCapacity: 2048 };
  const runs = (queries: number, cluster: ClusterSize, teams?: number): CudaAttentionSchedule => ({
    ...pathSchedule('mma', queries),
    cluster,
    ...(teams === undefined ? {} : { teams }),
  });
  const s = pathShape(4, 1, 32, 'bf16');
  // A run of four, one across a chunk, a query alone, and a run that clusters cut.
  const callOf = (shape: Shape): AttentionData =>
    new PathWorld(shape, [300, 131, 1, 430], 6).call(
      [
        { sequence: 0, from: 296, to: 300 },
        { sequence: 1, from: 126, to: 131 },
        { sequence: 2, from: 0, to: 1 },
        { sequence: 3, from: 421, to: 430 },
      ],
      { placement: 1 },
    );
  const data = callOf(s);

  it.each([runs(4, 4), runs(8, 8), runs(4, 8, 2)])('has no race: $queries queries of $cluster blocks', (plan) => {
    for (const backwards of [false, true]) {
      emulate(s, plan, data, { ...OPTIONS, backwards });
      expect(takeRaces()).toEqual([]);
    }
  });

  it.each<readonly [what: string, s: Shape, plan: CudaAttentionSchedule, changes: readonly Change[]]>([
    ['that blocks still read', s, runs(4, 4), [['round_bytes = workers * chunk_bytes', 'round_bytes = 0']]],
    [
      'the queries of others',
      pathShape(8, 1, 32, 'bf16'),
      runs(4, 8),
      [['__syncthreads();  /* The queries are there. */', '']],
    ],
    ['the maxima of other warps', s, runs(8, 8), [['team.meet();  /* The maxima of all warps are there. */', '']]],
  ])('is reported when it forgets %s', (_, shape, plan, changes) => {
    const given = shape === s ? data : callOf(shape);
    expect(racesOfBroken(changes, (mutate) => emulate(shape, plan, given, { ...OPTIONS, mutate }))).not.toBe('');
  });
});

describe.skipIf(reason !== undefined)('latent attention', () => {
  const [s] = LATENT_SHAPES;
  const OPTIONS = { tokensCapacity: 2304 };
  const latent = (queries: number, cluster?: ClusterSize, teams?: number): CudaAttentionSchedule => ({
    ...pathSchedule('mma', queries),
    ...(cluster === undefined ? {} : { cluster }),
    ...(teams === undefined ? {} : { teams }),
  });
  // Streams of two chunks, of one, and blocks without any.
  const world = new PathWorld(s, [2100, 130, 3], 6);
  const data = withTails(world.call(world.whole, { placement: 1, row: [2099, 640, 2229, 2232] }), s);

  it.each([
    ...[latent(1), latent(2), latent(1, 2), latent(1, 4)],
    ...([undefined, 2, 4, 8] as const).map((cluster) => latent(1, cluster, 2)),
  ])('has no race: $queries queries, cluster $cluster, teams $teams', (plan) => {
    for (const backwards of [false, true]) {
      emulate(s, plan, data, { ...OPTIONS, backwards });
      expect(takeRaces()).toEqual([]);
    }
  });

  it.each<readonly [what: string, cluster: ClusterSize, changes: readonly Change[]]>([
    [
      'that the other block reads queries',
      2,
      [["cluster_wait();  /* The other block's barriers are there, and its queries have been read. */", '']],
    ],
    ['the result of the other block', 2, [['there.wait(round % 2);', '']]],
    ['that blocks still read', 4, [['else barriers[Layout::round_added].wait((round - 1) % 2);', '']]],
  ])('is reported when it forgets %s', (_, cluster, changes) => {
    const plan = latent(1, cluster, 2);
    expect(racesOfBroken(changes, (mutate) => emulate(s, plan, data, { ...OPTIONS, mutate }))).not.toBe('');
  });
});

describe.skipIf(reason !== undefined)('attention of a few queries a warp', () => {
  const plan: CudaAttentionSchedule = { ...pathSchedule('mma', 4), lone: 5 };
  const OPTIONS = { tokensCapacity: 2048 };
  // Totals in registers and in shared memory.
  const shapes = [64, 128].map((headDim) => pathShape(8, 2, headDim, 'bf16'));
  const callOf = (s: Shape): AttentionData =>
    siblingsCall(s, 3, [
      { stem: 170, own: [3, 40, 1] },
      { stem: 64, own: [0, 5, 32, 64, 2] },
    ]);

  it.each(shapes)('has no race: head dimension $headDim', (s) => {
    for (const backwards of [false, true]) emulate(s, plan, callOf(s), { ...OPTIONS, backwards });
    expect(takeRaces()).toEqual([]);
  });

  it.each<readonly [what: string, changes: readonly Change[]]>([
    ['that its lanes still read a part', [['__syncwarp();  /* The part has been read. */', '']]],
    ['to wait for a part', [['copy_wait<parts - 1>();', '']]],
  ])('is reported when it forgets %s', (_, changes) => {
    const [s] = shapes as [Shape];
    expect(racesOfBroken(changes, (mutate) => emulate(s, plan, callOf(s), { ...OPTIONS, mutate }))).not.toBe('');
  });
});

describe.skipIf(reason !== undefined)('attention by warpgroup products', () => {
  const s = pathShape(4, 1, 64, 'bf16');
  const plan: CudaAttentionSchedule = { kind: 'attention', skeleton: 'wgmma', queries: 32, keys: 32 };
  const OPTIONS = { tokensCapacity: 2048 };
  // Several tiles of queries, whose blocks go through them one after another, and lists of several chunks, whose rows
  // follow each other or lie anywhere.
  const world = new PathWorld(s, [300, 150, 40], 3);
  const [boxed, data] = [0, 1].map((placement) => world.call(world.whole, { placement })) as [
    AttentionData,
    AttentionData,
  ];

  it('has no race', () => {
    for (const backwards of [false, true]) {
      for (const each of [boxed, data]) emulate(s, plan, each, { ...OPTIONS, backwards });
      expect(takeRaces()).toEqual([]);
    }
  });

  it.each<readonly [what: string, changes: readonly Change[]]>([
    ['that queries are still read', [['bars.queries_empty[side].wait(tiles.round() ^ 1);', '']]],
    [
      'that others that load still read what is known of a tile',
      [
        ['queries_empty[i].init(warps + 3);', 'queries_empty[i].init(warps);'],
        ['__syncwarp();\n      if (lane == 0) bars.queries_empty[side].arrive();', ''],
      ],
    ],
    ['that keys and values are still read', [['empty[slot].wait(parity_of<config>(loaded) ^ 1);', '']]],
    ['to wait for what is known of queries', [['bars.queries_known[tiles.side()].wait(tiles.round());', '']]],
    ['to wait until keys are wanted', [['bars.keys_wanted[slot].wait(parities >> slot & 1);', '']]],
    ['to wait for queries', [['bars.queries_full[tiles.side()].wait(tiles.round());', '']]],
    ['to wait for values', [['await(bars.values_full, before);', '']]],
    ['that lanes still write positions', [['__syncwarp();  /* Tokens and positions are there. */', '']]],
    ['that lanes still read rows of keys', [['__syncwarp();  /* The rows have been read. */', '']]],
  ])('is reported when it forgets %s', (_, changes) => {
    expect(racesOfBroken(changes, (mutate) => emulate(s, plan, data, { ...OPTIONS, mutate }))).not.toBe('');
  });

  it('is reported when boxes forget that keys and values are still read', () => {
    // They wait behind the copy, before which they must.
    const wait = 'empty[slot].wait(parity_of<config>(loaded) ^ 1);';
    const arrive = 'full[slot].arrive(lanes);\n        full[slot].expect(Layout::part_bytes);';
    const copy = 'kv * Layout::d + slab * 64, row, full[slot]);';
    const changes = [
      [wait, `if (row < 0) ${wait}`],
      [arrive, ''],
      [copy, `${copy}\n        ${wait}\n        ${arrive}`],
    ] as const;
    expect(racesOfBroken(changes, (mutate) => emulate(s, plan, boxed, { ...OPTIONS, mutate }))).not.toBe('');
  });
});

describe.skipIf(reason !== undefined)('attention over tiles that branches share', () => {
  const s = pathShape(4, 1, 64, 'bf16');
  const plan: CudaAttentionSchedule = { ...pathSchedule('mma', 16), sharesTiles: true };
  const OPTIONS = { tokensCapacity: 2048 };
  // Blocks with the ends of several lists, which begin alike.
  const world = new PathWorld(s, [70, 90, 110, 33, 150], 3);
  const data = world.call(
    world.lengths.map((to, sequence) => ({ sequence, from: Math.max(0, to - 7), to })),
    {
      placement: 1,
    },
  );

  it('has no race', () => {
    for (const backwards of [false, true]) {
      emulate(s, plan, data, { ...OPTIONS, backwards });
      expect(takeRaces()).toEqual([]);
    }
  });

  it.each<readonly [what: string, changes: readonly Change[]]>([
    ['that a tile is still read', [['__syncthreads();  /* The tile is there, the one before has been read. */', '']]],
    ['to wait for a tile', [['      copy_wait<slots - 2>();\n', '']]],
  ])('is reported when it forgets %s', (_, changes) => {
    expect(racesOfBroken(changes, (mutate) => emulate(s, plan, data, { ...OPTIONS, mutate }))).not.toBe('');
  });
});
