/** The thread that speaks HTTP, as the engine's thread sees it. */
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { UserError } from '../../errors.js';
import type { AdapterOptions } from '../adapters/names.js';
import type { QueueLimits } from '../link/client.js';
import type { ModelSource } from '../texts/servedModel.js';
import type { FromHttp, HttpSettings, ToHttp } from './threadMessages.js';

export class HttpThread {
  private readonly worker: Worker;
  /** What it says next, of one of these kinds. */
  private readonly waiting = new Map<FromHttp['kind'], (message: FromHttp) => void>();
  private fail: (error: Error) => void = () => undefined;
  /** Rejects when the thread ends by itself, or cannot do what it is told. */
  readonly failed = new Promise<never>((_, reject) => (this.fail = reject));
  private isClosing = false;

  /** `onError` is told of errors that are no client's fault. */
  constructor(settings: HttpSettings, onError: (text: string) => void) {
    this.failed.catch(() => undefined);
    this.worker = new Worker(new URL('./thread.js', import.meta.url), { workerData: settings });
    this.worker.on('message', (message: FromHttp) => {
      if (message.kind === 'error') onError(message.text);
      else if (message.kind === 'failed') this.fail(errorOf(message, settings));
      else this.waiting.get(message.kind)?.(message);
    });
    this.worker.on('error', (error) => this.fail(error instanceof Error ? error : new Error(String(error))));
    this.worker.on('exit', (status) => {
      if (!this.isClosing) this.fail(new Error(`the thread that speaks HTTP ended with status ${status}`));
    });
  }

  /** Resolves with the port once it listens. Rejects with UserError where it cannot. */
  async listening(): Promise<number> {
    const message = await this.next('listening');
    return message.kind === 'listening' ? message.port : 0;
  }

  /** Models are answered from now on. Resolves with the port of the engine's side. */
  async open(models: readonly ModelSource[], limits: QueueLimits, adapters?: AdapterOptions): Promise<MessagePort> {
    const { port1, port2 } = new MessageChannel();
    this.tell({ kind: 'open', models, port: port2, limits, adapters }, [port2]);
    await this.next('open');
    return port1;
  }

  /** Ends all answers within this time, and all connections. */
  async drain(milliseconds: number): Promise<void> {
    this.tell({ kind: 'drain', milliseconds });
    await this.next('drained');
  }

  async close(): Promise<void> {
    this.isClosing = true;
    await this.worker.terminate();
  }

  private next(kind: FromHttp['kind']): Promise<FromHttp> {
    const message = new Promise<FromHttp>((resolve) => this.waiting.set(kind, resolve));
    return Promise.race([message, this.failed]);
  }

  private tell(message: ToHttp, transfer: readonly MessagePort[] = []): void {
    this.worker.postMessage(message, transfer);
  }
}

function errorOf(
  { message, code, hint }: Extract<FromHttp, { kind: 'failed' }>,
  { host, port }: Pick<HttpSettings, 'host' | 'port'>,
): Error {
  switch (code) {
    case 'EADDRINUSE':
      return new UserError(
        `--port ${port}: another program listens there already`,
        `use another one: --port ${port < 65_535 ? port + 1 : 8000}; or --port 0: one that is free`,
      );
    case 'EACCES':
      return new UserError(
        `--port ${port}: the system does not let you listen there`,
        'use one from 1024: --port 8000',
      );
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return new UserError(
        `--host ${host}: this machine has no such address`,
        'use --host 127.0.0.1, for this machine alone; or --host 0.0.0.0, for all that reach it',
      );
    default:
      return hint === undefined ? new Error(message) : new UserError(message, hint);
  }
}
