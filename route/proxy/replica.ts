/** What is known of one replica, by asking it. */
import { isRecord } from '../../system/json.js';
import type { ReplicaConfig } from './config.js';
import type { ReplicaPhase } from './events.js';
import { readMetrics, type ReplicaMetrics } from './metricsText.js';
import { NoAnswer, ReplicaLink } from './replicaLink.js';

/** A model that a replica lists. */
export interface ListedModel {
  readonly id: string;
  /** The model that it is an adapter of. */
  readonly parent?: string;
  /** As the replica has it, for lists of the router's own. */
  readonly entry: Readonly<Record<string, unknown>>;
}

export interface Probed {
  readonly phase: ReplicaPhase;
  readonly why: string;
  /** Undefined where the replica takes no requests. */
  readonly models?: readonly ListedModel[];
  /** Undefined where they cannot be read: requests are answered all the same. */
  readonly metrics?: ReplicaMetrics;
}

const MAX_HEALTH_BYTES = 4096;
const MAX_MODELS_BYTES = 32 << 20;
const MAX_METRICS_BYTES = 8 << 20;
const MAX_MODELS = 65_536 + 64;
const MAX_NAME = 512;

export class Replica {
  readonly id: string;
  readonly weight: number;
  readonly key: string | undefined;
  readonly link: ReplicaLink;
  phase: ReplicaPhase = 'unknown';
  /** Since when it is in this phase, by the router's clock. */
  since = 0;
  why = '';
  /** An administrator wants it to get no new requests. */
  isDrained = false;
  private listed: readonly ListedModel[] = [];
  private names: ReadonlySet<string> = new Set();
  metrics: ReplicaMetrics | undefined;
  /** Loads and unloads that have been done: what was listed before is old. */
  changes = 0;
  /** Probes that failed in a row. */
  failures = 0;
  /** Requests that are under way there: each can be taken away. */
  readonly underWay = new Set<{ takeAway(why: string): void }>();

  constructor(config: ReplicaConfig, connectMs: number) {
    this.id = config.id;
    this.weight = config.weight;
    this.key = config.key;
    this.link = new ReplicaLink(config, { connectMs });
  }

  get models(): readonly ListedModel[] {
    return this.listed;
  }

  set models(models: readonly ListedModel[]) {
    this.listed = models;
    this.names = new Set(models.map(({ id }) => id));
  }

  /** The model that others are adapters of, or stand beside. */
  get base(): string | undefined {
    return this.listed.find(({ parent }) => parent === undefined)?.id;
  }

  get takesRequests(): boolean {
    return this.phase === 'ready' && !this.isDrained;
  }

  lists(model: string): boolean {
    return this.names.has(model);
  }

  /** Asks how it is. Never rejects. */
  async probe(timeoutMs: number): Promise<Probed> {
    const { link } = this;
    try {
      const { status, text } = await link.text('GET', '/health', { maxBytes: MAX_HEALTH_BYTES, timeoutMs });
      if (status !== 200) return notReady(status, text.trim());
      const [models, metrics] = await Promise.all([
        link.text('GET', '/v1/models', { maxBytes: MAX_MODELS_BYTES, timeoutMs }),
        link.text('GET', '/metrics', { maxBytes: MAX_METRICS_BYTES, timeoutMs }).catch(() => undefined),
      ]);
      if (models.status === 401 || models.status === 403)
        return { phase: 'down', why: 'it wants another key: set keyVariable of the replica' };
      const listed = models.status === 200 ? readModels(models.text) : undefined;
      if (listed === undefined) return { phase: 'down', why: 'GET /v1/models gives no list of models' };
      if (listed.length === 0) return { phase: 'loading', why: 'it lists no model' };
      const read = metrics?.status === 200 ? { metrics: readMetrics(metrics.text) } : {};
      return { phase: 'ready', why: '', models: listed, ...read };
    } catch (error) {
      return { phase: 'down', why: error instanceof NoAnswer ? error.message : String(error) };
    }
  }

  /** What it says that it has now. Rejects with NoAnswer. */
  async listAgain(timeoutMs: number): Promise<readonly ListedModel[]> {
    const { status, text } = await this.link.text('GET', '/v1/models', { maxBytes: MAX_MODELS_BYTES, timeoutMs });
    const models = status === 200 ? readModels(text) : undefined;
    if (models === undefined) throw new NoAnswer('GET /v1/models gives no list of models');
    this.models = models;
    return models;
  }
}

function notReady(status: number, text: string): Probed {
  if (text === 'draining') return { phase: 'draining', why: '' };
  if (text === 'loading') return { phase: 'loading', why: '' };
  return { phase: 'down', why: text === 'dead' ? 'its engine does not come on' : `GET /health gives ${status}` };
}

/** Undefined for what is no list. Entries that make no sense are left out. */
export function readModels(text: string): readonly ListedModel[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(value) || !Array.isArray(value['data'])) return undefined;
  return (value['data'] as unknown[]).slice(0, MAX_MODELS).flatMap((entry): ListedModel[] => {
    if (!isRecord(entry)) return [];
    const { id, parent } = entry;
    if (typeof id !== 'string' || id === '' || id.length > MAX_NAME) return [];
    return [{ id, entry, ...(typeof parent === 'string' && parent !== '' ? { parent } : {}) }];
  });
}
