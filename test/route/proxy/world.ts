/** A router before fake replicas, and a client of it. */
import http, { type IncomingHttpHeaders } from 'node:http';
import { configOf } from '../../../route/proxy/config.js';
import type { RouterEvent } from '../../../route/proxy/events.js';
import { RouteServer } from '../../../route/proxy/routeServer.js';
import { routingOf } from '../../../route/proxy/routing.js';
import type { FakeReplica } from './fakeReplica.js';

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Whether it came whole. */
  readonly isWhole: boolean;
}

export interface AskOptions {
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Each section of a configuration overrides quick settings for tests. */
export interface WorldOptions {
  readonly replicas: readonly FakeReplica[];
  readonly adapters?: Readonly<Record<string, unknown>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  readonly probe?: Readonly<Record<string, unknown>>;
  readonly policy?: Readonly<Record<string, unknown>>;
  readonly more?: Readonly<Record<string, unknown>>;
  readonly variables?: Readonly<Record<string, string>>;
}

export class World {
  readonly server: RouteServer;
  readonly events: RouterEvent[] = [];
  readonly replicas: readonly FakeReplica[];
  url = '';
  private readonly agent = new http.Agent({ keepAlive: true });

  constructor({ replicas, adapters = {}, limits, probe, policy, more, variables = {} }: WorldOptions) {
    this.replicas = replicas;
    const config = configOf(
      {
        listen: { port: 0 },
        replicas: replicas.map(({ name, url }) => ({ name, url })),
        adapters,
        policy: { placementSeconds: 0.1, ...policy },
        probe: { periodSeconds: 0.05, timeoutSeconds: 0.5, failures: 2, ...probe },
        limits: { waitSeconds: 5, connectSeconds: 1, ...limits },
        ...more,
      },
      'route.json',
      (name) => variables[name],
    );
    this.server = new RouteServer(config, routingOf(config), {
      version: '0.0.0',
      tell: (event) => void this.events.push(event),
    });
  }

  static async open(options: WorldOptions): Promise<World> {
    const world = new World(options);
    const { port } = await world.server.listen();
    world.url = `http://127.0.0.1:${port}`;
    await world.server.open();
    return world;
  }

  ask(path: string, { method = 'POST', body, headers = {}, signal }: AskOptions = {}): Promise<Reply> {
    const text = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const request = http.request(
        `${this.url}${path}`,
        {
          ...{ method, agent: this.agent },
          headers: { ...(text === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
          ...(signal === undefined ? {} : { signal }),
        },
        (response) => {
          let told = '';
          response.setEncoding('utf8').on('data', (part: string) => (told += part));
          response.on('error', () => undefined);
          response.on('close', () =>
            resolve({
              ...{ status: response.statusCode ?? 0, headers: response.headers, text: told },
              isWhole: response.complete,
            }),
          );
        },
      );
      request.on('error', reject);
      request.end(text);
    });
  }

  complete(body: Readonly<Record<string, unknown>> = {}, more: AskOptions = {}): Promise<Reply> {
    return this.ask('/v1/completions', { body: { model: 'base', prompt: 'hello', ...body }, ...more });
  }

  get(path: string): Promise<Reply> {
    return this.ask(path, { method: 'GET' });
  }

  async close(): Promise<void> {
    this.agent.destroy();
    await this.server.close();
    await Promise.all(this.replicas.map((replica) => replica.kill()));
  }
}
