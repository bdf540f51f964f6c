/** A model that is loaded before it is known to be the one: taken once, or closed. */
import { expect, it } from 'vitest';
import { EarlyModel, type LoadedModel } from '../../commands/loadModel.js';

function loaded(): { readonly model: LoadedModel; readonly closed: () => number } {
  let closed = 0;
  const close = (): Promise<void> => {
    closed++;
    return Promise.resolve();
  };
  return { model: { close } as LoadedModel, closed: () => closed };
}

it('is not closed where it was taken', async () => {
  const { model, closed } = loaded();
  const early = new EarlyModel(Promise.resolve(model));
  expect(await early.take()).toBe(model);
  await early.close();
  expect(closed()).toBe(0);
});

it('is closed once, and then there is none to take', async () => {
  const { model, closed } = loaded();
  const early = new EarlyModel(Promise.resolve(model));
  await early.close();
  await early.close();
  expect(await early.take()).toBeUndefined();
  expect(closed()).toBe(1);
});

it('fails where it is taken, not where it is closed', async () => {
  const fails = (): Promise<LoadedModel> => Promise.reject(new Error('no memory'));
  await expect(new EarlyModel(fails()).take()).rejects.toThrow('no memory');
  await new EarlyModel(fails()).close();
});
