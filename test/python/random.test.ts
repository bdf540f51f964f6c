/** Every expected number below was printed by CPython 3.11's random.Random. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { PythonRandom } from '../../python/random.js';

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
/** Pools and counts on both sides of the limits at which CPython changes its way to sample. */
const DRAWS = [
  [1119, 5],
  [5, 5],
  [21, 3],
  [22, 3],
  [85, 6],
  [86, 6],
  [1, 1],
  [3, 0],
] as const;

const CASES = [
  {
    seed: 0n,
    samples: [
      [788, 861, 82, 530, 1047],
      [3, 4, 1, 2, 0],
      [18, 6, 16],
      [4, 9, 3],
      [79, 32, 68, 77, 18, 39],
      [12, 9, 42, 60, 71, 45],
      [0],
      [],
    ],
    shuffled: [1, 6, 11, 0, 2, 4, 10, 7, 8, 3, 9, 5],
    choices: [93, 840, 710, 785, 625],
    floats: [0.6118970848141451, 0.8280632784038988],
  },
  {
    seed: 1234n,
    samples: [
      [902, 239, 15, 185, 71],
      [0, 4, 1, 3, 2],
      [0, 20, 11],
      [20, 19, 15],
      [78, 59, 19, 11, 23, 14],
      [1, 64, 62, 31, 8, 85],
      [0],
      [],
    ],
    shuffled: [5, 3, 10, 6, 7, 4, 2, 0, 8, 11, 9, 1],
    choices: [266, 655, 200, 876, 665],
    floats: [0.9414755516357863, 0.07058833543792542],
  },
  {
    seed: -1234n,
    samples: [
      [902, 239, 15, 185, 71],
      [0, 4, 1, 3, 2],
      [0, 20, 11],
      [20, 19, 15],
      [78, 59, 19, 11, 23, 14],
      [1, 64, 62, 31, 8, 85],
      [0],
      [],
    ],
    shuffled: [5, 3, 10, 6, 7, 4, 2, 0, 8, 11, 9, 1],
    choices: [266, 655, 200, 876, 665],
    floats: [0.9414755516357863, 0.07058833543792542],
  },
  {
    seed: 4294967301n,
    samples: [
      [322, 994, 578, 29, 727],
      [1, 3, 2, 4, 0],
      [10, 6, 16],
      [5, 12, 14],
      [79, 17, 53, 64, 2, 14],
      [47, 24, 79, 36, 73, 38],
      [0],
      [],
    ],
    shuffled: [10, 7, 2, 9, 5, 1, 4, 0, 6, 11, 3, 8],
    choices: [454, 243, 209, 156, 909],
    floats: [0.9907442449858436, 0.6058481495799066],
  },
  {
    seed: 123456789012345678901234567890n,
    samples: [
      [451, 326, 24, 1079, 551],
      [4, 0, 3, 1, 2],
      [2, 6, 3],
      [3, 4, 16],
      [60, 75, 39, 12, 65, 31],
      [14, 16, 22, 18, 44, 58],
      [0],
      [],
    ],
    shuffled: [3, 2, 10, 7, 4, 11, 1, 6, 8, 5, 0, 9],
    choices: [742, 59, 910, 227, 583],
    floats: [0.6272213356584285, 0.9739328569218852],
  },
];

describe('PythonRandom', () => {
  it.each(CASES)('draws what CPython draws from seed $seed', ({ seed, samples, shuffled, choices, floats }) => {
    const random = new PythonRandom(seed);
    expect(DRAWS.map(([size, count]) => random.sample(range(size), count))).toEqual(samples);
    const items = range(12);
    random.shuffle(items);
    expect(items).toEqual(shuffled);
    expect(random.choices(range(1000), 5)).toEqual(choices);
    expect([random.random(), random.random()]).toEqual(floats);
  });

  it('continues its sequence from call to call', () => {
    const random = new PythonRandom(1234);
    expect(random.sample(range(1119), 25).slice(0, 8)).toEqual([902, 239, 15, 185, 71, 171, 201, 726]);
    expect(random.sample(range(1119), 25).slice(0, 4)).toEqual([954, 140, 182, 1054]);
  });

  it('draws five shots for each of 3,000 documents as CPython does', () => {
    const random = new PythonRandom(1234);
    const hash = createHash('sha256');
    const train = range(7473);
    for (let i = 0; i < 3000; i++) hash.update(`${random.sample(train, 5).join()};`);
    expect(hash.digest('hex')).toBe('820b522b6d388027d77888cab7530fdf42381b01fa40023ea119468b4e5201ac');
  });

  it('refuses to draw more than there is', () => {
    expect(() => new PythonRandom(1).sample(range(3), 4)).toThrow('cannot draw 4 of 3 items');
    expect(() => new PythonRandom(1).choices([], 1)).toThrow('cannot choose from no items');
  });
});
