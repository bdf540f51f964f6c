/** The costs that packing uses: exact at measured buckets, monotone between them, plausible outside. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  analyticBucketCost,
  bucketCostModel,
  cudaBuckets,
  cudaCapacity,
  defaultBuckets,
  estimateBuckets,
  kernelSeconds,
} from '../../autotune/buckets.js';
import { scoringBucket, scoringSize, tokensIn } from '../../ir/scoring.js';
import { llamaModule } from './fixture.js';

const point = (tokens: number, seconds: number, rowSeconds = 0, attentionSeconds = 0) => ({
  ...scoringBucket({ tokens, rows: tokens, longest: Math.min(tokens, 256) }),
  seconds,
  rowSeconds,
  attentionSeconds,
});

describe('bucketCostModel', () => {
  const measured = [point(64, 0.02, 0.004, 0.001), point(256, 0.05, 0.012, 0.006), point(1024, 0.2, 0.05, 0.03)];
  const cost = bucketCostModel(measured);

  it('gives the measured seconds at measured buckets, in any order', () => {
    for (const { extents, longest, seconds } of measured) {
      const { tokens, rows } = scoringSize({ extents });
      expect(cost(tokens, rows, longest)).toBeCloseTo(seconds, 12);
      expect(bucketCostModel([...measured].reverse())(tokens, rows, longest)).toBeCloseTo(seconds, 12);
    }
  });

  it('is linear between them', () => {
    const line = bucketCostModel([point(100, 1), point(200, 3)]);
    expect(line(150, 0, 0)).toBeCloseTo(2, 12);
    expect(line(175, 0, 0)).toBeCloseTo(2.5, 12);
  });

  it('extends the first segment to zero without going negative, and the last one outwards', () => {
    const overhead = bucketCostModel([point(100, 2), point(200, 3)]);
    expect(overhead(0, 0, 0)).toBeCloseTo(1, 12);
    expect(overhead(300, 0, 0)).toBeCloseTo(4, 12);
    const steep = bucketCostModel([point(100, 1), point(200, 3)]);
    expect(steep(0, 0, 0)).toBe(0);
    expect(steep(50, 0, 0)).toBeCloseTo(0.5, 12);
  });

  it('charges for scored rows and for length at their measured cost', () => {
    expect(cost(256, 0, 256)).toBeLessThan(cost(256, 256, 256) - 0.008);
    expect(cost(256, 256, 16)).toBeLessThan(cost(256, 256, 256) - 0.003);
  });

  it('never decreases, whatever was measured', () => {
    const seconds = fc.double({ min: 0, max: 10, noNaN: true });
    const points = fc.array(
      fc
        .record({
          tokens: fc.integer({ min: 1, max: 2000 }),
          rows: fc.integer({ min: 1, max: 2000 }),
          longest: fc.integer({ min: 1, max: 500 }),
          seconds,
          rowSeconds: seconds,
          attentionSeconds: seconds,
        })
        .map(({ tokens, rows, longest, ...costs }) => ({ ...scoringBucket({ tokens, rows, longest }), ...costs })),
      { minLength: 1, maxLength: 7 },
    );
    const at = fc.tuple(
      fc.integer({ min: 0, max: 4000 }),
      fc.integer({ min: 0, max: 4000 }),
      fc.integer({ min: 0, max: 1000 }),
    );
    fc.assert(
      fc.property(points, at, at, (buckets, [t, r, l], [dt, dr, dl]) => {
        const f = bucketCostModel(buckets);
        const low = f(t, r, l),
          high = f(t + dt, r + dr, l + dl);
        expect(low).toBeGreaterThanOrEqual(0);
        expect(Number.isFinite(high)).toBe(true);
        expect(high).toBeGreaterThanOrEqual(low - 1e-9 * Math.abs(low));
      }),
      { numRuns: 500 },
    );
  });

  it('pools measurements that noise has put out of order', () => {
    const noisy = bucketCostModel([point(100, 2), point(200, 1), point(300, 4)]);
    expect(noisy(100, 0, 0)).toBeCloseTo(1.5, 12);
    expect(noisy(200, 0, 0)).toBeCloseTo(1.5, 12);
    expect(noisy(300, 0, 0)).toBeCloseTo(4, 12);
  });

  it('refuses an empty list and values that are not times', () => {
    expect(() => bucketCostModel([])).toThrow(/analyticBucketCost/);
    expect(() => bucketCostModel([point(64, NaN)])).toThrow(/finite/);
    expect(() => bucketCostModel([point(64, -1)])).toThrow(/not negative/);
  });
});

describe('analyticBucketCost', () => {
  const module = llamaModule();
  const rates = { flopsPerSecond: 400e9, bytesPerSecond: 30e9 };
  const cost = analyticBucketCost(module, rates, 1024);

  it('is the roofline at the sizes it was built from', () => {
    const [estimate] = estimateBuckets(module, rates, [{ extents: { T: 512, R: 512 }, longest: 256 }]);
    expect(cost(512, 512, 256)).toBeCloseTo(estimate!.seconds, 12);
  });

  it('grows with tokens, rows and length, and makes two half batches dearer than one whole', () => {
    expect(cost(600, 300, 100)).toBeGreaterThan(cost(300, 300, 100));
    expect(cost(600, 600, 100)).toBeGreaterThan(cost(600, 300, 100));
    expect(cost(600, 300, 200)).toBeGreaterThan(cost(600, 300, 100));
    expect(2 * cost(100, 50, 64)).toBeGreaterThan(cost(200, 100, 64));
  });

  it('is faster on a faster machine', () => {
    expect(
      analyticBucketCost(module, { flopsPerSecond: 800e9, bytesPerSecond: 60e9 }, 1024)(512, 512, 256),
    ).toBeLessThan(cost(512, 512, 256));
  });

  it('looks at no kernel when it is evaluated, as packing does a million times', () => {
    let looks = 0;
    const watched = new Proxy(module, {
      get: (of, name) => {
        looks++;
        const value: unknown = Reflect.get(of, name);
        return Array.isArray(value) ? new Proxy(value, { get: (all, at) => (looks++, Reflect.get(all, at)) }) : value;
      },
    });
    const fromWatched = analyticBucketCost(watched, rates, 1024);
    expect(looks).toBeGreaterThan(module.kernels.length);
    looks = 0;
    for (let i = 0; i < 1000; i++)
      expect(fromWatched(1 + (i % 1024), i % 900, i % 256)).toBe(cost(1 + (i % 1024), i % 900, i % 256));
    expect(looks).toBe(0);
  });
});

describe('kernelSeconds', () => {
  const module = llamaModule();
  const rates = { flopsPerSecond: 400e9, bytesPerSecond: 30e9 };
  const size = { extents: { T: 512, R: 512 }, longest: 256 };
  const [estimate] = estimateBuckets(module, rates, [size]);
  const sum = (
    seconds: readonly number[],
    of: (kernel: (typeof module.kernels)[number]) => boolean = () => true,
  ): number => module.kernels.reduce((total, kernel, i) => total + (of(kernel) ? seconds[i]! : 0), 0);
  const isAttention = ({ anchor }: { readonly anchor: string }): boolean => anchor === 'attention';

  it('add up to the roofline of the whole', () => {
    expect(sum(kernelSeconds(module, rates, size))).toBeCloseTo(estimate!.seconds, 12);
  });

  it('are scaled part by part to the nearest measured bucket', () => {
    const measured = [
      point(64, 9),
      {
        ...scoringBucket({ tokens: 512, rows: 512, longest: 256 }),
        seconds: 2,
        rowSeconds: 0.5,
        attentionSeconds: 0.25,
      },
    ];
    const seconds = kernelSeconds(module, rates, size, measured);
    expect(sum(seconds)).toBeCloseTo(2, 12);
    expect(sum(seconds, isAttention)).toBeCloseTo(0.25, 12);
    expect(sum(seconds, (kernel) => !isAttention(kernel) && kernel.rows === 'R')).toBeCloseTo(0.5, 12);
    // Half the scored rows take less; the other parts are unchanged.
    const fewer = kernelSeconds(module, rates, { ...size, extents: { ...size.extents, R: 256 } }, measured);
    expect(sum(fewer, (kernel) => !isAttention(kernel) && kernel.rows === 'R')).toBeLessThan(0.4);
    expect(sum(fewer, (kernel) => !isAttention(kernel) && kernel.rows === 'T')).toBeCloseTo(1.25, 12);
  });

  it('keep their proportions where only the whole was measured', () => {
    const seconds = kernelSeconds(module, rates, size, [
      { ...scoringBucket({ tokens: 512, rows: 512, longest: 256 }), seconds: 2 },
    ]);
    const plain = kernelSeconds(module, rates, size);
    seconds.forEach((each, i) => expect(each / plain[i]!).toBeCloseTo(2 / estimate!.seconds, 9));
  });
});

describe('defaultBuckets', () => {
  it('doubles from 64 to the capacity, which is always the last', () => {
    expect(defaultBuckets(1024).map((b) => tokensIn(b))).toEqual([64, 128, 256, 512, 1024]);
    expect(defaultBuckets(1000).map((b) => tokensIn(b))).toEqual([64, 128, 256, 512, 1000]);
    expect(defaultBuckets(600).map((b) => tokensIn(b))).toEqual([64, 128, 256, 600]);
    expect(defaultBuckets(32).map((b) => tokensIn(b))).toEqual([32]);
  });

  it('takes as many rows as tokens, and typical lengths', () => {
    expect(defaultBuckets(1024).at(-1)).toEqual(scoringBucket({ tokens: 1024, rows: 1024, longest: 256 }));
    expect(defaultBuckets(1024, 700).at(-1)).toEqual(scoringBucket({ tokens: 1024, rows: 700, longest: 256 }));
    expect(defaultBuckets(1024)[0]).toEqual(scoringBucket({ tokens: 64, rows: 64, longest: 64 }));
  });
});

describe('cudaCapacity', () => {
  it('has whole waves of row tiles, twice as many for narrow models', () => {
    expect(cudaCapacity(132, 4096)).toEqual({ min: 16_896, max: 16_896 });
    expect(cudaCapacity(132, 5120)).toEqual({ min: 8448, max: 16_896 });
    expect(cudaBuckets(16_896).map((b) => tokensIn(b))).toEqual([66, 132, 264, 528, 1056, 2112, 4224, 8448, 16_896]);
  });

  it('leaves room for long contexts on small GPUs', () => {
    expect(cudaCapacity(8, 8192)).toEqual({ min: 1024, max: 16_384 });
    expect(cudaCapacity(30, 2048)).toEqual({ min: 3840, max: 16_384 });
  });
});
