/** Replicas side by side: a model that counts, where the token after n is n + 1, and devices that end. */
import { describe, expect, it } from 'vitest';
import { type DeviceModel, StateLost } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { Replicas } from '../../engine/replicas.js';
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

function engineOf(models: readonly DeviceModel[]): { readonly engine: Engine; readonly replicas: Replicas } {
  const engine = new Engine();
  return { engine, replicas: engine.load('m', { replicas: models }) };
}

const write = (engine: Engine, count: number) =>
  Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const { tokens } = await engine.generate({ prompt: [100 * i], maxNewTokens: 10 });
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
    const { engine, replicas } = engineOf([a.model, b.model]);
    const texts = write(engine, 9);
    replicas.add(c.model);
    expect(await texts).toEqual(expected(9));
    for (const { calls } of [a, b, c]) expect(calls()).toBe(10);
  });

  it('sends a prompt to the replica that has its beginning', async () => {
    const [a, b] = [replica(), replica()];
    const { engine } = engineOf([a.model, b.model]);
    const prompt = Array.from({ length: 40 }, (_, i) => i);
    for (let i = 0; i < 5; i++) await engine.generate({ prompt, maxNewTokens: 2 });
    expect([a.calls(), b.calls(), engine.countsOf().foundTokens]).toEqual([10, 0, 4 * 39]);
  });

  it('keeps requests of one affinity on one replica, and gives neighbours to others in turn', async () => {
    const replicas = [replica(), replica(), replica()];
    const { engine } = engineOf(replicas.map(({ model }) => model));
    const ask = (affinity: number) => engine.generate({ prompt: [100 * affinity], maxNewTokens: 4, affinity });
    for (let i = 0; i < 5; i++) await ask(1);
    expect(replicas.map(({ calls }) => calls())).toEqual([0, 20, 0]);
    await Promise.all([0, 1, 2, 3, 4, 5].map(ask));
    expect(replicas.map(({ calls }) => calls())).toEqual([4, 24, 4]);
  });

  it('shares out what has the affinity of a replica that is gone, until it is back', async () => {
    const replicas = [replica(), replica(), replica()];
    const [, b] = replicas;
    const { engine } = engineOf(replicas.map(({ model }) => model));
    let comeBack = (): void => undefined;
    b!.lose(() => new Promise((resolve) => (comeBack = resolve)));
    const ask = async (affinity: number): Promise<readonly number[]> => {
      const { tokens } = await engine.generate({ prompt: [100 * affinity], maxNewTokens: 4, affinity });
      return tokens.map(({ token }) => token);
    };
    const asked = [1, 4, 7, 10];
    expect(await Promise.all(asked.map(ask))).toEqual(asked.map((i) => [1, 2, 3, 4].map((n) => 100 * i + n)));
    // The step that found it gone, and all others beside it.
    expect(replicas.map(({ calls }) => calls())).toEqual([4, 1, 4]);
    comeBack();
    await expect.poll(async () => (await ask(1), b!.calls())).toBeGreaterThan(1);
  });

  it.each([-1, 0.5, NaN])('refuses the affinity %s', (affinity) => {
    const { engine } = engineOf([replica().model]);
    expect(() => engine.submit({ kind: 'generate', prompt: [1], maxNewTokens: 1, affinity })).toThrow(
      /affinity: .*expected a whole number from 0/,
    );
  });

  it('knows that the pages of a device are gone before the device is asked again', async () => {
    const [a, b] = [replica(), replica()];
    let isLost = false;
    const { engine, replicas } = engineOf([{ ...a.model, isLost: () => isLost }]);
    const prompt = Array.from({ length: 40 }, (_, i) => i);
    await engine.generate({ prompt, maxNewTokens: 1 });
    replicas.add(b.model);
    const busy = engine.generate({ prompt: [7], maxNewTokens: 30 });
    await engine.generate({ prompt: prompt.slice(0, 20), maxNewTokens: 1 });
    await busy;
    // The first has two pages of the prompt, the second has one.
    expect([a.calls(), b.calls()]).toEqual([31, 1]);
    isLost = true;
    await engine.generate({ prompt, maxNewTokens: 1 });
    expect([a.calls(), b.calls()]).toEqual([31, 2]);
  });

  it('has the others take over what a lost device was computing', async () => {
    const [a, b] = [replica(), replica()];
    const { engine } = engineOf([a.model, b.model]);
    const texts = write(engine, 6);
    a.lose(never);
    expect(await texts).toEqual(expected(6));
    expect(a.calls()).toBe(1);
  });

  it('goes on with a device that comes back, if all were lost', async () => {
    const [a, b] = [replica(), replica()];
    const { engine } = engineOf([a.model, b.model]);
    const texts = write(engine, 6);
    a.lose(noDriver);
    b.lose(() => new Promise((resolve) => setTimeout(resolve, 20)));
    expect(await texts).toEqual(expected(6));
  });

  it('says why nothing is left', async () => {
    const a = replica();
    const { engine } = engineOf([a.model]);
    a.lose(noDriver);
    await expect(write(engine, 2)).rejects.toThrow('no driver');
    await expect(write(engine, 1)).rejects.toThrow('no driver');
  });
});
