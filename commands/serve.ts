/** `serve`: listens at once, opens models for an engine, and answers over HTTP until it is told to stop. */
import { basename } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { VERSION } from '../driver/program.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { Engine } from '../engine/engine.js';
import { readGenerationConfig } from '../models/generationConfig.js';
import { classesOf } from '../models/model/model.js';
import { requireModelAt } from '../models/model/refusals.js';
import { serverPage } from '../report/writePage.js';
import type { QueueLimits } from '../serve/link/client.js';
import { EngineHost } from '../serve/link/host.js';
import { HttpThread } from '../serve/http/httpThread.js';
import type { HttpSettings } from '../serve/http/threadMessages.js';
import type { ModelSource } from '../serve/servedModel.js';
import { EngineModels, type OpenedForEngine } from './engineModels.js';

export interface ServeRequest extends LoadRequest {
  readonly http: Omit<HttpSettings, 'version' | 'page'>;
  /** Names that clients may ask for the model by. Default: that of its folder. */
  readonly names: readonly string[];
  readonly queue: QueueLimits;
  /** Milliseconds that running requests have once the signal is aborted. */
  readonly shutdownMs: number;
}

/** Name of the model in the engine. */
const MODEL = 'model';

/**
 * Serves until the request's signal is aborted, then ends what runs, in its time. `onReady` is told the address.
 * Rejects with UserError where the port or the model cannot be had.
 */
export async function serve(
  asked: WithTargetChoice<ServeRequest>,
  ui: Ui,
  onReady: (address: string) => void,
): Promise<void> {
  requireModelAt(asked.model);
  const { http, names, queue, shutdownMs, signal, ...request } = asked;
  const thread = new HttpThread({ ...http, version: VERSION, page: serverPage() }, (text) =>
    ui.warn(stripVTControlCharacters(text)),
  );
  const engine = new Engine();
  let host: EngineHost | undefined;
  try {
    const port = await thread.listening();
    const opened = await Promise.race([new EngineModels().open(request, ui), thread.failed]);
    engine.load(MODEL, { ...opened.model, close: () => opened.loaded.close() });
    const source = sourceOf(engine, opened, names.length > 0 ? names : [nameOf(request.model)]);
    host = new EngineHost(engine, await thread.open([source], queue));
    ui.phase('serve');
    onReady(addressOf(http.host, port));
    await Promise.race([untilAborted(signal), thread.failed]);
    await thread.drain(shutdownMs);
  } finally {
    host?.close();
    await engine.close();
    await thread.close();
  }
}

const nameOf = (path: string): string => basename(path).replace(/[.](gguf|json)$/, '') || 'model';

const addressOf = (host: string, port: number): string => `http://${host.includes(':') ? `[${host}]` : host}:${port}`;

function untilAborted(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) resolve();
    else signal?.addEventListener('abort', () => resolve(), { once: true });
  });
}

function sourceOf(engine: Engine, { loaded }: OpenedForEngine, names: readonly string[]): ModelSource {
  const { checkpoint, tokenizer, id } = loaded;
  const { config, path } = checkpoint;
  const { maxLength, room } = engine.limitsOf(MODEL);
  const { spec, bos, eos } = tokenizer;
  return {
    key: MODEL,
    names,
    created: Math.floor(Date.now() / 1000),
    kind: classesOf(config) === undefined ? 'text' : 'reward',
    maxLength: Math.min(maxLength, room),
    vocabSize: config.vocabSize,
    eosTokenIds: [...readGenerationConfig(checkpoint, tokenizer).eosTokenIds],
    fingerprint: `tilewright-${VERSION}-${id}`,
    files: { path, tokenizer: spec, bounds: { ...(bos && { bos }), ...(eos && { eos }) } },
  };
}
