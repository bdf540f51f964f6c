/**
 * Models of every family in random sizes: kernel IR against the graph before any pass, with exact sums, and code
 * generated for this machine in f32.
 */
import { describe, expect, it } from 'vitest';
import { RUNNABLE } from '../codegen/harness.js';
import { FAMILY_TYPES, randomFamily } from '../support/families.js';
import { familyDifference } from '../support/familyDifference.js';

const SEEDS = Array.from({ length: 12 }, (_, seed) => seed);
const BEST = RUNNABLE.filter((isa) => isa !== 'amx').at(-1)!;

/** Of log-probabilities in f32, whose weights are those of a bad model: logits of tens, experts of any scale. */
const F32_LOSS = 3e-4;

describe.each(FAMILY_TYPES)('%s', (type) => {
  it.each(SEEDS)('kernels compute what the graph does, seed %i', (seed) => {
    const json = randomFamily(type, seed);
    const { logProb, isArgmax } = familyDifference(json, seed + 1);
    expect(logProb, JSON.stringify(json)).toBeLessThan(1e-9);
    expect(isArgmax, JSON.stringify(json)).toBe(0);
  });

  it('generated code computes what the graph does', () => {
    const json = randomFamily(type, SEEDS.length);
    expect(familyDifference(json, 1, BEST).logProb, JSON.stringify(json)).toBeLessThan(F32_LOSS);
  });
});

/** Of log-probabilities where sums in another order round to another bf16 now and then. */
const BF16_LOSS = 0.01;

describe.skipIf(!RUNNABLE.includes('amx'))('grouped products in AMX tiles, emulated where there are none', () => {
  it.each(['mixtral', 'qwen2_moe', 'qwen3_moe'])('give what kernel IR does: %s', (type) => {
    const json = randomFamily(type, 0);
    expect(familyDifference(json, 1, 'amx').logProb, JSON.stringify(json)).toBeLessThan(BF16_LOSS);
  });
});
