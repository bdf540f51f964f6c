/**
 * Encodes long texts in a thread of its own, one job at a time, each within bounds on time and memory. Where there are
 * only TypeScript sources (in tests) there is no thread, and none is needed.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { TokenizerSpec } from '../../models/tokenizer/files.js';
import { ApiError, badRequest } from '../apiError.js';

export interface EncodeJob {
  readonly texts: readonly string[];
  readonly addSpecialTokens: boolean;
}

export type EncodeReply =
  | { readonly ids: readonly Int32Array[] }
  /** `isRefused`: the tokenizer does not take the text, and the thread can take the next one. */
  | { readonly error: string; readonly isRefused: boolean };

export interface EncodeLimits {
  /** For a job, and for a thread to be ready for the first one. */
  readonly milliseconds: number;
  readonly startMs: number;
  /** Jobs that wait. */
  readonly jobs: number;
  readonly heapMib: number;
}

const LIMITS: EncodeLimits = { milliseconds: 20_000, startMs: 60_000, jobs: 256, heapMib: 1024 };

export const ENCODE_MODULE = new URL('./encodeWorker.js', import.meta.url);

export class EncodeThread {
  /** Undefined where there is no module to start a thread with. */
  static of(spec: TokenizerSpec): EncodeThread | undefined {
    const isThere = ENCODE_MODULE.protocol === 'file:' && existsSync(fileURLToPath(ENCODE_MODULE));
    return isThere ? new EncodeThread(spec) : undefined;
  }

  private readonly spec: TokenizerSpec;
  private readonly module: URL;
  private readonly limits: EncodeLimits;
  private worker: Worker | undefined;
  private waiting = 0;
  private last: Promise<unknown> = Promise.resolve();

  constructor(spec: TokenizerSpec, module: URL = ENCODE_MODULE, limits: EncodeLimits = LIMITS) {
    this.spec = spec;
    this.module = module;
    this.limits = limits;
  }

  /** Rejects with ApiError where too many jobs wait, and where this one takes too long or too much memory. */
  encode(job: EncodeJob): Promise<readonly Int32Array[]> {
    if (this.waiting >= this.limits.jobs)
      return Promise.reject(
        new ApiError(429, 'Too many long texts wait to be tokenized. Try again later.', { retryAfter: 5 }),
      );
    this.waiting++;
    const encoded = this.last.then(() => this.ask(job)).finally(() => this.waiting--);
    this.last = encoded.catch(() => undefined);
    return encoded;
  }

  async close(): Promise<void> {
    await this.worker?.terminate();
    this.worker = undefined;
  }

  private async ask(job: EncodeJob): Promise<readonly Int32Array[]> {
    const { milliseconds, startMs } = this.limits;
    const isNew = this.worker === undefined;
    const worker = (this.worker ??= this.start());
    // A large tokenizer takes a while to open, which is not the text's fault.
    const ready = isNew ? await reply(worker, startMs, () => undefined) : READY;
    const answer = 'error' in ready ? ready : await reply(worker, milliseconds, () => worker.postMessage(job));
    if ('ids' in answer) return answer.ids;
    // A thread that took too long is still at it.
    if (!answer.isRefused) await this.close();
    throw badRequest(`The text cannot be tokenized: ${answer.isRefused ? 'the tokenizer refuses it' : answer.error}.`);
  }

  private start(): Worker {
    const worker = new Worker(this.module, {
      workerData: this.spec,
      resourceLimits: { maxOldGenerationSizeMb: this.limits.heapMib },
    });
    worker.unref();
    return worker;
  }
}

/** What a thread says first, once it can take jobs. */
export const READY: EncodeReply = { ids: [] };

/** The next thing that a thread says within this time. */
async function reply(worker: Worker, milliseconds: number, ask: () => void): Promise<EncodeReply> {
  let timer: NodeJS.Timeout | undefined;
  const answer = await new Promise<EncodeReply>((resolve) => {
    const fail = (error: string): void => resolve({ error, isRefused: false });
    worker.removeAllListeners();
    worker.once('message', resolve);
    worker.once('error', () => fail('it takes too much memory'));
    worker.once('exit', () => fail('its thread ended'));
    timer = setTimeout(() => fail(`it takes more than ${milliseconds / 1000} seconds`), milliseconds);
    ask();
  });
  clearTimeout(timer);
  return answer;
}
