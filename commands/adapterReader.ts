/**
 * Reads adapters in a thread of its own: what names an adapter is all of its bytes, and an engine must not wait while
 * they are hashed. Where there are only TypeScript sources (in tests) they are read in this thread.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { AdapterRef } from '../engine/device.js';
import { UserError } from '../errors.js';
import type { Adapter } from '../models/adapters/adapter.js';

export interface AdapterRead extends AdapterRef {
  /** Largest rank of its products. */
  readonly rank: number;
  readonly warnings: readonly string[];
}

/** A folder to be read, and what came of it. */
export interface ReadJob {
  readonly id: number;
  readonly path: string;
}
export type ReadReply = { readonly id: number } & (
  | { readonly read: AdapterRead }
  | { readonly error: string; readonly hint?: string | undefined; readonly isUser: boolean }
);

/** Reads an adapter of the checkpoint at `model`. Throws UserError where it does not fit, or no request can have it. */
export async function readAdapter(model: string, path: string): Promise<AdapterRead> {
  const [{ openAdapter }, { openCheckpoint }] = await Promise.all([
    import('../models/adapters/open.js'),
    import('../models/checkpoint.js'),
  ]);
  const adapter = openAdapter(path, openCheckpoint(model));
  requireByRequest(adapter);
  const { hash, rank, warnings } = adapter;
  return { hash, rank, warnings, path: adapter.path };
}

/** Throws UserError for an adapter that changes more than products beside matrices. */
function requireByRequest({ path, replaced }: Adapter): void {
  if (replaced.length === 0) return;
  const shown = replaced.slice(0, 3).join(', ');
  throw new UserError(
    `${path}: it changes ${replaced.length} tensors in ways that cannot be chosen by request: ${shown}` +
      `${replaced.length > 3 ? ', …' : ''}`,
    'merge it into a checkpoint of its own: tilewright merge-adapter; or run it alone: run --adapter',
  );
}

const MODULE = new URL('./adapterThread.js', import.meta.url);

interface Waiting {
  readonly resolve: (read: AdapterRead) => void;
  readonly reject: (error: Error) => void;
}

export class AdapterReader {
  private readonly model: string;
  private readonly waiting = new Map<number, Waiting>();
  private worker: Worker | undefined;
  private count = 0;

  /** `model`: the path of the checkpoint. */
  constructor(model: string) {
    this.model = model;
  }

  /** Rejects with UserError where the folder holds no adapter for requests. */
  async read(path: string): Promise<AdapterRead> {
    if (MODULE.protocol !== 'file:' || !existsSync(fileURLToPath(MODULE))) return readAdapter(this.model, path);
    const worker = (this.worker ??= this.start());
    const id = ++this.count;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      worker.postMessage({ id, path } satisfies ReadJob);
    });
  }

  async close(): Promise<void> {
    await this.worker?.terminate();
  }

  private start(): Worker {
    const worker = new Worker(MODULE, { workerData: this.model });
    worker.unref();
    worker.on('message', (reply: ReadReply) => this.take(reply));
    const end = (): void => {
      this.worker = undefined;
      for (const { reject } of this.waiting.values())
        reject(new UserError('the thread that reads adapters has ended', 'is there enough memory for it?'));
      this.waiting.clear();
    };
    worker.on('error', end).on('exit', end);
    return worker;
  }

  private take(reply: ReadReply): void {
    const asked = this.waiting.get(reply.id);
    this.waiting.delete(reply.id);
    if ('read' in reply) asked?.resolve(reply.read);
    else asked?.reject(reply.isUser ? new UserError(reply.error, reply.hint) : new Error(reply.error));
  }
}
