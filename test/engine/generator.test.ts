/** Sequences against a model that counts: the token after n is n + 1. */
import { describe, expect, it } from 'vitest';
import { Generator } from '../../engine/generator.js';
import type { Generated } from '../../engine/request.js';
import { Task } from '../../engine/task.js';
import { counting } from './counting.js';
import { Engine } from '../../engine/engine.js';
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import { type DeviceModel, StateLost } from '../../engine/device.js';
import { counted, madeUp, type MadeUpModel } from '../support/deviceModel.js';
import { filteredRows } from '../support/sampling.js';

const MAX_LENGTH = 64;

/** `fails`: tokens after which nothing is finite. */
function counter(
  options: { cacheTokens?: number; keys?: number; fails?: ReadonlySet<number>; onStep?: () => void } = {},
): MadeUpModel {
  const { cacheTokens = 1024, keys = 1024, fails = new Set<number>(), onStep } = options;
  return {
    limits: { tokens: 32, keys },
    cacheTokens,
    maxLength: MAX_LENGTH,
    call: ({ tokens, row }) => {
      onStep?.();
      const rows = [...row].flatMap((at, i) => (fails.has(tokens[at]!) ? [i] : []));
      if (rows.length > 0) return Promise.reject(Object.assign(new Error('not finite'), { rows }));
      return Promise.resolve(counted({ tokens, row }));
    },
  };
}

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);
const idsOf = ({ tokens }: { readonly tokens: readonly { readonly token: number }[] }): number[] =>
  tokens.map(({ token }) => token);

describe('a generator', () => {
  it('ends at a stop token, at the length asked for, and at the end of the context', async () => {
    const generator = Engine.of(madeUp(counter()));
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
    const model = {
      ...base,
      limits: { ...base.limits, filtered: 8, entries: 100 },
      vocab: 70,
      call: async (inputs: StepInputs) => ({
        ...(await base.call(inputs)),
        filtered: filteredRows(inputs, (last) => range(0, 70).map((token) => [2, 1][token - last - 1] ?? 0)),
      }),
    };
    const run = async (minNewTokens: number, maxNewTokens = 9) => {
      const request = { prompt: [1], maxNewTokens, minNewTokens, stopTokens: new Set([3, 6]) };
      const result = await Engine.of(madeUp(model)).generate(request);
      return [result.reason, idsOf(result)];
    };
    expect(await run(0)).toEqual(['eos', [2, 3]]);
    expect(await run(2)).toEqual(['eos', [2, 4, 5, 6]]);
    expect(await run(5)).toEqual(['length', [2, 4, 5, 7, 8, 9, 10, 11, 12]]);
    expect(await run(5, 5)).toEqual(['length', [2, 4, 5, 7, 8]]);
    const without = Engine.of(madeUp(base)).generate({
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
    const { reason, tokens } = await Engine.of(madeUp(counter(limits))).generate({
      prompt: range(0, 20),
      maxNewTokens: 40,
    });
    expect([reason, tokens.length]).toEqual(['cache', 12]);
  });

  it('refuses a prompt that cannot be computed, and goes on with others', async () => {
    const generator = Engine.of(madeUp(counter({ cacheTokens: 32 })));
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
    const generator = Engine.of(madeUp(counter({ onStep: () => ++steps === 3 && controller.abort() })));
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
    const generator = Engine.of(madeUp(counter({ fails: new Set([4]) })));
    const bad = generator.generate({ prompt: [1], maxNewTokens: 9 });
    const good = generator.generate({ prompt: [10], maxNewTokens: 9 });
    await expect(bad).rejects.toThrow('not finite');
    expect(idsOf(await good)).toEqual(range(11, 9));
  });
});

/** A device that executes calls in order, and keeps what it draws for the next one. */
function keeping(options: Parameters<typeof counter>[0] & { readonly lostAt?: ReadonlySet<number> } = {}) {
  const base = counter(options);
  let last: Promise<unknown> = Promise.resolve();
  let kept = new Int32Array(8);
  let [running, most, calls] = [0, 0, 0];
  const model: DeviceModel = madeUp({
    ...base,
    limits: { ...base.limits, keptRows: 8 },
    call: (inputs) => {
      const call = calls++;
      most = Math.max(most, ++running);
      const answer = last.then(async () => {
        await new Promise((resolve) => setImmediate(resolve));
        if (options.lostAt?.has(call) === true) throw new StateLost('gone');
        const tokens = inputs.tokens.map((token, i) => (inputs.isFed![i] === 1 ? kept[inputs.feed![i]!]! : token));
        const outputs = await base.call({ ...inputs, tokens });
        const nextToken = kept.slice();
        inputs.keep!.forEach((row, i) => (row < 0 ? undefined : (nextToken[row] = outputs.nextToken[i]!)));
        kept = nextToken;
        return outputs;
      });
      last = answer.catch(() => undefined).then(() => running--);
      return answer;
    },
    recovered: () => Promise.resolve(),
  });
  return { model, maxRunning: () => most, calls: () => calls };
}

describe('a generator whose device keeps what it draws', () => {
  it('begins a call while another runs, and gives the same', async () => {
    const run = async (model: DeviceModel) => {
      const generator = Engine.of(model);
      const all = await Promise.all([
        generator.generate({ prompt: [1], maxNewTokens: 20, stopTokens: new Set([9]) }),
        generator.generate({ prompt: range(20, 12), maxNewTokens: 7 }),
        generator.generate({ prompt: range(0, 60), maxNewTokens: 50 }),
        ...range(0, 12).map((i) => generator.generate({ prompt: [i], maxNewTokens: 3 + (i % 4) })),
      ]);
      return all.map((each) => [each.reason, idsOf(each)]);
    };
    const { model, maxRunning } = keeping();
    expect(await run(model)).toEqual(await run(madeUp(counter())));
    expect(maxRunning()).toBe(2);
    const small = { cacheTokens: 16 * 6 };
    expect(await run(keeping(small).model)).toEqual(await run(madeUp(counter(small))));
  });

  it('computes a sequence that failed once more by itself, so that the layer can be found', async () => {
    const { model } = keeping({ fails: new Set([4]) });
    const generator = Engine.of(model);
    const bad = generator.generate({ prompt: [1], maxNewTokens: 9 });
    const good = generator.generate({ prompt: [10], maxNewTokens: 9 });
    await expect(bad).rejects.toThrow('not finite');
    expect(idsOf(await good)).toEqual(range(11, 9));
  });

  it('has memory behind as many pages again when another device is there, also where that one is lost', async () => {
    const { model: whole, lose } = counting({ cacheTokens: 16 * 20 });
    let recoveries = 0;
    const resized: number[] = [];
    const generator = new Generator({
      ...whole,
      mappedPages: 5,
      resize: async (pages) => {
        resized.push(pages);
        if (recoveries === 1) throw new StateLost('gone again');
        return whole.resize(pages);
      },
      recovered: async () => {
        await whole.recovered!();
        await whole.resize(5);
        recoveries++;
      },
    });
    const write = (prompt: readonly number[]): Promise<Generated> =>
      new Promise((onEnd, onFail) => {
        generator.start(new Task({ prompt, maxNewTokens: 30 }, generator, { onEnd, onFail }));
      });
    expect(await generator.memory.resize(12)).toBe(12);
    lose(() => Promise.resolve());
    // More than five pages hold, and changes of size meanwhile come in their order.
    const text = write(range(0, 100));
    await expect.poll(() => recoveries).toBe(2);
    const sizes = await Promise.all([generator.memory.resize(15), generator.memory.resize(9)]);
    expect(idsOf(await text)).toEqual(range(100, 30));
    expect([sizes, resized]).toEqual([
      [15, 9],
      [12, 12, 12, 15, 9],
    ]);
  });

  it('computes everything again when its device is lost, and gives the same', async () => {
    for (let at = 0; at < 9; at++) {
      const { model, calls } = keeping({ lostAt: new Set([at, at + 3]) });
      const generator = Engine.of(model);
      const texts = await Promise.all(
        [1, 11].map((first) => generator.generate({ prompt: range(first, 20), maxNewTokens: 8, scoreFrom: 1 })),
      );
      expect(texts.map(idsOf)).toEqual([range(21, 8), range(31, 8)]);
      expect(texts.map(({ promptScores }) => promptScores.length)).toEqual([19, 19]);
      expect(calls()).toBeGreaterThan(8);
    }
  });

  it('does not blame a text for devices that ended before its steps were asked', async () => {
    const { model } = keeping();
    let left = 5;
    const step: DeviceModel['step'] = (message) =>
      left-- > 0 ? Promise.reject(new StateLost('gone', false)) : model.step(message);
    const text = Engine.of({ ...model, step }).generate({ prompt: [1], maxNewTokens: 8 });
    expect(idsOf(await text)).toEqual(range(2, 8));
  });

  it('gives up what ends one device after another', async () => {
    const generator = Engine.of(keeping({ lostAt: new Set(range(0, 9)) }).model);
    const text = generator.generate({ prompt: [1], maxNewTokens: 8 });
    await expect(text).rejects.toThrow('its steps ended 3 devices: gone');
  });
});
