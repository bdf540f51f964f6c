/** What texts of tasks need: their answers may not depend on memory. */
import { describe, expect, it } from 'vitest';
import { demandOfTexts, type TextPrompt } from '../../driver/commands/taskTexts.js';
import { demandOf } from '../../driver/commands/promptTokens.js';

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
});
