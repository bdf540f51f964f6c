/** What texts of tasks need: their answers may not depend on memory. */
import { describe, expect, it } from 'vitest';
import { compileWithCacheAhead, type Demand, isCacheFor } from '../../commands/cacheSize.js';
import type { ModelLoading } from '../../commands/loadModel.js';
import { demandOf } from '../../commands/promptTokens.js';
import { demandOfTexts, type TextPrompt } from '../../commands/taskTexts.js';
import { SILENT } from '../support/silent.js';

const prompt = (where: string, length: number, maxNewTokens: number, texts = 1): TextPrompt => ({
  ...{ number: 0, request: 0, where, texts, seed: 0 },
  tokens: new Array<number>(length).fill(1),
  generation: { maxNewTokens, stop: [] },
});

describe('memory for keys and values', () => {
  it('holds each text of a task as a whole, not the longest prompt alone', () => {
    expect(demandOfTexts([prompt('long', 90, 10), prompt('wordy', 50, 200, 3)])).toEqual({
      ...{ prompt: 50, where: 'wordy', least: 250, longest: 250 },
      total: 100 + 50 + 3 * 200,
    });
  });

  it('holds a text of generate as a whole where it can, and its prompt in any case', () => {
    const tokens = new Array<number>(30).fill(1);
    expect(demandOf([{ where: 'it', tokens }], 64, { maxPositions: 1000 })).toMatchObject({ least: 31, longest: 94 });
    expect(demandOf([{ where: 'it', tokens }], 64, { maxPositions: 80 })).toMatchObject({ least: 31, longest: 80 });
  });

  it('is made before tokens are counted where the texts of many prompts leave no doubt', async () => {
    const rows = (has: number): Pick<ModelLoading, 'compile' | 'checkpoint'> =>
      ({
        checkpoint: { tensors: new Map(), model: {} },
        compile: (tokens: number) =>
          Promise.resolve({
            model: {
              target: { devices: { isHost: false, memoryBytes: () => Infinity } },
              plan: {
                weights: [],
                constants: [],
                functions: [],
                states: [{ name: 'k', rows: Math.min(has, tokens), columns: 32, dtype: 'f32' }],
              },
            },
          }),
      }) as unknown as Pick<ModelLoading, 'compile' | 'checkpoint'>;
    const many: Demand = { prompt: 900, where: 'a', least: 1200, longest: 1200, total: 1e6 };
    const ahead = await compileWithCacheAhead(rows(Infinity), { model: 'm' }, many);
    expect(ahead?.wanted).toBe(65_536);
    for (const unclear of [{ total: 100_000 }, { least: 40_000, longest: 40_000 }])
      expect(await compileWithCacheAhead(rows(Infinity), { model: 'm' }, { ...many, ...unclear })).toBeUndefined();
    expect(await compileWithCacheAhead(rows(1000), { model: 'm' }, many)).toBeUndefined();
    const asked = await compileWithCacheAhead(rows(Infinity), { model: 'm', cacheTokens: 4096 }, { ...many, total: 5 });
    expect(asked?.wanted).toBe(4096);

    const suits = (demand: Partial<Demand>): boolean =>
      isCacheFor(ahead!, { model: 'm' }, { ...many, ...demand }, SILENT);
    expect(suits({ total: Infinity, least: 1500 })).toBe(true);
    expect(suits({ total: 1000 })).toBe(false);
    expect(suits({ least: 70_000 })).toBe(false);
    expect(isCacheFor(ahead!, { model: 'm', logits: true }, many, SILENT)).toBe(false);
  });
});
