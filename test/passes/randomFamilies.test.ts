/**
 * Models of every family in random sizes (head widths, ratios of heads, vocabularies, windows, parts of heads that are
 * turned, experts): what passes make of them computes what their graphs do. test/slow/randomFamilies.test.ts tries more
 * of them, and generated code.
 */
import { expect, it } from 'vitest';
import { ARCHITECTURES } from '../../models/families/registry.js';
import { FAMILY_TYPES, randomFamily } from '../support/families.js';
import { familyDifference } from '../support/familyDifference.js';

// Each of these has what others lack: windows, norms of own heads, experts with a shared one, norms before and behind.
const TYPES = ['qwen2', 'stablelm', 'gemma3_text', 'qwen2_moe', 'qwen3_moe'];

it.each(TYPES)('%s', (type) => {
  expect(FAMILY_TYPES).toContain(type);
  const { logProb, isArgmax } = familyDifference(randomFamily(type, 3), 4);
  expect(logProb).toBeLessThan(1e-9);
  expect(isArgmax).toBe(0);
});

it('has random models of every family', () => {
  expect(new Set(FAMILY_TYPES)).toEqual(new Set(ARCHITECTURES.map(({ modelType }) => modelType)));
});
