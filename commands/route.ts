/**
 * `route`: stands before servers, sends each request to one of them, and has adapters loaded where they are asked for.
 */
import { VERSION } from '../driver/program.js';
import { UserError } from '../errors.js';
import { AdapterBook } from '../route/proxy/adapterBook.js';
import { readConfig, type RouteConfig } from '../route/proxy/config.js';
import type { RouterEvent } from '../route/proxy/events.js';
import { RouteServer } from '../route/proxy/routeServer.js';
import { routingOf } from '../route/proxy/routing.js';
import { readVariable } from '../settings.js';

export interface RouteListener {
  /** Requests are taken at this address from now on; replicas may still have to be asked. */
  onReady(address: string): void;
  onDrain(milliseconds: number): void;
  onEvent(event: RouterEvent): void;
}

/** Routes until the signal is aborted, then ends what runs, in its time. Rejects with UserError for a bad file. */
export async function route(
  { config: file, signal }: { readonly config: string; readonly signal: AbortSignal },
  { onReady, onDrain, onEvent }: RouteListener,
): Promise<void> {
  const config = readConfig(file, readVariable);
  const server = new RouteServer(config, routingOf(config), { version: VERSION, tell: onEvent });
  try {
    const { port } = await listening(server, config, file);
    // Whoever asks before replicas have answered waits for them.
    const opened = server.open();
    onReady(addressOf(config.listen.host, port));
    await Promise.race([untilAborted(signal), opened.then(() => untilAborted(signal))]);
    const milliseconds = 1000 * config.limits.drainSeconds;
    onDrain(milliseconds);
    await server.drain(milliseconds);
  } finally {
    await server.close();
  }
}

export interface CheckedAdapter {
  readonly name: string;
  readonly base: string;
  readonly revision?: string;
  /** Why it cannot be loaded. */
  readonly problem?: string;
}

export interface CheckedConfig {
  readonly config: RouteConfig;
  readonly adapters: readonly CheckedAdapter[];
}

/**
 * Reads the file and the folders that it names; asks no replica. Rejects with UserError where it cannot be meant so.
 */
export async function checkRoute(file: string): Promise<CheckedConfig> {
  const config = readConfig(file, readVariable);
  const book = new AdapterBook(config.adapters, () => undefined);
  await book.look();
  const adapters = config.adapters.map(({ name, base }): CheckedAdapter => {
    const revision = book.sourceOf(name)?.revision;
    const problem = book.problemOf(name);
    return {
      name,
      base,
      ...(revision === undefined ? {} : { revision }),
      ...(problem === undefined ? {} : { problem }),
    };
  });
  return { config, adapters };
}

async function listening(server: RouteServer, config: RouteConfig, file: string): Promise<{ readonly port: number }> {
  const { host, port } = config.listen;
  try {
    return await server.listen();
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    const why =
      code === 'EADDRINUSE'
        ? 'another program listens there already'
        : code === 'EACCES'
          ? 'the system does not let you listen there'
          : /^(EADDRNOTAVAIL|ENOTFOUND|EAI_AGAIN)$/.test(code)
            ? 'this machine has no such address'
            : undefined;
    if (why === undefined) throw error;
    throw new UserError(
      `${file}: listen: ${host}, port ${port}: ${why}`,
      'for example: "listen": {"host": "127.0.0.1", "port": 8100}; port 0: one that is free',
      { cause: error },
    );
  }
}

const addressOf = (host: string, port: number): string => `http://${host.includes(':') ? `[${host}]` : host}:${port}`;

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
