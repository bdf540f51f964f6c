/** A model that is loaded before it is known for sure that it is the one that is needed. */
import type { LoadedModel } from './loadModel.js';

export class EarlyModel {
  #loading: Promise<LoadedModel> | undefined;

  /** What fails is thrown where the model is taken. */
  constructor(loading: Promise<LoadedModel>) {
    loading.catch(() => undefined);
    this.#loading = loading;
  }

  /** The model, for whoever takes it first; undefined if it was closed. */
  async take(): Promise<LoadedModel | undefined> {
    const loading = this.#loading;
    this.#loading = undefined;
    return loading;
  }

  /** Lets go of it, and of its memory, unless it was taken. Never rejects. */
  async close(): Promise<void> {
    await this.take().then(
      (model) => model?.close(),
      () => undefined,
    );
  }
}
