/**
 * Steps of texts of which some have drafts: all texts are in each, so that no step reads all weights for half of them.
 */
import { afterEach, expect, it, vi } from 'vitest';
import { Engine } from '../../engine/engine.js';
import { clockModel, tokenAfter } from '../support/clockModel.js';
import { H100 } from '../support/draftTraffic.js';

afterEach(() => {
  vi.restoreAllMocks();
});

it.each(['auto', 3] as const)(
  'have all texts, where %s drafts are taken and half of the texts have some',
  async (tokens) => {
    const { model } = clockModel(H100);
    const engine = new Engine();
    const parts: number[] = [];
    const drafted: boolean[] = [];
    const drafter = {
      name: 'half',
      begin: ({ tokens: [text] }: { readonly tokens: readonly number[] }) => ({
        propose: ({ tokens: known }: { readonly tokens: readonly number[] }) => {
          const [next, length] = [tokenAfter(known.at(-1)!, known.length - 1), known.length];
          return { tokens: text! % 2 === 0 ? [] : [next, tokenAfter(next, length)] };
        },
      }),
    };
    const replica = {
      ...model,
      step: (message: Parameters<typeof model.step>[0]) => {
        parts.push(message.sequence.length);
        drafted.push(message.tokens.length > message.sequence.length);
        return model.step(message);
      },
    };
    engine.load('model', { replicas: [replica], drafts: { drafter, tokens } });
    await Promise.all([0, 1, 2, 3].map((text) => engine.generate({ prompt: [text, 7], maxNewTokens: 90 })));
    // Texts with drafts end after a third of the steps.
    const together = parts.lastIndexOf(4);
    expect(parts.slice(0, together + 1)).toEqual(Array.from({ length: together + 1 }, () => 4));
    expect(drafted.slice(0, together).filter(Boolean).length).toBeGreaterThan(20);
    expect(parts.length).toBeLessThanOrEqual(91);
    await engine.close();
  },
);
