import { expect, it } from 'vitest';
import type { ExploreRequest } from '../../commands/explore.js';
import { runCli } from './fakeIo.js';

const explore = async (...flags: string[]) => {
  let asked: unknown;
  const outcome = await runCli(['explore', ...flags], {
    explore: (request) => {
      asked = request;
      return Promise.resolve({
        ...{ path: (request as ExploreRequest).output, bytes: 1 << 20, title: 'Compiling m' },
        ...{ functions: [{ name: 'score', stages: 22, kernels: 44 }], notes: ['a note'] },
      });
    },
  });
  return { ...outcome, asked };
};

it('explore takes the flags of inspect, and says what it wrote', async () => {
  const { asked, stdout } = await explore('m', '--target', 'cuda:sm_90a', '--tokens', '256', '--cache-tokens', '512');
  expect(asked).toMatchObject({ model: 'm', target: 'cuda:sm_90a', tokens: 256, cacheTokens: 512 });
  expect(asked).toMatchObject({ output: 'explore.html' });
  expect(asked).not.toHaveProperty('examines');
  expect(stdout).toBe('note: a note\nscore: 22 stages, 44 kernels\nexplore.html: 1 MiB; open it in a browser\n');
});

it('explore compiles kernels where their registers are asked for, and prints JSON', async () => {
  const { asked, stdout } = await explore('m', '--registers', '-o', 'x.html', '--json');
  expect(asked).toMatchObject({ examines: true, output: 'x.html' });
  expect(JSON.parse(stdout)).toMatchObject({ path: 'x.html', functions: [{ name: 'score', kernels: 44 }] });
});

it('explore refuses numbers that are none', async () => {
  const { status, stderr } = await explore('m', '--tokens', 'many');
  expect([status, stderr]).toEqual([2, expect.stringContaining('--tokens')]);
});
