/** Opens a model for a program: options to a request, and a signal that ends the wait. */
import { basename, resolve } from 'node:path';
import { draftModelOf } from '../commands/draftOptions.js';
import { beginLoading, type LoadedModel, type ModelLoading } from '../commands/loadModel.js';
import { Interrupted } from '../commands/runRequest.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { parseInit, type WeightInit } from '../driver/names.js';
import { Phases } from '../driver/phases.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import { mayFeed } from '../driver/targets/index.js';
import { type ModelOptions, present } from './options.js';
import { uiOf } from './progress.js';

export const initOf = (text: string | undefined): WeightInit =>
  text === undefined ? { kind: 'checkpoint' } : parseInit(text);

/** The result of `work`, or Interrupted as soon as the signal is aborted. A late result is passed to `late`. */
export async function unlessAborted<T>(
  signal: AbortSignal | undefined,
  work: Promise<T>,
  late: (value: T) => void,
): Promise<T> {
  if (signal === undefined) return work;
  let stop = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => {
      work.then(late, () => undefined);
      reject(new Interrupted(0));
    };
  });
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** Throws Interrupted once the signal is aborted. */
export function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new Interrupted(0);
}

/** What is asked of a model by these options, and where progress goes. */
export function askedOf(options: ModelOptions): { readonly asked: WithTargetChoice<LoadRequest>; readonly ui: Ui } {
  const { init, precision = 'auto', threads, onProgress, signal: _, adapter, ...rest } = present(options);
  const place = { ...draftModelOf(rest), init: initOf(init), precision, threads: threads ?? detectMachine().cpu.cores };
  const asked = {
    ...rest,
    ...place,
    ...(adapter === undefined ? {} : { adapter: { name: basename(resolve(adapter)), path: adapter } }),
  };
  return { asked, ui: uiOf(onProgress) };
}

/** A model on its devices, and what was found out before it was loaded. */
export interface Opened<T> {
  readonly request: LoadRequest;
  readonly loaded: LoadedModel;
  /** Number of processors of this host. */
  readonly cores: number;
  readonly found: T;
}

/**
 * Loads a model. `choose` may compile it with memory for keys and values before.
 */
export async function load<T>(
  options: ModelOptions,
  choose: (loading: ModelLoading, request: LoadRequest, ui: Ui) => Promise<T>,
): Promise<Opened<T>> {
  const { signal } = options;
  const { asked, ui } = askedOf(options);
  const begin = async (): Promise<Opened<T>> => {
    const settled = await settleTarget(asked, ui);
    const request: LoadRequest = { ...settled, feeds: mayFeed(settled) };
    refuseAborted(signal);
    const loading = beginLoading(request, ui, new Phases());
    const found = await choose(loading, request, ui);
    return { request, loaded: await loading.finish(), cores: loading.cores, found };
  };
  return unlessAborted(signal, begin(), ({ loaded }) => void loaded.close());
}
