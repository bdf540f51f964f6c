/**
 * The router as a server: connections and their limits, keys, and what stands before every endpoint. Requests for
 * models go on to replicas (forward.ts); the rest is answered here.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ApiError, badRequest } from '../../serve/apiError.js';
import { KeyRing } from '../../serve/http/keys.js';
import { isLoopbackHost, isLoopbackOrigin } from '../../serve/http/origins.js';
import { idOf, urlOf } from '../../serve/http/requestHead.js';
import { isRecord } from '../../system/json.js';
import type { Routing } from '../policy.js';
import { AdapterBook } from './adapterBook.js';
import { scanBody } from './bodyScan.js';
import type { RouteConfig } from './config.js';
import { type Endpoint, endpointOf } from './endpoints.js';
import type { Tell } from './events.js';
import { Fleet } from './fleet.js';
import { type Asked, Forwarder, type Told, TornAnswer } from './forward.js';
import { forwardedHeaders } from './headers.js';
import { mergedModels } from './modelList.js';
import { Placement } from './placement.js';
import { type HeldBodies, readBody } from './readBody.js';
import { endStream, endUnread, refuseSocket, sendError, sendText } from './refusals.js';
import { metricsOf, type RouterParts } from './routeMetrics.js';
import { Stalls } from './stalls.js';
import { statusOf } from './status.js';

export interface RouteServerOptions {
  readonly version: string;
  readonly tell: Tell;
  /** Milliseconds, never going back. */
  readonly now?: () => number;
}

const HEADERS_MS = 15_000;
const REQUEST_MS = 60_000;
const KEEP_ALIVE_MS = 80_000;
const MAX_HEADER_BYTES = 16 << 10;
const MAX_ADMIN_BYTES = 64 << 10;
const CLIENT_GONE = 499;

export class RouteServer {
  readonly fleet: Fleet;
  readonly placement: Placement;
  readonly forwarder: Forwarder;
  readonly book: AdapterBook;
  private readonly parts: RouterParts;
  private readonly config: RouteConfig;
  private readonly options: RouteServerOptions;
  private readonly server: Server;
  private readonly clientKeys: KeyRing;
  private readonly adminKeys: KeyRing;
  private readonly held: HeldBodies;
  private readonly requests = new Map<string, number>();
  private readonly active = new Set<ServerResponse>();
  private readonly stalls: Stalls;
  private readonly metrics: ReturnType<typeof metricsOf>;
  private isDraining = false;
  private onIdle: () => void = () => undefined;

  constructor(config: RouteConfig, routing: Routing, options: RouteServerOptions) {
    const { now = () => performance.now(), tell } = options;
    this.config = config;
    this.options = options;
    this.book = new AdapterBook(config.adapters, tell);
    this.fleet = new Fleet(config, routing, this.book, tell, now);
    this.placement = new Placement(this.fleet, this.book, routing, config, tell, now);
    const { fleet, book, placement } = this;
    this.forwarder = new Forwarder({ routing, fleet, book, placement }, config, tell, now);
    this.parts = {
      ...{ fleet, placement, routing, now, forwarder: this.forwarder, requests: this.requests },
      active: () => this.active.size,
    };
    this.metrics = metricsOf(this.parts);
    this.clientKeys = new KeyRing(config.clientKeys);
    this.adminKeys = new KeyRing(config.adminKeys);
    const { limits } = config;
    this.held = { bytes: 0, most: limits.heldMiB * 2 ** 20 };
    this.stalls = new Stalls(1000 * limits.stallSeconds);
    this.server = createServer({
      ...{ noDelay: true, keepAlive: true, keepAliveInitialDelay: REQUEST_MS, maxHeaderSize: MAX_HEADER_BYTES },
      ...{ headersTimeout: HEADERS_MS, requestTimeout: REQUEST_MS, keepAliveTimeout: KEEP_ALIVE_MS },
      ...{ connectionsCheckingInterval: 2000, insecureHTTPParser: false },
    });
    this.server.maxConnections = limits.connections;
    this.server.on('request', (request, response) => void this.take(request, response));
    this.server.on('clientError', refuseSocket);
  }

  /** Listens, asks the replicas, and tells the policy of them. Rejects with the system's error. */
  async listen(): Promise<AddressInfo> {
    const { host, port } = this.config.listen;
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen({ host, port, backlog: 2048 }, () => {
        this.server.off('error', reject);
        resolve();
      });
    });
    return this.server.address() as AddressInfo;
  }

  /** Replicas have been asked once, and names of adapters mean something. */
  async open(): Promise<void> {
    await this.fleet.open();
    await this.placement.open();
  }

  /** Takes no more requests; those that are being answered have so long. */
  async drain(milliseconds: number): Promise<void> {
    this.isDraining = true;
    this.server.closeIdleConnections();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, milliseconds)));
    const idle = async (): Promise<void> => {
      while (this.active.size > 0) await new Promise<void>((resolve) => (this.onIdle = resolve));
    };
    await Promise.race([idle(), late]);
    clearTimeout(timer);
    const error = shuttingDown();
    for (const response of this.active) {
      if (!response.headersSent) sendError(response, error);
      else response.destroy();
    }
  }

  async close(): Promise<void> {
    this.placement.close();
    this.fleet.close();
    this.stalls.close();
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await closed;
  }

  private async take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const started = performance.now();
    const { method: given = 'GET' } = request;
    let endpoint: Endpoint | undefined;
    let told: (Told & { readonly model: string | undefined }) | undefined;
    let id = '';
    response.once('close', () => {
      const status = response.writableFinished ? response.statusCode : CLIENT_GONE;
      const handler = endpoint?.handler ?? 'none';
      const key = `${handler} ${given === 'GET' || given === 'POST' ? given : 'other'} ${status}`;
      this.requests.set(key, (this.requests.get(key) ?? 0) + 1);
      if (endpoint?.kind !== 'forward') return;
      this.options.tell({
        ...{ event: 'request', id, path: endpoint.handler, model: told?.model, replica: told?.replica, status },
        ...{
          attempts: told?.attempts ?? 0,
          outcome: told?.outcome ?? (status === CLIENT_GONE ? 'cancelled' : 'refused'),
        },
        milliseconds: Math.round(performance.now() - started),
      });
    });
    try {
      if (this.isDraining) response.setHeader('connection', 'close');
      id = idOf(request);
      response.setHeader('x-request-id', id);
      const url = urlOf(request);
      const found = endpointOf(given === 'HEAD' ? 'GET' : given, url.pathname);
      if ('length' in found) throw notFound(found, response);
      endpoint = found;
      told = await this.answer(found, request, response, url, id);
    } catch (error) {
      this.fail(response, error);
    }
    endUnread(request, response);
  }

  private async answer(
    endpoint: Endpoint,
    request: IncomingMessage,
    response: ServerResponse,
    url: URL,
    id: string,
  ): Promise<(Told & { readonly model: string | undefined }) | undefined> {
    const json = (value: unknown): void => sendText(response, 200, JSON.stringify(value));
    switch (endpoint.kind) {
      case 'health': {
        const phase = this.isDraining ? 'draining' : this.fleet.ready.length > 0 ? '' : 'loading';
        if (phase !== '') response.setHeader('retry-after', '5');
        return void sendText(response, phase === '' ? 200 : 503, phase, 'text/plain; charset=utf-8');
      }
      case 'version':
        return void json({ version: this.options.version });
      case 'load':
        return void json({ server_load: this.active.size });
      case 'metrics':
        return void sendText(response, 200, await this.metrics.metrics(), this.metrics.contentType);
      case 'models':
        this.requireKey(request, response, this.clientKeys);
        return void json(this.models(endpoint.model));
      case 'status':
        this.requireAdmin(request, response);
        return void json(statusOf(this.parts, this.book));
      case 'drain':
      case 'resume':
        this.requireAdmin(request, response);
        return void json(await this.setDrain(request, endpoint.kind === 'drain'));
      case 'forward':
        this.requireKey(request, response, this.clientKeys);
        if (this.isDraining) throw shuttingDown();
        return this.forward(endpoint, request, response, url, id);
      default:
        return endpoint satisfies never;
    }
  }

  private async forward(
    { hasBody }: Extract<Endpoint, { readonly kind: 'forward' }>,
    request: IncomingMessage,
    response: ServerResponse,
    url: URL,
    id: string,
  ): Promise<Told & { readonly model: string | undefined }> {
    const gone = new AbortController();
    let isGone: (value: false) => void = () => undefined;
    const whenGone = new Promise<false>((resolve) => (isGone = resolve));
    this.active.add(response);
    let heldBytes = 0;
    response.once('close', () => {
      this.active.delete(response);
      this.stalls.delete(response);
      isGone(false);
      if (!response.writableFinished) gone.abort();
      if (this.active.size === 0) this.onIdle();
      if (this.isDraining) setImmediate(() => this.server.closeIdleConnections());
    });
    this.stalls.add(response);
    try {
      const body = hasBody ? await readBody(request, this.config.limits.bodyMiB * 2 ** 20, this.held) : undefined;
      heldBytes = body?.length ?? 0;
      const facts = body === undefined ? undefined : scanBody(body);
      if (body !== undefined && facts === undefined) throw badRequest('The body is no valid JSON object.');
      const { headers } = request;
      const { remoteAddress } = request.socket;
      const asked: Asked = {
        ...{ id, method: request.method === 'HEAD' ? 'GET' : request.method!, path: url.pathname + url.search },
        ...{ body, facts, signal: gone.signal, gone: whenGone },
        headersFor: (key, length) =>
          forwardedHeaders(headers, {
            ...{ requestId: id, hidesKey: !this.clientKeys.isOpen },
            ...(length === undefined ? {} : { length }),
            ...(key === undefined ? {} : { key }),
            ...(remoteAddress === undefined ? {} : { clientAddress: remoteAddress }),
          }),
      };
      return { ...(await this.forwarder.forward(asked, response)), model: facts?.model };
    } finally {
      this.held.bytes -= heldBytes;
    }
  }

  private models(name: string | undefined): unknown {
    if (this.fleet.ready.length === 0)
      throw new ApiError(503, 'No server is there.', { code: 'no_replica', retryAfter: 5 });
    const data = mergedModels(this.fleet, this.book, (each) => this.placement.isAnnounced(each));
    if (name === undefined) return { object: 'list', data };
    const found = data.find(({ id }) => id === name);
    if (found !== undefined) return found;
    throw new ApiError(404, 'There is no such model. GET /v1/models lists them.', {
      ...{ code: 'model_not_found', param: 'model' },
    });
  }

  private async setDrain(request: IncomingMessage, isDrain: boolean): Promise<unknown> {
    const bytes = await readBody(request, MAX_ADMIN_BYTES, this.held);
    this.held.bytes -= bytes.length;
    let value: unknown;
    try {
      value = JSON.parse(bytes.toString());
    } catch {
      // Refused below.
    }
    const name = isRecord(value) ? value['replica'] : undefined;
    const replica = typeof name === 'string' ? this.fleet.replicas.get(name) : undefined;
    if (replica === undefined)
      throw badRequest('Expected {"replica": NAME}, a name of GET /route/status.', 'replica', 'no_such_replica');
    if (isDrain) this.fleet.drain(replica);
    else this.fleet.resume(replica);
    this.placement.act();
    return { replica: name, draining: isDrain };
  }

  private requireKey(request: IncomingMessage, response: ServerResponse, keys: KeyRing): void {
    const { origin, authorization } = request.headers;
    // A page of another site could have its name lead to this machine; without a key nothing else holds it off.
    if (origin !== undefined && keys.isOpen && isLoopbackHost(this.config.listen.host) && !isLoopbackOrigin(origin))
      throw new ApiError(403, 'Pages of this origin may not ask.', { code: 'origin_not_allowed' });
    if (keys.admits(authorization)) return;
    response.setHeader('www-authenticate', 'Bearer');
    throw new ApiError(401, 'Incorrect API key. Send it as the header Authorization: Bearer KEY.', {
      code: 'invalid_api_key',
    });
  }

  /** Without a key of its own, it is for programs of this machine. */
  private requireAdmin(request: IncomingMessage, response: ServerResponse): void {
    this.requireKey(request, response, this.adminKeys);
    if (!this.adminKeys.isOpen || isLocal(request.socket.remoteAddress)) return;
    throw new ApiError(403, 'Only programs of this machine may ask this: there is no adminKeyVariable.', {
      code: 'admin_only',
    });
  }

  private fail(response: ServerResponse, error: unknown): void {
    if (response.destroyed || response.writableEnded) return;
    if (error instanceof TornAnswer) {
      if (!error.canTell) return void response.destroy();
      return endStream(response, new ApiError(502, error.message, { code: 'answer_broke_off' }));
    }
    const told = error instanceof ApiError ? error : new ApiError(500, 'Internal server error.');
    if (told !== error)
      this.options.tell({
        event: 'error',
        why: error instanceof Error ? (error.stack ?? error.message) : String(error),
      });
    if (response.headersSent) endStream(response, told);
    else sendError(response, told);
  }
}

const shuttingDown = (): ApiError =>
  new ApiError(503, 'The router is shutting down.', { code: 'shutting_down', retryAfter: 5 });

const isLocal = (address: string | undefined): boolean =>
  address !== undefined && isLoopbackHost(address.replace(/^::ffff:/, ''));

function notFound(methods: readonly string[], response: ServerResponse): ApiError {
  if (methods.length === 0) return new ApiError(404, 'There is no such path.', { code: 'not_found' });
  response.setHeader('allow', methods.join(', '));
  return new ApiError(405, `This path takes ${methods.join(' and ')} only.`, { code: 'method_not_allowed' });
}
