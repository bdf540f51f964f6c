/** Memory for keys and values: what is asked for, as far as memory that is free now goes. */
import { cacheTokensOf } from '../../ir/stepping.js';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { compileWithCache, type Demand } from '../../commands/cacheSize.js';
import { packedWeightBytes } from '../../commands/work.js';
import { beginOpening, type OpenedModel } from '../../driver/compile/open.js';
import { cpu } from '../../driver/targets/cpu.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import type { CpuModel } from '../../driver/targets/cpuKernels.js';
import { SILENT } from '../support/silent.js';

const MODEL = join(import.meta.dirname, '..', '..', 'models', 'demo');
const PLENTY = 1e12;

/** Tokens that a device gets room for where it has `room` bytes, of which `free` are free now. */
async function tokensOn(
  device: { readonly room?: number; readonly free?: number },
  total: number,
  request: { readonly cacheTokens?: number; readonly parallel?: { replicas: number; stages: number } } = {},
  other: Partial<Demand> = {},
): Promise<number> {
  const opening = beginOpening(
    { model: MODEL, init: { kind: 'checkpoint' }, precision: 'f32' },
    detectMachine(),
    SILENT,
  );
  const { room = PLENTY, free = PLENTY } = device;
  let last: OpenedModel | undefined;
  const compile = async (cacheTokens: number): Promise<OpenedModel> => {
    const opened = await opening.finish(cacheTokens);
    const devices = { ...cpu.devices, isHost: false, memoryBytes: () => room, freeBytes: () => free };
    const target = { ...cpu, devices };
    return (last = { ...opened, model: { ...(opened.model as CpuModel), target } });
  };
  const demand = { prompt: 20, where: 'prompt 1', least: 21, longest: 20, total, ...other };
  await compileWithCache({ compile, checkpoint: opening.checkpoint }, { model: MODEL, ...request }, demand, SILENT);
  return cacheTokensOf(last!.model)!;
}

describe('memory for keys and values on a device', () => {
  it('is what the prompts need, as a power of two', async () => {
    expect(await tokensOn({}, 20)).toBe(4096);
    expect(await tokensOn({}, 5000)).toBe(8192);
  });

  it('has room for a whole text, however many others there are', async () => {
    expect(await tokensOn({}, 65_536, {}, { longest: 70_000 })).toBe(131_072);
    expect(await tokensOn({}, 20, {}, { longest: 5000 })).toBe(8192);
  });

  it('is refused where a text that has to be whole would not be', async () => {
    const whole = { least: 276, longest: 276 };
    await expect(tokensOn({}, 276, { cacheTokens: 272 }, whole)).rejects.toMatchObject({
      message: '--cache-tokens 272: prompt 1 alone has 20 tokens and 256 more to generate',
      hint: 'use --cache-tokens 288, or more',
    });
    expect(await tokensOn({}, 276, { cacheTokens: 288 }, whole)).toBe(288);
    // A text that may end for lack of memory needs room for its prompt and one token.
    expect(await tokensOn({}, 276, { cacheTokens: 32 })).toBe(32);
  });

  it('is what is left of what is free, not of what there is', async () => {
    const opening = beginOpening(
      { model: MODEL, init: { kind: 'checkpoint' }, precision: 'f32' },
      detectMachine(),
      SILENT,
    );
    const { plan } = (await opening.finish(4096)).model;
    const arena = Math.max(...plan.functions.map(({ arenaBytes }) => arenaBytes));
    const tokenBytes = plan.states.reduce((sum, { columns }) => sum + 4 * columns, 0);
    const free = 2 * packedWeightBytes(plan) + 2 * arena + 1000 * tokenBytes;
    const tokens = await tokensOn({ free }, 5000);
    expect(tokens).toBeLessThan(8192);
    expect(tokens % 16).toBe(0);
    expect(await tokensOn({ free: free + 160 * tokenBytes }, 5000)).toBe(tokens + 160);
    expect(await tokensOn({ room: free }, 5000)).toBe(tokens);
    await expect(tokensOn({ free }, 5000, { cacheTokens: 8192 })).rejects.toMatchObject({
      hint: `use --cache-tokens ${tokens}, or leave it out`,
    });
    await expect(tokensOn({ free: 1000 }, 20)).rejects.toThrow('prompt 1: no room for the keys and values');
    // What a hint names fits, however little memory is left besides.
    for (const pages of [1, 2, 3]) {
      const left = free + 16 * pages * tokenBytes;
      const hinted = await tokensOn({ free: left }, 5000);
      expect(await tokensOn({ free: left }, 5000, { cacheTokens: hinted })).toBe(hinted);
    }
    // Stages of a pipeline have room for more together, though each has two sets of activations.
    const staged = await tokensOn({ free }, 65_536, { parallel: { replicas: 1, stages: 2 } });
    expect(staged).toBeGreaterThan(1.5 * tokens);
  });
});
