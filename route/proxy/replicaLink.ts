/** Connections to one replica: kept between requests, bounded in what is read of it and in how long that may take. */
import http, { type ClientRequest, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http';
import https from 'node:https';
import type { ReplicaConfig } from './config.js';

export interface LinkLimits {
  readonly connectMs: number;
  /** Of an answer's headers. */
  readonly maxHeaderBytes?: number;
}

export interface SentRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body?: Buffer | string;
  /** Ends the request, and its answer. */
  readonly signal?: AbortSignal;
}

const MAX_HEADER_BYTES = 32 << 10;
/** An idle connection is closed before servers of this kind close theirs (80 s). */
const IDLE_MS = 30_000;

/** No answer came: nothing of one was read. */
export class NoAnswer extends Error {}

export class ReplicaLink {
  readonly url: URL;
  private readonly agent: http.Agent;
  private readonly library: Pick<typeof http, 'request'>;
  private readonly key: string | undefined;
  private readonly limits: LinkLimits;

  constructor({ url, key }: Pick<ReplicaConfig, 'url' | 'key'>, limits: LinkLimits) {
    this.url = new URL(url);
    this.key = key;
    this.limits = limits;
    const isTls = this.url.protocol === 'https:';
    this.library = isTls ? https : http;
    this.agent = new (isTls ? https : http).Agent({
      ...{ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 256, scheduling: 'lifo' },
      ...{ keepAliveMsecs: IDLE_MS, noDelay: true },
    });
  }

  /**
   * The answer, its body unread. Rejects with NoAnswer where there is none: a connection that is refused, does not come
   * about in time, or is reset before headers; a head that is no HTTP, or too large.
   */
  send({ method, path, headers, body, signal }: SentRequest): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => reject(new NoAnswer(reasonOf(error)));
      let request: ClientRequest;
      try {
        request = this.library.request({
          ...{ method, path, headers, agent: this.agent },
          hostname: this.url.hostname.replace(/^\[|\]$/g, ''),
          ...(this.url.port === '' ? {} : { port: this.url.port }),
          maxHeaderSize: this.limits.maxHeaderBytes ?? MAX_HEADER_BYTES,
          ...(signal === undefined ? {} : { signal }),
        });
      } catch (error) {
        return fail(error);
      }
      const timer = setTimeout(() => request.destroy(new Error('no connection in time')), this.limits.connectMs);
      const connected = (): void => clearTimeout(timer);
      request.on('socket', (socket) => {
        // A host that is gone says nothing: the system asks.
        socket.setKeepAlive(true, IDLE_MS);
        // A kept connection is there already.
        if (socket.connecting) socket.once(this.url.protocol === 'https:' ? 'secureConnect' : 'connect', connected);
        else connected();
      });
      request.on('response', (response) => {
        connected();
        // What breaks off is told by `aborted` and `close` as well.
        response.on('error', () => undefined);
        resolve(response);
      });
      // 1xx are nobody's but this connection's; an upgrade was not asked for.
      request.on('upgrade', (_response, socket) => socket.destroy(new Error('it changed the protocol')));
      request.on('error', (error) => {
        connected();
        fail(error);
      });
      request.on('close', () => {
        connected();
        fail(new Error('the connection was closed'));
      });
      request.end(body);
    });
  }

  /** Headers of requests of the router's own. */
  ownHeaders(body?: string): OutgoingHttpHeaders {
    return {
      accept: '*/*',
      'accept-encoding': 'identity',
      ...(this.key === undefined ? {} : { authorization: `Bearer ${this.key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
    };
  }

  /** An answer as text, within bounds of size and time. Rejects with NoAnswer where there is none that is whole. */
  async text(
    method: 'GET' | 'POST',
    path: string,
    { body, maxBytes, timeoutMs }: { readonly body?: unknown; readonly maxBytes: number; readonly timeoutMs: number },
  ): Promise<{ readonly status: number; readonly text: string }> {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), timeoutMs);
    try {
      const response = await this.send({
        ...{ method, path, headers: this.ownHeaders(sent), signal: late.signal },
        ...(sent === undefined ? {} : { body: sent }),
      });
      return { status: response.statusCode ?? 0, text: (await readSome(response, maxBytes)).toString() };
    } catch (error) {
      if (late.signal.aborted) throw new NoAnswer(`no answer in ${timeoutMs / 1000} s`);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.agent.destroy();
  }
}

/** A body of at most so many bytes. Rejects with NoAnswer where it is larger, or breaks off. */
export function readSome(response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    response.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > maxBytes) {
        reject(new NoAnswer(`an answer of more than ${maxBytes} bytes`));
        response.destroy();
      } else chunks.push(chunk);
    });
    response.on('end', () => resolve(Buffer.concat(chunks)));
    response.on('close', () => reject(new NoAnswer('the answer broke off')));
  });
}

/** Why a connection failed, without addresses. */
function reasonOf(error: unknown): string {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  switch (code) {
    case 'ECONNREFUSED':
      return 'the connection was refused';
    case 'ECONNRESET':
    case 'EPIPE':
      return 'the connection was reset';
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'its host has no address';
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return 'its host cannot be reached';
    case 'HPE_HEADER_OVERFLOW':
      return 'its headers are too large';
    default:
      if (typeof code !== 'string') return String(message ?? error).slice(0, 200);
      return code.startsWith('HPE_') ? 'what it says is no HTTP' : `the system says ${code}`;
  }
}
