/** What the thread that speaks HTTP is told, and what it tells. */
import type { MessagePort } from 'node:worker_threads';
import type { AdapterOptions } from '../adapters/names.js';
import type { QueueLimits } from '../link/client.js';
import type { ModelSource } from '../texts/servedModel.js';
import type { HttpOptions } from './server.js';

/** The thread's workerData. */
export interface HttpSettings extends Omit<HttpOptions, 'onError' | 'counts'> {
  /** Milliseconds without a step after which the engine counts as hung. */
  readonly hangMs: number;
}

export type ToHttp =
  /** Models are there; `port` leads to the engine. */
  | {
      readonly kind: 'open';
      readonly models: readonly ModelSource[];
      readonly port: MessagePort;
      readonly limits: QueueLimits;
      readonly adapters?: AdapterOptions | undefined;
    }
  /** Takes no more requests; those that are being answered have so long. */
  | { readonly kind: 'drain'; readonly milliseconds: number };

export type FromHttp =
  | { readonly kind: 'listening'; readonly port: number }
  /** It cannot listen, or cannot open a model's texts. */
  | { readonly kind: 'failed'; readonly message: string; readonly code?: string; readonly hint?: string }
  | { readonly kind: 'open' }
  | { readonly kind: 'drained' }
  /** An error that is no client's fault. */
  | { readonly kind: 'error'; readonly text: string };
