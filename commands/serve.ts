/** `serve`: listens at once, opens models for an engine, and answers over HTTP until it is told to stop. */
import { basename, resolve } from 'node:path';
import { checkpointPath } from '../driver/artifact/load.js';
import { readManifest } from '../driver/artifact/manifest.js';
import { isArtifact } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { VERSION } from '../driver/program.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { Engine } from '../engine/engine.js';
import { UsageError } from '../errors.js';
import { readGenerationConfig } from '../models/generationConfig.js';
import { classesOf } from '../models/model/model.js';
import { requireModelAt } from '../models/model/refusals.js';
import { serverPage } from '../report/writePage.js';
import { GrammarGuides } from '../serve/link/guides.js';
import { HttpThread } from '../serve/http/httpThread.js';
import type { HttpSettings } from '../serve/http/threadMessages.js';
import type { QueueLimits } from '../serve/link/client.js';
import { EngineHost } from '../serve/link/host.js';
import type { AnswerParsers } from '../serve/models.js';
import type { ModelSource } from '../serve/texts/servedModel.js';
import { defined } from '../system/defined.js';
import { scoringFacts } from './verifier.js';
import { draftModelOf, type DraftOptions } from './draftOptions.js';
import { modelDrafts } from './drafts.js';
import { EngineModels, type OpenedForEngine } from './engineModels.js';
import { OpenedAdapters, type ServedAdapters } from './servedAdapters.js';
import { systemFingerprint } from './systemFingerprint.js';

export interface ServeRequest extends Omit<LoadRequest, 'adapters'>, DraftOptions {
  readonly http: Omit<HttpSettings, 'version' | 'page'>;
  /** Names that clients may ask for the model by. Default: that of its folder. */
  readonly names: readonly string[];
  /** A second model in the same engine: a reward model, or another one. */
  readonly verifier?: {
    readonly model: string;
    readonly name?: string;
    /** What a language model was trained as. Default: what the name of its folder says. */
    readonly language?: string;
  };
  /** Adapters of the model, by request. Default: it has no slots for any. */
  readonly adapters?: ServedAdapters;
  readonly queue: QueueLimits;
  /** How answers are read, where that is not found in the chat template. */
  readonly parsers: AnswerParsers;
  /** Milliseconds that running requests have once the signal is aborted. */
  readonly shutdownMs: number;
}

export interface ServeListener {
  /** Requests are answered at this address from now on. */
  onReady(address: string): void;
  /** Requests are taken no more, and those that run have their time. */
  onDrain(): void;
  /** An error that is no client's fault: a stack. */
  onError(text: string): void;
}

/**
 * Serves until the request's signal is aborted, then ends what runs, in its time. Rejects with UserError where the port
 * or a model cannot be had.
 */
export async function serve(
  asked: WithTargetChoice<ServeRequest>,
  ui: Ui,
  { onReady, onDrain, onError }: ServeListener,
): Promise<void> {
  const { http, names, verifier, queue, parsers, shutdownMs, signal, adapters: asksAdapters, ...rest } = asked;
  requireModelAt(rest.model);
  const adapters = asksAdapters && (await OpenedAdapters.open(checkpointAt(rest), asksAdapters));
  const request = { ...rest, ...draftModelOf(rest), ...defined({ adapters: adapters?.slots }) };
  const wanted: readonly Wanted[] = [
    { key: 'model', names: names.length > 0 ? names : [nameOf(request.model)], parsers, request },
    ...(verifier === undefined
      ? []
      : [
          {
            key: 'verifier',
            names: [verifier.name ?? nameOf(verifier.model)],
            ...defined({ language: verifier.language }),
            request: besideRequest(request, verifier),
          },
        ]),
  ];
  for (const each of wanted) requireModelAt(each.request.model);
  refuseSameNames(wanted);
  const thread = new HttpThread({ ...http, version: VERSION, page: serverPage() }, (text) => onError(text));
  const engine = new Engine();
  let host: EngineHost | undefined;
  let guides: GrammarGuides | undefined;
  try {
    const port = await thread.listening();
    const sources = await Promise.race([openAll(engine, wanted, ui), thread.failed]);
    guides = new GrammarGuides(
      sources.flatMap(({ kind, key, vocabSize, eosTokenIds, files: { tokenizer } }) =>
        kind === 'text' ? [{ key, vocabSize, eosTokenIds, tokenizer }] : [],
      ),
    );
    guides.open();
    const source = adapters?.sourceFor(engine, 'model');
    host = new EngineHost(engine, await thread.open(sources, queue, adapters?.options), guides, source);
    ui.phase('serve');
    onReady(addressOf(http.host, port));
    await Promise.race([untilAborted(signal), thread.failed]);
    onDrain();
    await thread.drain(shutdownMs);
  } finally {
    host?.close();
    await engine.close();
    await guides?.close();
    await adapters?.close();
    await thread.close();
  }
}

/** Where the base of adapters lies: an artifact says where its checkpoint is. */
const checkpointAt = ({ model, checkpoint }: Pick<LoadRequest, 'model' | 'checkpoint'>): string =>
  isArtifact(model) ? checkpointPath(model, readManifest(model), checkpoint) : (checkpoint ?? model);

/** A model that is to be served. */
interface Wanted {
  /** Its name in the engine. */
  readonly key: string;
  readonly names: readonly string[];
  readonly parsers?: AnswerParsers;
  readonly language?: string;
  readonly request: WithTargetChoice<LoadRequest & DraftOptions>;
}

/** What is asked of the second model: the devices are the first one's, what is said of an artifact is not. */
function besideRequest(
  {
    checkpoint: _,
    trustsCode: __,
    dump: ___,
    cacheTokens: ____,
    adapters: _____,
    draftModel,
    draft,
    ...request
  }: Wanted['request'],
  { model }: { readonly model: string },
): Wanted['request'] {
  // A draft that is opened with a model is that model's own.
  return { ...request, model, ...(draftModel === undefined ? defined({ draft }) : {}) };
}

function refuseSameNames(wanted: readonly Wanted[]): void {
  const names = wanted.flatMap((each) => each.names);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined)
    throw new UsageError(
      `two models, or one twice, would be called ${JSON.stringify(twice)}`,
      'give them names: --served-model-name first --verifier-name second',
    );
}

async function openAll(engine: Engine, wanted: readonly Wanted[], ui: Ui): Promise<readonly ModelSource[]> {
  const models = new EngineModels();
  const sources: ModelSource[] = [];
  for (const each of wanted) {
    const opened = await models.open(each.request, ui, { drafts: modelDrafts(each.request) });
    engine.load(each.key, { ...opened.model, close: () => opened.loaded.close() });
    sources.push({ ...sourceOf(engine, opened, each), ...defined({ parsers: each.parsers }) });
  }
  return sources;
}

const nameOf = (path: string): string => basename(resolve(path)).replace(/[.](gguf|json)$/, '') || 'model';

const addressOf = (host: string, port: number): string => `http://${host.includes(':') ? `[${host}]` : host}:${port}`;

function untilAborted(signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) resolve();
    else signal?.addEventListener('abort', () => resolve(), { once: true });
  });
}

function sourceOf(engine: Engine, { loaded }: OpenedForEngine, { key, names, language }: Wanted): ModelSource {
  const { checkpoint, tokenizer } = loaded;
  const { config, path } = checkpoint;
  const { maxLength, room } = engine.limitsOf(key);
  const { spec, bos, eos } = tokenizer;
  return {
    key,
    names,
    created: Math.floor(Date.now() / 1000),
    kind: classesOf(config) === undefined ? 'text' : 'reward',
    maxLength: Math.min(maxLength, room),
    vocabSize: config.vocabSize,
    eosTokenIds: [...readGenerationConfig(checkpoint, tokenizer).eosTokenIds],
    bosTokenId: bos?.id ?? config.bosTokenId,
    ownEosTokenId: eos?.id,
    fingerprint: systemFingerprint(loaded),
    scoring: scoringFacts(loaded, language),
    files: { path, tokenizer: spec, bounds: { ...(bos && { bos }), ...(eos && { eos }) } },
  };
}
