/** A request over HTTP and its answer, as endpoints see them. Sockets, limits, keys and draining lie below. */
import type { IncomingHttpHeaders } from 'node:http';

/** Events of a streamed answer (server-sent events). */
export interface EventStream {
  /**
   * Sends an event whose data is this JSON, which has no line breaks. Returns false where the client reads slowly:
   * whoever makes events stops until `drained` has resolved. Ignored once the client is gone.
   */
  send(json: string): boolean;
  /** Sends a line that clients skip, as a sign of life; left out where the client reads slowly. */
  comment(text: string): void;
  /** Resolves when the client has read enough, or is gone. */
  drained(): Promise<void>;
  /** Sends `[DONE]` and ends the answer. */
  end(): void;
  /** Sends an event with the error, then `[DONE]`. */
  fail(error: unknown): void;
}

export interface Exchange {
  /** Of this request: the client's X-Request-Id, or a random one. Goes into `cmpl-…` and the like. */
  readonly id: string;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** Values of `:name` parts of the route's path. */
  readonly params: Readonly<Record<string, string>>;
  /** Aborted where the client goes before its answer has ended. */
  readonly signal: AbortSignal;
  /** The body, parsed. Rejects with ApiError where it is too large, too slow or no JSON object. */
  json(): Promise<Readonly<Record<string, unknown>>>;
  setHeader(name: string, value: string): void;
  /** The whole answer. */
  reply(status: number, value: unknown): void;
  /** The whole answer, of another type than JSON. */
  replyText(status: number, text: string, contentType: string): void;
  /** Begins an answer in events. What is thrown before is an error over HTTP. */
  stream(): EventStream;
}

/** An endpoint. What it throws becomes an error over HTTP: an ApiError as it is, anything else as 500. */
export interface Route {
  readonly method: 'GET' | 'POST';
  /** `/v1/models/:model` */
  readonly path: string;
  /** Whether it is answered without a key, and while the server drains or has no device. Default false. */
  readonly isOpen?: boolean;
  handle(exchange: Exchange): Promise<void> | void;
}
