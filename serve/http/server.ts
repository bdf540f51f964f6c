/**
 * The server: connections and their limits, and what stands before every endpoint: request ids, keys, routing, draining
 * and errors.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { ApiError, badRequest } from '../apiError.js';
import type { Route } from '../exchange.js';
import { CLIENT_GONE, type HttpCounts } from '../metrics/httpCounts.js';
import { BodyBudget, type BodyLimits } from './body.js';
import { HttpExchange, sendError } from './httpExchange.js';
import { KeyRing } from './keys.js';
import { isLoopbackHost, isLoopbackOrigin } from './origins.js';
import { pageRoute } from './pageRoute.js';
import { idOf, urlOf } from './requestHead.js';
import { Router } from './router.js';
import { type Phase, stateRoutes } from './serverState.js';

export interface HttpOptions {
  readonly host: string;
  /** 0: any that is free. */
  readonly port: number;
  readonly version: string;
  /** None: everybody is let in. */
  readonly apiKeys?: readonly string[];
  /** Origins whose pages may ask; `*`: all. Default: none. */
  readonly origins?: readonly string[];
  readonly maxBodyBytes?: number;
  /** Of all bodies that are read at a time. */
  readonly maxHeldBytes?: number;
  readonly maxConnections?: number;
  /** Milliseconds for the headers of a request, and for all of it. */
  readonly headersMs?: number;
  readonly requestMs?: number;
  /** Milliseconds for which a connection without requests is kept: longer than balancers keep theirs. */
  readonly keepAliveMs?: number;
  /** The page at `/`. Default: none. */
  readonly page?: string;
  /** Milliseconds for which a client may take nothing of what waits for it. */
  readonly stallMs?: number;
  /** Milliseconds in which a client that still sends may read that its request is refused. */
  readonly unreadMs?: number;
  /** Counts how requests were answered. */
  readonly counts?: HttpCounts;
  /** Is told of errors that are no client's fault. */
  readonly onError?: (error: unknown) => void;
}

const DEFAULTS = {
  maxBodyBytes: 32 << 20,
  maxHeldBytes: 512 << 20,
  maxConnections: 16_384,
  headersMs: 15_000,
  requestMs: 60_000,
  keepAliveMs: 80_000,
  stallMs: 120_000,
  unreadMs: 2000,
};
const MAX_HEADER_BYTES = 16 << 10;
const TCP_PROBE_MS = 60_000;

export class HttpServer {
  private readonly options: HttpOptions;
  private readonly server: Server;
  private readonly keys: KeyRing;
  private readonly body: BodyLimits;
  private readonly ownRoutes: readonly Route[];
  private router: Router;
  private phase: Phase = 'loading';
  private readonly answering = new Set<HttpExchange>();
  private readonly stalls: NodeJS.Timeout;
  private onIdle: () => void = () => undefined;

  constructor(options: HttpOptions) {
    this.options = options;
    const settings = { ...DEFAULTS, ...options };
    this.keys = new KeyRing(options.apiKeys ?? []);
    this.body = { maxBytes: settings.maxBodyBytes, budget: new BodyBudget(settings.maxHeldBytes) };
    this.ownRoutes = [
      ...stateRoutes(() => ({ phase: this.phase, active: this.answering.size, version: options.version })),
      ...(options.page === undefined ? [] : [pageRoute(options.page)]),
    ];
    this.router = new Router(this.ownRoutes);
    this.server = createServer({
      noDelay: true,
      // A client whose machine is gone says nothing: the system asks.
      keepAlive: true,
      keepAliveInitialDelay: TCP_PROBE_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: settings.headersMs,
      requestTimeout: settings.requestMs,
      keepAliveTimeout: settings.keepAliveMs,
      connectionsCheckingInterval: Math.min(2000, settings.headersMs / 2),
    });
    this.server.maxConnections = settings.maxConnections;
    const { stallMs } = settings;
    this.stalls = setInterval(() => {
      for (const exchange of this.answering) exchange.endIfStalled(stallMs);
    }, stallMs / 8).unref();
    this.server.on('request', (request, response) => void this.take(request, response));
    this.server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => refuse(error, socket));
  }

  /** Begins to listen; only endpoints about the server are answered. Rejects with the system's error. */
  async listen(): Promise<AddressInfo> {
    const { host, port } = this.options;
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen({ host, port, backlog: 2048 }, () => {
        this.server.off('error', reject);
        resolve();
      });
    });
    return this.server.address() as AddressInfo;
  }

  /** Models are there: these endpoints are answered. */
  open(routes: readonly Route[]): void {
    this.router = new Router([...this.ownRoutes, ...routes]);
    if (this.phase === 'loading') this.phase = 'ready';
  }

  /** The engine does not come on, or does again. */
  setAlive(isAlive: boolean): void {
    if (this.phase === 'ready' && !isAlive) this.phase = 'dead';
    else if (this.phase === 'dead' && isAlive) this.phase = 'ready';
  }

  /** Takes no more requests. Settles when those that are being answered have ended. */
  async drain(): Promise<void> {
    this.phase = 'draining';
    this.server.closeIdleConnections();
    while (this.answering.size > 0) await new Promise<void>((resolve) => (this.onIdle = resolve));
  }

  /** Ends what is still being answered, with an error. */
  abort(error: ApiError): void {
    for (const exchange of this.answering) exchange.fail(error);
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    clearInterval(this.stalls);
    await new Promise<void>((resolve) => {
      this.server.close(() => resolve());
      this.server.closeIdleConnections();
      // What was answered last is still on its way.
      setTimeout(() => this.server.closeAllConnections(), LINGER_MS).unref();
    });
  }

  private async take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let exchange: HttpExchange | undefined;
    let path: string | undefined;
    const { counts } = this.options;
    response.once('close', () =>
      counts?.add(path, request.method, response.writableFinished ? response.statusCode : CLIENT_GONE),
    );
    try {
      if (this.phase === 'draining') response.setHeader('connection', 'close');
      const id = idOf(request);
      response.setHeader('x-request-id', id);
      this.allowOrigin(request, response);
      const url = urlOf(request);
      const found = this.router.find(url.pathname);
      path = found[0]?.route.path;
      if (request.method === 'OPTIONS') return this.answerOptions(request, response, found);
      const method = request.method === 'HEAD' ? 'GET' : request.method;
      const match = found.find(({ route }) => route.method === method);
      const isOpen = match?.route.isOpen === true;
      // Whatever does not say that it is open is guarded, also what does not exist.
      if (!isOpen) this.requireOwnPage(request);
      if (!isOpen) this.requireKey(request, response);
      if (!isOpen) this.requireReady();
      if (match === undefined)
        throw notFound(
          found.map(({ route }) => route.method),
          response,
        );
      exchange = new HttpExchange(request, response, {
        id,
        url,
        params: match.params,
        body: this.body,
        errorOf: (error) => this.errorOf(error),
      });
      if (!isOpen) this.count(exchange, response);
      await match.route.handle(exchange);
    } catch (error) {
      if (exchange === undefined) sendError(response, this.errorOf(error));
      else exchange.fail(error);
    }
    // A body that nobody has read ends the connection with its answer.
    if (!request.complete && response.writableEnded) endUnread(request, this.options.unreadMs ?? DEFAULTS.unreadMs);
  }

  /** Until its answer has ended, or its client is gone. */
  private count(exchange: HttpExchange, response: ServerResponse): void {
    this.answering.add(exchange);
    response.once('close', () => {
      this.answering.delete(exchange);
      if (this.answering.size === 0) this.onIdle();
      // The connection is idle a moment later.
      if (this.phase === 'draining') setImmediate(() => this.server.closeIdleConnections());
    });
  }

  /**
   * A page of another site could have its name lead to this machine (DNS rebinding), and would then ask as if it were
   * the server's own. Its requests say where it is from; without a key nothing else holds it off.
   */
  private requireOwnPage({ headers: { origin } }: IncomingMessage): void {
    const { host, origins = [] } = this.options;
    if (origin === undefined || !this.keys.isOpen || !isLoopbackHost(host) || isLoopbackOrigin(origin)) return;
    if (origins.includes('*') || origins.includes(origin)) return;
    throw new ApiError(403, 'Pages of this origin may not ask. Start the server with --allowed-origin ORIGIN.', {
      code: 'origin_not_allowed',
    });
  }

  private requireKey({ headers }: IncomingMessage, response: ServerResponse): void {
    if (this.keys.admits(headers.authorization)) return;
    response.setHeader('www-authenticate', 'Bearer');
    throw new ApiError(401, 'Incorrect API key. Send it as the header Authorization: Bearer KEY.', {
      code: 'invalid_api_key',
    });
  }

  private requireReady(): void {
    switch (this.phase) {
      case 'ready':
        return;
      case 'loading':
        throw new ApiError(503, 'The model is being loaded.', { code: 'model_loading', retryAfter: 5 });
      case 'draining':
        throw new ApiError(503, 'The server is shutting down.', { code: 'shutting_down', retryAfter: 5 });
      case 'dead':
        throw new ApiError(503, 'The engine does not answer.', { code: 'engine_dead', retryAfter: 30 });
      default:
        return this.phase satisfies never;
    }
  }

  private allowOrigin({ headers: { origin } }: IncomingMessage, response: ServerResponse): void {
    const { origins = [] } = this.options;
    if (origins.length === 0 || origin === undefined) return;
    response.setHeader('vary', 'Origin');
    if (!origins.includes('*') && !origins.includes(origin)) return;
    response.setHeader('access-control-allow-origin', origins.includes('*') ? '*' : origin);
    response.setHeader('access-control-expose-headers', 'x-request-id, retry-after');
  }

  private answerOptions(
    { headers }: IncomingMessage,
    response: ServerResponse,
    found: readonly { readonly route: Route }[],
  ): void {
    const methods = [...new Set(found.map(({ route }) => route.method)), 'OPTIONS'].join(', ');
    response.setHeader('allow', methods);
    if (response.hasHeader('access-control-allow-origin')) {
      response.setHeader('access-control-allow-methods', methods);
      response.setHeader(
        'access-control-allow-headers',
        headers['access-control-request-headers'] ?? 'authorization, content-type',
      );
      response.setHeader('access-control-max-age', '600');
    }
    response.writeHead(204).end();
  }

  /** Errors that are nobody's but ours are told of, and not shown. */
  private errorOf(error: unknown): ApiError {
    if (error instanceof ApiError) return error;
    this.options.onError?.(error);
    return new ApiError(500, 'Internal server error.');
  }
}

const LINGER_MS = 500;

function endUnread(request: IncomingMessage, milliseconds: number): void {
  const { socket } = request;
  request.resume();
  // One that has no body is complete when its event is over.
  setTimeout(() => {
    if (!request.complete) socket.destroy();
  }, milliseconds).unref();
}

function notFound(methods: readonly string[], response: ServerResponse): ApiError {
  if (methods.length === 0) return new ApiError(404, 'There is no such path.', { code: 'not_found' });
  response.setHeader('allow', [...new Set(methods), 'OPTIONS'].join(', '));
  return new ApiError(405, `This path takes ${methods.join(' and ')} only.`, { code: 'method_not_allowed' });
}

/** What node:http refuses by itself: answers on the bare socket. */
function refuse(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
  const refusal =
    error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
      ? new ApiError(408, 'The request took too long to come.')
      : error.code === 'HPE_HEADER_OVERFLOW'
        ? new ApiError(431, `The headers are larger than ${MAX_HEADER_BYTES} bytes.`)
        : badRequest('This is no HTTP/1.1 request.');
  const names: Readonly<Record<number, string>> = {
    400: 'Bad Request',
    408: 'Request Timeout',
    431: 'Request Header Fields Too Large',
  };
  const body = JSON.stringify(refusal.body);
  socket.end(
    `HTTP/1.1 ${refusal.status} ${names[refusal.status]}\r\nConnection: close\r\n` +
      `Content-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  setTimeout(() => socket.destroy(), DEFAULTS.unreadMs).unref();
}
