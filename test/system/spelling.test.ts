import { expect, it } from 'vitest';
import { nearest } from '../../system/text.js';

it.each([
  ['contxt', ['none', 'context'], 'context'],
  ['TREE', ['none', 'tree'], 'tree'],
  ['rtee', ['none', 'tree'], 'tree'],
  ['zebra', ['none', 'tree'], undefined],
  ['sm_90', ['sm_80', 'sm_90a'], 'sm_90a'],
  ['x'.repeat(1e6), ['x'], undefined],
  ['x', ['y'.repeat(1e6)], undefined],
])('a misspelt word gets a suggestion, if one is near', (given, known, meant) => {
  expect(nearest(given, known)).toBe(meant);
});
