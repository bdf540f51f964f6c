/** A model that is loaded before it is known for sure that it is the one that is needed. */
import type { FinishOptions, LoadedModel, ModelLoading } from './loadModel.js';

export class EarlyModel {
  #loading: Promise<LoadedModel> | undefined;

  /** What fails is thrown where the model is taken. */
  constructor(loading: Promise<LoadedModel>) {
    loading.catch(() => undefined);
    this.#loading = loading;
  }

  /** Begins to load a model. Settles as soon as devices are at it, so that this process can do what takes a while. */
  static begin(
    loading: Pick<ModelLoading, 'finish'>,
    options: Omit<FinishOptions, 'onCompiled'> = {},
  ): Promise<EarlyModel> {
    return new Promise((resolve) => {
      const settle = (): void => resolve(early);
      const model = loading.finish({ ...options, onCompiled: settle });
      const early = new EarlyModel(model);
      model.catch(settle);
    });
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
