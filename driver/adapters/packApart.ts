/**
 * Reads and packs adapters in a thread of its own: what names an adapter is all of its bytes, and steps must not wait
 * while these are hashed, and laid out as a device holds them. This thread only writes them.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { AdapterRef } from '../../engine/device.js';
import { UserError } from '../../errors.js';
import type { PackedSlot } from './pack.js';
import type { FromPacker, PackSetting, ToPacker } from './packJob.js';

const MODULE = new URL('./packThread.js', import.meta.url);

/** Whether there is a thread to start: where there are only TypeScript sources (in tests) there is none. */
export const hasPackThread = (): boolean => MODULE.protocol === 'file:' && existsSync(fileURLToPath(MODULE));

interface Job {
  readonly take: (packed: readonly PackedSlot[]) => Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class PackApart {
  private readonly setting: PackSetting;
  private readonly module: URL;
  private readonly jobs = new Map<number, Job>();
  private worker: Worker | undefined;
  private count = 0;

  constructor(setting: PackSetting, module: URL = MODULE) {
    this.setting = setting;
    this.module = module;
  }

  /**
   * Packs an adapter; what is written together is handed to `take`, one after another. Rejects with UserError where the
   * folder holds another one by now, or one that does not fit, before anything was handed over.
   */
  pack({ hash, path }: AdapterRef, take: Job['take']): Promise<void> {
    const worker = (this.worker ??= this.start());
    const id = ++this.count;
    return new Promise((resolve, reject) => {
      this.jobs.set(id, { take, resolve, reject });
      worker.postMessage({ kind: 'pack', id, named: { hash, path } } satisfies ToPacker);
    });
  }

  async close(): Promise<void> {
    await this.worker?.terminate();
  }

  private start(): Worker {
    const worker = new Worker(this.module, { workerData: this.setting });
    worker.unref();
    worker.on('message', (message: FromPacker) => {
      void this.hear(worker, message);
    });
    const end = (): void => {
      if (this.worker === worker) this.worker = undefined;
      for (const { reject } of this.jobs.values())
        reject(new UserError('the thread that reads adapters has ended', 'is there enough memory for it?'));
      this.jobs.clear();
    };
    worker.on('error', end).on('exit', end);
    return worker;
  }

  private async hear(worker: Worker, message: FromPacker): Promise<void> {
    const { id } = message;
    const job = this.jobs.get(id);
    if (message.kind === 'packed') {
      // After an error nothing more of it is taken, and the thread goes on to the next one.
      await job?.take(message.packed).catch((error: unknown) => {
        this.jobs.delete(id);
        job.reject(error);
      });
      worker.postMessage({ kind: 'more', id } satisfies ToPacker);
      return;
    }
    this.jobs.delete(id);
    if (message.kind === 'done') job?.resolve();
    else job?.reject(message.isUser ? new UserError(message.error, message.hint) : new Error(message.error));
  }
}
