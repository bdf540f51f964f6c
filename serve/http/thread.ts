/** The thread that speaks HTTP: workerData is HttpSettings. */
import { parentPort, workerData } from 'node:worker_threads';
import { UserError } from '../../errors.js';
import { ApiError } from '../apiError.js';
import { LinkedClient } from '../link/client.js';
import { HttpCounts } from '../metrics/httpCounts.js';
import { openServedModel } from '../texts/servedModel.js';
import { routesOf } from './routes.js';
import { HttpServer } from './server.js';
import type { FromHttp, HttpSettings, ToHttp } from './threadMessages.js';
import { Watchdog } from './watchdog.js';

const port = parentPort;
if (port === null) throw new Error('serve/http/thread runs as a worker thread only');

const tell = (message: FromHttp): void => port.postMessage(message);
const fail = (error: unknown): void => {
  const code = error instanceof Error && 'code' in error ? { code: String(error.code) } : {};
  const hint = error instanceof UserError && error.hint !== undefined ? { hint: error.hint } : {};
  tell({ kind: 'failed', message: error instanceof Error ? error.message : String(error), ...code, ...hint });
};

const { hangMs, ...settings } = workerData as HttpSettings;
const onError = (error: unknown): void =>
  tell({ kind: 'error', text: error instanceof Error ? (error.stack ?? error.message) : String(error) });
// What an endpoint has not caught concerns its own request: no client may end the server for others.
process.on('uncaughtException', onError).on('unhandledRejection', onError);

const counts = new HttpCounts();
const server = new HttpServer({
  ...settings,
  counts,
  onError,
});

function open({ models, port: toEngine, limits, adapters }: Extract<ToHttp, { kind: 'open' }>): void {
  const client = new LinkedClient(models.map(openServedModel), toEngine, limits, onError, adapters);
  server.open(routesOf(client, counts));
  new Watchdog(client, hangMs, (isAlive) => server.setAlive(isAlive));
  tell({ kind: 'open' });
}

async function drain(milliseconds: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, milliseconds)));
  await Promise.race([server.drain(), late]);
  clearTimeout(timer);
  server.abort(new ApiError(503, 'The server is shutting down.', { code: 'shutting_down' }));
  await server.close();
  tell({ kind: 'drained' });
}

port.on('message', (message: ToHttp) => {
  switch (message.kind) {
    case 'open':
      try {
        open(message);
      } catch (error) {
        fail(error);
      }
      return;
    case 'drain':
      void drain(message.milliseconds);
      return;
    default:
      return message satisfies never;
  }
});

server.listen().then((address) => tell({ kind: 'listening', port: address.port }), fail);
