import { expect, it } from 'vitest';
import { Recent } from '../../system/recent.js';

it('counts what happened within the last stretch of time', () => {
  let now = 0;
  const recent = new Recent(100, () => now);
  expect(recent.count).toBe(0);
  for (now of [0, 10, 90]) recent.add();
  expect(recent.count).toBe(3);
  now = 100;
  expect(recent.count).toBe(2);
  now = 189;
  expect(recent.count).toBe(1);
  now = 1000;
  expect(recent.count).toBe(0);
});
