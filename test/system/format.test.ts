/** Numbers as people write them. */
import { expect, it } from 'vitest';
import { counted } from '../../system/text.js';

it('one is singular', () => {
  expect([0, 1, 2, 10_042].map((n) => counted(n, 'question'))).toEqual([
    '0 questions',
    '1 question',
    '2 questions',
    '10,042 questions',
  ]);
});
