/** Errors on their way to a client: as an answer, as an event of a stream that has begun, or on a bare socket. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError, badRequest } from '../../serve/apiError.js';

const JSON_TYPE = 'application/json; charset=utf-8';
/** In which a client that still sends may read that its request is refused. */
const UNREAD_MS = 2000;

export function sendText(response: ServerResponse, status: number, text: string, type = JSON_TYPE): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) }).end(text);
}

export function sendError(response: ServerResponse, error: ApiError): void {
  if (response.headersSent || response.destroyed) return;
  const { retryAfter, isFinal } = error.options;
  if (retryAfter !== undefined) response.setHeader('retry-after', String(Math.ceil(retryAfter)));
  if (isFinal === true) response.setHeader('x-should-retry', 'false');
  sendText(response, error.status, JSON.stringify(error.body));
}

/** The last events of a stream that has begun. */
export function endStream(response: ServerResponse, error: ApiError): void {
  if (response.destroyed || response.writableEnded) return;
  response.end(`data: ${JSON.stringify(error.body)}\n\ndata: [DONE]\n\n`);
}

/** A body that nobody has read ends the connection with its answer. */
export function endUnread(request: IncomingMessage, response: ServerResponse): void {
  if (request.complete || !response.writableEnded) return;
  const { socket } = request;
  request.resume();
  setTimeout(() => {
    if (!request.complete) socket.destroy();
  }, UNREAD_MS).unref();
}

const NAMES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
};

/** What node:http refuses by itself: what is no HTTP, or could be read in two ways. */
export function refuseSocket(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
  const refusal =
    error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
      ? new ApiError(408, 'The request took too long to come.')
      : error.code === 'HPE_HEADER_OVERFLOW'
        ? new ApiError(431, 'The headers are too large.')
        : badRequest('This is no HTTP/1.1 request.');
  const body = JSON.stringify(refusal.body);
  socket.end(
    `HTTP/1.1 ${refusal.status} ${NAMES[refusal.status]}\r\nConnection: close\r\nContent-Type: ${JSON_TYPE}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  setTimeout(() => socket.destroy(), UNREAD_MS).unref();
}
