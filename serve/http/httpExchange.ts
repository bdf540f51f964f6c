/** A request of node:http and its answer, for endpoints. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ApiError } from '../apiError.js';
import type { EventStream, Exchange } from '../exchange.js';
import { type BodyLimits, readJson } from './body.js';
import { EVENT_HEADERS, ResponseEvents } from './eventStream.js';

export interface ExchangeOptions {
  readonly id: string;
  readonly url: URL;
  readonly params: Readonly<Record<string, string>>;
  readonly body: BodyLimits;
  /** What an error of an endpoint is to a client. */
  readonly errorOf: (error: unknown) => ApiError;
}

export class HttpExchange implements Exchange {
  private readonly request: IncomingMessage;
  private readonly response: ServerResponse;
  private readonly options: ExchangeOptions;
  private readonly gone = new AbortController();
  /** Bytes that the client had taken at the last look, and when it last took some. */
  private taken = 0;
  private takenAt = performance.now();

  constructor(request: IncomingMessage, response: ServerResponse, options: ExchangeOptions) {
    this.request = request;
    this.response = response;
    this.options = options;
    // `close` of a request comes when its body has been read.
    response.once('close', () => {
      if (!response.writableFinished) this.gone.abort();
    });
  }

  get id(): string {
    return this.options.id;
  }

  get method(): string {
    return this.request.method ?? 'GET';
  }

  get path(): string {
    return this.options.url.pathname;
  }

  get query(): URLSearchParams {
    return this.options.url.searchParams;
  }

  get headers(): IncomingMessage['headers'] {
    return this.request.headers;
  }

  get params(): Readonly<Record<string, string>> {
    return this.options.params;
  }

  get signal(): AbortSignal {
    return this.gone.signal;
  }

  json(): Promise<Readonly<Record<string, unknown>>> {
    return readJson(this.request, this.options.body);
  }

  setHeader(name: string, value: string): void {
    if (!this.response.headersSent) this.response.setHeader(name, value);
  }

  reply(status: number, value: unknown): void {
    this.replyText(status, JSON.stringify(value), 'application/json; charset=utf-8');
  }

  replyText(status: number, text: string, contentType: string): void {
    sendText(this.response, status, text, contentType);
  }

  stream(): EventStream {
    this.response.writeHead(200, EVENT_HEADERS).flushHeaders();
    return new ResponseEvents(this.response, this.options.errorOf);
  }

  /** Ends the connection where bytes wait for the client and it has taken none for so long. */
  endIfStalled(milliseconds: number): void {
    const { socket } = this.request;
    const now = performance.now();
    // Bytes that wait count as written.
    const taken = socket.bytesWritten - socket.writableLength;
    if (socket.writableLength === 0 || taken !== this.taken) this.takenAt = now;
    this.taken = taken;
    if (now - this.takenAt >= milliseconds) socket.destroy();
  }

  /** Ends the answer with an error, in whichever form is still possible. */
  fail(error: unknown): void {
    const { response } = this;
    if (response.writableEnded || response.destroyed) return;
    if (response.headersSent) new ResponseEvents(response, this.options.errorOf).fail(error);
    else sendError(response, this.options.errorOf(error));
  }
}

export function sendText(response: ServerResponse, status: number, text: string, contentType: string): void {
  if (response.headersSent || response.destroyed) return;
  const bytes = Buffer.from(text);
  response.writeHead(status, { 'content-type': contentType, 'content-length': bytes.length }).end(bytes);
}

/** Headers and body of an error. */
export function sendError(response: ServerResponse, error: ApiError): void {
  if (response.headersSent || response.destroyed) return;
  const { retryAfter, isFinal } = error.options;
  if (retryAfter !== undefined) response.setHeader('retry-after', String(Math.ceil(retryAfter)));
  if (isFinal === true) response.setHeader('x-should-retry', 'false');
  sendText(response, error.status, JSON.stringify(error.body), 'application/json; charset=utf-8');
}
