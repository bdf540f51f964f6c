/** Replicas side by side: a model that counts, where the token after n is n + 1, and devices that end. */
import { describe, expect, it } from 'vitest';
import { type DeviceModel, StateLost } from '../../engine/device.js';
import { Replicas } from '../../engine/replicas.js';
import { counted, madeUp } from '../support/deviceModel.js';

interface Replica {
  readonly model: DeviceModel;
  calls(): number;
  /** The next call finds the device gone. `comesBack`: settles when there is another. */
  lose(comesBack: () => Promise<void>): void;
}

function replica(): Replica {
  let calls = 0;
  let lost: (() => Promise<void>) | undefined;
  let back = (): Promise<void> => Promise.resolve();
  return {
    calls: () => calls,
    lose: (comesBack) => (lost = comesBack),
    model: madeUp({
      limits: { tokens: 64, keys: 4096 },
      cacheTokens: 4096,
      maxLength: 1000,
      recovered: () => back(),
      call: async (inputs) => {
        calls++;
        await new Promise((resolve) => setImmediate(resolve));
        if (lost !== undefined) {
          [back, lost] = [lost, undefined];
          throw new StateLost('gone');
        }
        return counted(inputs);
      },
    }),
  };
}

const write = (replicas: Replicas, count: number) =>
  Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const { tokens } = await replicas.generate({ prompt: [100 * i], maxNewTokens: 10 });
      return tokens.map(({ token }) => token);
    }),
  );
const expected = (count: number) =>
  Array.from({ length: count }, (_, i) => Array.from({ length: 10 }, (_each, t) => 100 * i + t + 1));
const never = (): Promise<void> => new Promise(() => undefined);
const noDriver = (): Promise<void> => Promise.reject(new Error('no driver'));

describe('replicas', () => {
  it('shares requests out, also with a replica that comes later', async () => {
    const [a, b, c] = [replica(), replica(), replica()];
    const replicas = new Replicas([a.model, b.model]);
    const texts = write(replicas, 9);
    replicas.add(c.model);
    expect(await texts).toEqual(expected(9));
    for (const { calls } of [a, b, c]) expect(calls()).toBe(10);
  });

  it('sends a prompt to the replica that has its beginning', async () => {
    const [a, b] = [replica(), replica()];
    const replicas = new Replicas([a.model, b.model]);
    const prompt = Array.from({ length: 40 }, (_, i) => i);
    for (let i = 0; i < 5; i++) await replicas.generate({ prompt, maxNewTokens: 2 });
    expect([a.calls(), b.calls(), replicas.counts.foundTokens]).toEqual([10, 0, 4 * 32]);
  });

  it('knows that the pages of a device are gone before the device is asked again', async () => {
    const [a, b] = [replica(), replica()];
    let isLost = false;
    const replicas = new Replicas([{ ...a.model, isLost: () => isLost }]);
    const prompt = Array.from({ length: 40 }, (_, i) => i);
    await replicas.generate({ prompt, maxNewTokens: 1 });
    replicas.add(b.model);
    const busy = replicas.generate({ prompt: [7], maxNewTokens: 30 });
    await replicas.generate({ prompt: prompt.slice(0, 20), maxNewTokens: 1 });
    await busy;
    // The first has two pages of the prompt, the second has one.
    expect([a.calls(), b.calls()]).toEqual([31, 1]);
    isLost = true;
    await replicas.generate({ prompt, maxNewTokens: 1 });
    expect([a.calls(), b.calls()]).toEqual([31, 2]);
  });

  it('has the others take over what a lost device was computing', async () => {
    const [a, b] = [replica(), replica()];
    const replicas = new Replicas([a.model, b.model]);
    const texts = write(replicas, 6);
    a.lose(never);
    expect(await texts).toEqual(expected(6));
    expect(a.calls()).toBe(1);
  });

  it('goes on with a device that comes back, if all were lost', async () => {
    const [a, b] = [replica(), replica()];
    const replicas = new Replicas([a.model, b.model]);
    const texts = write(replicas, 6);
    a.lose(noDriver);
    b.lose(() => new Promise((resolve) => setTimeout(resolve, 20)));
    expect(await texts).toEqual(expected(6));
  });

  it('says why nothing is left', async () => {
    const a = replica();
    const replicas = new Replicas([a.model]);
    a.lose(noDriver);
    await expect(write(replicas, 2)).rejects.toThrow('no driver');
    await expect(write(replicas, 1)).rejects.toThrow('no driver');
  });
});
