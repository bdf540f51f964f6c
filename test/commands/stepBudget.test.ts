/** Tokens of a step beside texts that wait: by the setting, by what was measured, or the default. */
import { expect, it } from 'vitest';
import { decodingSeconds, stepBudget } from '../../commands/stepBudget.js';
import { readSettings } from '../../settings.js';

const none = readSettings({});
/** [tokens, seconds] of each bucket. */
const fn = (name: string, buckets: readonly (readonly [number, number])[]) => ({
  interface: { name, extents: [], inputs: [], outputs: [], takes: [], gives: [] },
  ...(buckets.length === 0
    ? {}
    : { bucketSeconds: buckets.map(([T, seconds]) => ({ extents: { T, R: T }, longest: 64, seconds })) }),
});

it('is the smallest step with nine tenths of the best rate', () => {
  const score = fn('score', [
    [4096, 4.0],
    [256, 0.5],
    [1024, 1.1],
    [2048, 2.0],
  ]);
  expect(stepBudget({ functions: [score, fn('step', [])] }, none)).toBe(1024);
  expect(
    stepBudget(
      {
        functions: [
          score,
          fn('step', [
            [64, 0.1],
            [512, 0.2],
          ]),
        ],
      },
      none,
    ),
  ).toBe(512);
});

it('takes no account of calls in which texts only go on', () => {
  const prompts = fn('step', [
    [256, 0.4],
    [1024, 1.0],
  ]);
  const going = { extents: { T: 512, R: 512 }, longest: 1024, run: 16, seconds: 0.01 };
  const step = { ...prompts, bucketSeconds: [...prompts.bucketSeconds!, going] };
  expect(stepBudget({ functions: [fn('score', []), step] }, none)).toBe(1024);
  // Those say what drafts cost.
  expect(decodingSeconds({ functions: [step] })).toEqual([{ tokens: 512, seconds: 0.01 }]);
  expect(decodingSeconds({ functions: [fn('score', [[64, 1]]), prompts] })).toBeUndefined();
});

it('is 2048 where nothing was measured, and what the setting says', () => {
  const functions = [fn('score', []), fn('step', [])];
  expect(stepBudget({ functions }, none)).toBe(2048);
  expect(stepBudget({ functions }, readSettings({ TILEWRIGHT_STEP_TOKENS: '300' }))).toBe(300);
  for (const TILEWRIGHT_STEP_TOKENS of ['0', '1.5', 'many', '70000'])
    expect(() => stepBudget({ functions }, readSettings({ TILEWRIGHT_STEP_TOKENS }))).toThrow(
      'TILEWRIGHT_STEP_TOKENS: expected a whole number from 1 to 65536',
    );
});
