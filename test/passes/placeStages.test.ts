import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deriveLaunches } from '../../driver/plan.js';
import { UserError } from '../../errors.js';
import { packedBytes, rowMaps } from '../../ir/packing.js';
import { scoringBucket } from '../../ir/scoring.js';
import { buildDecoder } from '../../models/decoder/graph.js';
import {
  arenasOf,
  bestCuts,
  type CutRange,
  parallelText,
  type PlacementFacts,
  placeStages,
  printPlacement,
} from '../../passes/placeStages.js';
import { planMemory } from '../../passes/planMemory.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { BF16 } from './lowered.js';

/** Every way to cut `points` things into `parts`, tried one by one. */
function minOfAll(costs: readonly number[], bytes: readonly number[], parts: number, maxBytes: number): number {
  const sum = (list: readonly number[], first: number, end: number): number =>
    list.slice(first, end).reduce((total, x) => total + x, 0);
  const best = (first: number, left: number): number => {
    if (left === 1)
      return first < costs.length && sum(bytes, first, costs.length) <= maxBytes
        ? sum(costs, first, costs.length)
        : Infinity;
    let least = Infinity;
    for (let end = first + 1; end < costs.length; end++) {
      if (sum(bytes, first, end) <= maxBytes)
        least = Math.min(least, Math.max(sum(costs, first, end), best(end, left - 1)));
    }
    return least;
  };
  return best(0, parts);
}

describe('bestCuts', () => {
  it('finds what trying every cut finds, within the bytes allowed', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat({ max: 20 }), fc.nat({ max: 9 })), { minLength: 1, maxLength: 9 }),
        fc.integer({ min: 1, max: 5 }),
        fc.nat({ max: 40 }),
        (things, parts, maxBytes) => {
          const costs = things.map(([cost]) => cost),
            bytes = things.map(([, size]) => size);
          const from = (first: number): CutRange[] =>
            things.slice(first).map((_, i) => ({
              cost: costs.slice(first, first + i + 1).reduce((a, b) => a + b, 0),
              bytes: bytes.slice(first, first + i + 1).reduce((a, b) => a + b, 0),
            }));
          const found = bestCuts(things.length, parts, from, maxBytes);
          const least = minOfAll(costs, bytes, parts, maxBytes);
          if (found === undefined) return least === Infinity;
          expect(found).toHaveLength(parts);
          expect(found.map(({ first }) => first)).toEqual([0, ...found.slice(0, -1).map(({ end }) => end)]);
          expect(found.at(-1)!.end).toBe(things.length);
          for (const { first, end, cost, bytes: size } of found) {
            expect(end).toBeGreaterThan(first);
            expect({ cost, bytes: size }).toEqual(from(first)[end - first - 1]);
            expect(size).toBeLessThanOrEqual(maxBytes);
          }
          return Math.max(...found.map(({ cost }) => cost)) === least;
        },
      ),
      { numRuns: 500 },
    );
  });
});

const LAYERS = 6;
const CAPACITY = scoringBucket({ tokens: 1024, rows: 1024, longest: 1024 });

/** A model whose plan has realistic proportions: its head weighs as much as two of its layers. */
function facts(change: Partial<PlacementFacts> = {}): PlacementFacts {
  const graph = buildDecoder(
    {
      hiddenSize: 256,
      intermediateSize: 640,
      layers: LAYERS,
      heads: 16,
      kvHeads: 16,
      headDim: 16,
      vocabSize: 6400,
      rmsNormEps: 1e-5,
      tieWordEmbeddings: false,
      biased: [],
    },
    {
      mask: 'tree',
      rotary: { inverseFrequencies: Float64Array.from({ length: 8 }, (_, i) => 1 / (i + 1)), factor: 1 },
      dtypeOf: () => 'bf16',
    },
  );
  const module = lower(optimize(graph, BF16), BF16);
  const plan = {
    ...module,
    ...planMemory(module, CAPACITY.extents),
    launches: deriveLaunches(module, CAPACITY.extents),
    capacity: CAPACITY,
  };
  const rowMap = rowMaps();
  const work = new Map(
    plan.kernels.map((kernel) => {
      if (kernel.anchor === 'gemm')
        return [
          kernel.name,
          kernel.k * kernel.segments.reduce((n, s) => n + s.columns * (s.pairing.kind === 'interleave' ? 2 : 1), 0),
        ];
      return [kernel.name, kernel.anchor === 'logprob' ? kernel.k * kernel.vocab : 100];
    }),
  );
  return {
    plan,
    devices: 4,
    roomOn: () => Infinity,
    costs: plan.launches.map(({ kernel }) => work.get(kernel)!),
    weightBytes: (weight) => packedBytes(weight, rowMap(weight).length),
    ...change,
  };
}

const refused = (given: PlacementFacts): UserError => {
  try {
    placeStages(given);
  } catch (error) {
    if (error instanceof UserError) return error;
    throw error;
  }
  throw new Error('It was placed.');
};

describe('placeStages', () => {
  const base = facts();
  const { plan } = base;
  const paths = plan.launches.map(({ kernel }) => plan.kernels.find(({ name }) => name === kernel)!.path);
  const weights = plan.weights.reduce((sum, weight) => sum + base.weightBytes(weight), 0);
  const placed = (change: Partial<PlacementFacts>) => placeStages({ ...base, ...change });

  it('puts the whole model on each device by default if it fits', () => {
    for (const devices of [1, 2, 3, 4, 8]) {
      const { replicas, stages, balance, spare } = placed({ devices, roomOn: () => weights + plan.arenaBytes });
      expect({ replicas, balance, spare }).toEqual({ replicas: devices, balance: 1, spare: 0 });
      expect(stages).toEqual([
        {
          first: 0,
          end: plan.launches.length,
          share: 1,
          weightBytes: weights,
          stateBytes: 0,
          arenaBytes: plan.arenaBytes,
        },
      ]);
    }
  });

  it('uses as few stages as hold the model if it does not fit, and gives remaining devices to the pipelines', () => {
    const arenas = 2 * plan.arenaBytes;
    const half = placed({ devices: 4, wanted: { replicas: 1, stages: 2 } });
    const third = placed({ devices: 4, wanted: { replicas: 1, stages: 3 } });
    const room = (stages: typeof half): number =>
      Math.max(...stages.stages.map(({ weightBytes }) => weightBytes)) + arenas;
    const shape = (devices: number, bytes: number): unknown => {
      const { replicas, stages, spare } = placed({ devices, roomOn: () => bytes });
      return [replicas, stages.length, spare];
    };
    expect(shape(2, room(half))).toEqual([1, 2, 0]);
    expect(shape(4, room(half))).toEqual([2, 2, 0]);
    expect(shape(5, room(half))).toEqual([2, 2, 1]);
    expect(shape(4, room(third))).toEqual([1, 4, 0]);
    expect(shape(3, room(third))).toEqual([1, 3, 0]);
    expect(shape(8, room(third))).toEqual([2, 4, 0]);
  });

  it('cuts between halves of layers, covers every launch, and counts the embedding and the head', () => {
    for (let stages = 2; stages <= 8; stages++) {
      const { stages: parts, balance } = placed({ devices: 8, wanted: { replicas: 1, stages } });
      expect(parts.map(({ first }) => first)).toEqual([0, ...parts.slice(0, -1).map(({ end }) => end)]);
      expect(parts.at(-1)!.end).toBe(plan.launches.length);
      for (const { first } of parts.slice(1))
        expect(paths[first]).toMatch(/^(embed|head|layers\.\d+\.(attention\.qkv|ffn\.gate_up))$/);
      expect(parts.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1, 12);
      expect(parts.reduce((sum, { weightBytes }) => sum + weightBytes, 0)).toBe(weights);
      expect(balance).toBeCloseTo(1 / stages / Math.max(...parts.map(({ share }) => share)), 12);
      expect(balance).toBeGreaterThan(stages <= 3 ? 0.9 : 0.45);
      for (const { arenaBytes } of parts) expect(arenaBytes).toBe(arenasOf(stages) * plan.arenaBytes);
    }
    // The head is a quarter of the work here, so the last of two equal parts has fewer layers.
    const [first, last] = placed({ devices: 2, wanted: { replicas: 1, stages: 2 } }).stages;
    expect(last!.end - last!.first).toBeLessThan(first!.end - first!.first);
  });

  it('cuts anywhere if there are more stages than halves of layers', () => {
    const most = plan.launches.length;
    const { stages } = placed({ devices: most, wanted: { replicas: 1, stages: most } });
    expect(stages.map(({ first, end }) => end - first)).toEqual(new Array(most).fill(1));
    expect(() => placed({ devices: 99, wanted: { replicas: 1, stages: most + 1 } })).toThrow(
      /some stages would have nothing to do/,
    );
  });

  it('moves a cut if memory requires it', () => {
    const even = placed({ devices: 2, wanted: { replicas: 1, stages: 2 } });
    const heavy = even.stages.findIndex(
      ({ weightBytes }) => weightBytes === Math.max(...even.stages.map((stage) => stage.weightBytes)),
    );
    const tight = placed({
      devices: 2,
      wanted: { replicas: 1, stages: 2 },
      roomOn: () => even.stages[heavy]!.weightBytes - 1 + 2 * plan.arenaBytes,
    });
    expect(tight.balance).toBeLessThan(even.balance);
    for (const { weightBytes } of tight.stages) expect(weightBytes).toBeLessThan(even.stages[heavy]!.weightBytes);
  });

  it('counts a state on the one stage that uses it, and makes no cut between its users', () => {
    // The first three layers read it. 1000 rows are allocated as 1024, 40 columns as 64.
    const state = { name: 'kept', dtype: 'f32', rows: 1000, columns: 40 } as const;
    const stateBytes = 1024 * 64 * 4;
    const end = paths.findIndex((path) => path.startsWith('layers.3.'));
    const launches = plan.launches.map((launch, i) =>
      i < end ? { ...launch, parameters: [...launch.parameters, state.name] } : launch,
    );
    const stateful = { ...plan, launches, states: [state] };
    const cut = (stages: number, room = Infinity) =>
      placed({ plan: stateful, devices: 99, wanted: { replicas: 1, stages }, roomOn: () => room }).stages;
    for (const stages of [1, 2, 4]) {
      expect(cut(stages)[0]!.end).toBeGreaterThanOrEqual(end);
      expect(cut(stages).map((stage) => stage.stateBytes)).toEqual([stateBytes, ...new Array(stages - 1).fill(0)]);
      expect(cut(stages).reduce((sum, stage) => sum + stage.weightBytes, 0)).toBe(weights);
    }
    expect(() => cut(plan.launches.length)).toThrow(/can be cut into \d+ at most/);
    const need = weights + stateBytes + plan.arenaBytes;
    expect(cut(1, need)).toHaveLength(1);
    expect(() => cut(1, need - 1)).toThrow(/of weights, 256 KiB of state and .* of activations/);
    expect(printPlacement(placed({ plan: stateful, devices: 1 }), plan)[0]).toMatch(/, 256 KiB of state each$/);
  });

  it('counts a state that other functions use on every stage', () => {
    const withState = { ...plan, states: [{ name: 'kept', dtype: 'f32', rows: 32, columns: 32 }] } as const;
    const { stages } = placed({ plan: withState, devices: 2, wanted: { replicas: 1, stages: 2 } });
    expect(stages.map(({ stateBytes }) => stateBytes)).toEqual([4096, 4096]);
    expect(stages.reduce((sum, { weightBytes }) => sum + weightBytes, 0)).toBe(weights);
  });

  it('refuses what does not fit and says what would: both work', () => {
    const stages = 2;
    const need = Math.max(
      ...placed({ devices: 2, wanted: { replicas: 1, stages } }).stages.map(({ weightBytes }) => weightBytes),
    );
    const tight = { ...base, devices: 2, roomOn: () => need + plan.arenaBytes, wanted: { replicas: 1, stages } };
    const { message, hint } = refused(tight);
    expect(message).toMatch(
      /does not fit 2 devices as a pipeline.*of weights and .* of two micro-batches of 1024 tokens/,
    );
    const tokens = Number(/--batch-tokens (\d+)/.exec(hint!)![1]);
    const more = Number(/--devices (\d+) --parallel pp=\1/.exec(hint!)![1]);
    const at = (n: number) => ({
      ...tight,
      plan: {
        ...plan,
        ...planMemory(plan, scoringBucket({ tokens: n, rows: n, longest: n }).extents),
        capacity: scoringBucket({ tokens: n, rows: n, longest: n }),
      },
    });
    expect(placeStages(at(tokens)).stages).toHaveLength(stages);
    expect(() => placeStages(at(tokens + 128))).toThrow(UserError);
    expect(placeStages({ ...tight, devices: more, wanted: { replicas: 1, stages: more } }).stages).toHaveLength(more);
  });

  it('suggests a pipeline if replicas do not fit but the devices could hold one', () => {
    const { message, hint } = refused({
      ...base,
      roomOn: () => weights + plan.arenaBytes - 1,
      wanted: { replicas: 4, stages: 1 },
    });
    expect(message).toMatch(/does not fit a device.*of a micro-batch of 1024 tokens/);
    expect(hint).toMatch(/--batch-tokens 896/);
    expect(hint).toMatch(/--parallel pp=\d/);
  });

  it('suggests a single device if parts of its memory are too small', () => {
    // Four parts in one memory that holds the model once.
    const shared = { ...base, roomOn: (devices: number) => (weights + 2 * plan.arenaBytes) / devices };
    expect(refused({ ...shared, wanted: { replicas: 4, stages: 1 } }).hint).toMatch(/one device \(--devices 1\)/);
    expect(refused(shared).hint).not.toMatch(/such devices/);
  });

  it('refuses without a suggestion if nothing would fit', () => {
    expect(refused({ ...base, roomOn: () => 10 }).hint).toBe('Use devices with more memory.');
  });

  it('refuses more devices than there are', () => {
    const { message, hint } = refused({ ...base, devices: 3, wanted: { replicas: 2, stages: 2 } });
    expect(message).toBe('--parallel dpxpp=2x2 takes 4 devices; there are 3');
    expect(hint).toBe('use --devices 4, or --parallel auto');
  });

  it('is printed with its predicted balance', () => {
    expect(printPlacement(placed({ roomOn: () => weights + plan.arenaBytes }), plan).join('\n')).toMatch(
      /^placement: dp=4 on 4 devices, [\d.]+ [KM]iB of weights each$/,
    );
    const [head, ...rows] = printPlacement(placed({ devices: 5, wanted: { replicas: 2, stages: 2 } }), plan);
    expect(head).toMatch(
      /^placement: dpxpp=2x2 on 4 devices, predicted balance \d\d\.\d %: 3\.\d\d× one device; 1 left over$/,
    );
    expect(rows).toHaveLength(2);
    expect(rows[0]).toMatch(/^ {2}stage 0: prepare to layers\.\d\..* % of the work.*of weights/);
    expect(rows[1]).toMatch(/to head\.reduce/);
    expect(
      [
        [4, 1],
        [1, 4],
        [2, 2],
        [1, 1],
      ].map(([replicas, stages]) => parallelText({ replicas: replicas!, stages: stages! })),
    ).toEqual(['dp=4', 'pp=4', 'dpxpp=2x2', 'dp=1']);
  });
});
