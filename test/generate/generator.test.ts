/** Sequences against a model that counts: the token after n is n + 1. */
import { describe, expect, it } from 'vitest';
import { Generator, type Stepper } from '../../generate/generator.js';

const MAX_LENGTH = 64;

/** `fails`: tokens after which nothing is finite. */
function counter(
  options: { cacheTokens?: number; keys?: number; fails?: ReadonlySet<number>; onStep?: () => void } = {},
): Stepper {
  const { cacheTokens = 1024, keys = 1024, fails = new Set<number>(), onStep } = options;
  return {
    limits: { tokens: 32, keys },
    cacheTokens,
    maxLength: MAX_LENGTH,
    step: ({ tokens, row }) => {
      onStep?.();
      const rows = [...row].flatMap((at, i) => (fails.has(tokens[at]!) ? [i] : []));
      if (rows.length > 0) return Promise.reject(Object.assign(new Error('not finite'), { rows }));
      const drawn = row.map((at) => tokens[at]! + 1);
      const zeros = new Float32Array(row.length);
      return Promise.resolve({ logProb: zeros, drawnLogProb: zeros, isArgmax: drawn.map(() => 1), drawn });
    },
  };
}

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
const idsOf = ({ tokens }: { readonly tokens: readonly { readonly token: number }[] }): number[] =>
  tokens.map(({ token }) => token);

describe('a generator', () => {
  it('ends at a stop token, at the length asked for, and at the end of the context', async () => {
    const generator = new Generator(counter());
    const [eos, length, context] = await Promise.all([
      generator.generate({ prompt: [1], maxNewTokens: 50, stopTokens: new Set([5]) }),
      generator.generate({ prompt: [1], maxNewTokens: 3 }),
      generator.generate({ prompt: range(0, 60), maxNewTokens: 50 }),
    ]);
    expect([eos.reason, idsOf(eos)]).toEqual(['eos', [2, 3, 4, 5]]);
    expect([length.reason, idsOf(length)]).toEqual(['length', [2, 3, 4]]);
    expect([context.reason, idsOf(context)]).toEqual(['context', range(60, 4)]);
  });

  it('chooses no stop token before there are as many tokens as asked for', async () => {
    const base = counter();
    // The most likely token after n is n + 1, the next n + 2.
    const stepper: Stepper = {
      ...base,
      hasLogits: true,
      step: async (inputs) => ({
        ...(await base.step(inputs)),
        logits: Float32Array.from(
          [...inputs.row].flatMap((at) => range(0, 70).map((token) => [2, 1][token - inputs.tokens[at]! - 1] ?? 0)),
        ),
      }),
    };
    const run = async (minNewTokens: number, maxNewTokens = 9) => {
      const request = { prompt: [1], maxNewTokens, minNewTokens, stopTokens: new Set([3, 6]) };
      const result = await new Generator(stepper).generate(request);
      return [result.reason, idsOf(result)];
    };
    expect(await run(0)).toEqual(['eos', [2, 3]]);
    expect(await run(2)).toEqual(['eos', [2, 4, 5, 6]]);
    expect(await run(5)).toEqual(['length', [2, 4, 5, 7, 8, 9, 10, 11, 12]]);
    expect(await run(5, 5)).toEqual(['length', [2, 4, 5, 7, 8]]);
    const without = new Generator(base).generate({
      prompt: [1],
      maxNewTokens: 2,
      minNewTokens: 1,
      stopTokens: new Set([3]),
    });
    await expect(without).rejects.toThrow('compiled without logits');
  });

  it.each([
    ['pages', { cacheTokens: 32 }],
    ['keys of a call', { keys: 32 }],
  ])('ends where a single sequence fills all %s', async (_, limits) => {
    const { reason, tokens } = await new Generator(counter(limits)).generate({
      prompt: range(0, 20),
      maxNewTokens: 40,
    });
    expect([reason, tokens.length]).toEqual(['cache', 12]);
  });

  it('refuses a prompt that cannot be computed, and goes on with others', async () => {
    const generator = new Generator(counter({ cacheTokens: 32 }));
    const long = generator.generate({ prompt: range(0, 32), maxNewTokens: 1 });
    const longer = generator.generate({ prompt: range(0, 65), maxNewTokens: 1 });
    const good = generator.generate({ prompt: [7], maxNewTokens: 1 });
    await expect(long).rejects.toThrow('a prompt of 32 tokens; the cache has room for 32');
    await expect(longer).rejects.toThrow("a prompt of 65 tokens; the model's context has 64");
    expect(idsOf(await good)).toEqual([8]);
  });

  it('keeps what was generated when it is told to stop', async () => {
    const controller = new AbortController();
    let steps = 0;
    const generator = new Generator(counter({ onStep: () => ++steps === 3 && controller.abort() }));
    const stopped = generator.generate({ prompt: [1], maxNewTokens: 50, signal: controller.signal });
    const other = generator.generate({ prompt: [11], maxNewTokens: 6 });
    expect(await stopped).toMatchObject({ reason: 'aborted' });
    expect(idsOf(await stopped)).toEqual([2, 3, 4]);
    expect(idsOf(await other)).toEqual(range(12, 6));
    const late = await generator.generate({ prompt: [1], maxNewTokens: 5, signal: controller.signal });
    expect(late).toMatchObject({ reason: 'aborted', tokens: [] });
    // All pages are back.
    expect(idsOf(await generator.generate({ prompt: [3], maxNewTokens: 2 }))).toEqual([4, 5]);
  });

  it('gives up only the sequence whose value is not finite', async () => {
    const generator = new Generator(counter({ fails: new Set([4]) }));
    const bad = generator.generate({ prompt: [1], maxNewTokens: 9 });
    const good = generator.generate({ prompt: [10], maxNewTokens: 9 });
    await expect(bad).rejects.toThrow('not finite');
    expect(idsOf(await good)).toEqual(range(11, 9));
  });
});
