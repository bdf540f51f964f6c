/** Models that are served, for tests of endpoints: an engine with a made-up device, all in one thread. */
import { join } from 'node:path';
import { MessageChannel } from 'node:worker_threads';
import type { DeviceModel } from '../../engine/device.js';
import { Engine, type EngineOptions } from '../../engine/engine.js';
import type { ModelDrafts } from '../../engine/speculation.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import type { AdapterOptions, AdapterSource } from '../../serve/adapters/names.js';
import type { Route } from '../../serve/exchange.js';
import { routesOf } from '../../serve/http/routes.js';
import { type HttpOptions, HttpServer } from '../../serve/http/server.js';
import { LinkedClient, type QueueLimits } from '../../serve/link/client.js';
import { EngineHost, type Guides } from '../../serve/link/host.js';
import type { ScoringFacts } from '../../serve/models.js';
import { openServedModel, type OpenServedModel } from '../../serve/texts/servedModel.js';
import { pathModel, type PathModelOptions } from './pathModel.js';

export const DEMO = join(import.meta.dirname, '..', '..', 'models', 'demo');
const DEMO_VOCAB = 4096;

export interface ServedOptions {
  /** Of the device that is made up where none is given: its answers depend on every token of a text. */
  readonly path?: Partial<PathModelOptions>;
  readonly device?: DeviceModel;
  readonly kind?: 'text' | 'reward';
  readonly scoring?: ScoringFacts;
  /** Default: `demo`. */
  readonly names?: readonly string[];
  /** Tokens that end an answer. Default: 2. */
  readonly eosTokenIds?: readonly number[];
  /** The checkpoint whose tokenizer and template texts are made with. Default: models/demo. */
  readonly folder?: string;
  /** A second model, `judge`, whose texts are the first one's. */
  readonly judge?: {
    readonly device: DeviceModel;
    readonly scoring: ScoringFacts;
    /** Default: reward. */
    readonly kind?: 'text' | 'reward';
  };
  readonly engine?: EngineOptions;
  /** Of the first model. Default: nothing is to be proposed. */
  readonly drafts?: ModelDrafts;
  readonly queue?: QueueLimits;
  readonly guides?: Guides;
  /** Names of adapters of the first model, and who reads them. */
  readonly adapters?: { readonly options: AdapterOptions; readonly source: AdapterSource };
}

export interface Served {
  readonly client: LinkedClient;
  readonly engine: Engine;
  readonly model: OpenServedModel;
  /** Serves on a port of its own. `routes`: default all. */
  listen(
    options?: Partial<HttpOptions>,
    routes?: (client: LinkedClient) => readonly Route[],
  ): Promise<{ readonly url: string; readonly server: HttpServer }>;
  close(): Promise<void>;
}

/** Requests and events go through a port, as they do between threads. */
export function servedModels(options: ServedOptions = {}): Served {
  const { kind = 'text', names = ['demo'], eosTokenIds = [2], folder = DEMO, queue, guides } = options;
  const device = options.device ?? pathModel({ vocab: DEMO_VOCAB, ...options.path });
  const engine = new Engine(options.engine);
  engine.load('model', { replicas: [device], vocabSize: DEMO_VOCAB, drafts: options.drafts });
  const { judge } = options;
  if (judge !== undefined) engine.load('judge', { replicas: [judge.device], vocabSize: DEMO_VOCAB });
  const { spec, bos, eos } = describeTokenizer(folder);
  const open = (key: string, own: Pick<OpenServedModel, 'names' | 'kind' | 'scoring'>): OpenServedModel => {
    const { maxLength, room } = engine.limitsOf(key);
    return openServedModel({
      ...own,
      key,
      created: 1_700_000_000,
      maxLength: Math.min(maxLength, room),
      vocabSize: DEMO_VOCAB,
      eosTokenIds,
      bosTokenId: bos?.id,
      ownEosTokenId: eos?.id,
      fingerprint: 'made-up',
      files: { path: folder, tokenizer: spec, bounds: { ...(bos && { bos }), ...(eos && { eos }) } },
    });
  };
  const model = open('model', { names, kind, scoring: options.scoring });
  const models =
    judge === undefined
      ? [model]
      : [model, open('judge', { names: ['judge'], kind: judge.kind ?? 'reward', scoring: judge.scoring })];
  const { port1, port2 } = new MessageChannel();
  const host = new EngineHost(engine, port1, guides, options.adapters?.source);
  const client = new LinkedClient(models, port2, queue, undefined, options.adapters?.options);
  const servers: HttpServer[] = [];
  return {
    client,
    engine,
    model,
    listen: async (http = {}, routes = routesOf) => {
      const server = new HttpServer({ host: '127.0.0.1', port: 0, version: '0', ...http });
      servers.push(server);
      const { port } = await server.listen();
      server.open(routes(client));
      return { url: `http://127.0.0.1:${port}`, server };
    },
    close: async () => {
      await Promise.all(servers.map((server) => server.close()));
      client.close();
      host.close();
      await engine.close();
      for (const { texts } of models) await texts.close();
      port1.close();
    },
  };
}
