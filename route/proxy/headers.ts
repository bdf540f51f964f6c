/**
 * Which headers go on. A body goes on with a length of our own, and nothing that says how a connection is framed or
 * kept passes through: two servers that read the end of a request differently can be made to see two requests in one.
 */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';

/** Headers of one connection (RFC 9110, 7.6.1), and those that are made anew. */
const OF_CONNECTIONS = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'expect'],
  ...['proxy-authenticate', 'proxy-authorization', 'content-length', 'host', 'http2-settings'],
]);
/** Answers come as they are, since the name of a model is found in them. */
const NOT_FORWARDED = new Set([...OF_CONNECTIONS, 'accept-encoding', 'content-encoding', 'forwarded', 'origin']);
/** Said by this server for itself. */
const NOT_RETURNED = new Set([
  ...OF_CONNECTIONS,
  ...['x-request-id', 'date', 'server', 'access-control-allow-origin', 'access-control-expose-headers'],
]);

/** Names that a Connection header says belong to the connection. */
const named = (connection: string | undefined): ReadonlySet<string> =>
  new Set((connection ?? '').split(',').map((each) => each.trim().toLowerCase()));

function kept(headers: IncomingHttpHeaders, without: ReadonlySet<string>): OutgoingHttpHeaders {
  const hops = named(headers.connection);
  return Object.fromEntries(
    Object.entries(headers).filter(
      ([key, value]) => value !== undefined && !without.has(key) && !hops.has(key) && !key.startsWith(':'),
    ),
  );
}

export interface ForwardFacts {
  readonly requestId: string;
  /** Bytes of the body; undefined: there is none. */
  readonly length?: number;
  /** The replica's key; it takes the place of what the client showed. */
  readonly key?: string;
  /** The client has shown a key of the router's: it is none of the replica's. */
  readonly hidesKey: boolean;
  readonly clientAddress?: string;
}

/** Headers of a request to a replica. */
export function forwardedHeaders(
  headers: IncomingHttpHeaders,
  { requestId, length, key, hidesKey, clientAddress }: ForwardFacts,
): OutgoingHttpHeaders {
  const sent = kept(headers, NOT_FORWARDED);
  if (key !== undefined) sent['authorization'] = `Bearer ${key}`;
  else if (hidesKey) delete sent['authorization'];
  const before = headers['x-forwarded-for'];
  if (clientAddress !== undefined)
    sent['x-forwarded-for'] = before === undefined ? clientAddress : `${String(before)}, ${clientAddress}`;
  sent['x-request-id'] = requestId;
  sent['accept-encoding'] = 'identity';
  if (length !== undefined) sent['content-length'] = length;
  return sent;
}

/** Headers of an answer to a client. Its length is the replica's where the body passes unchanged. */
export function returnedHeaders(headers: IncomingHttpHeaders, isUnchanged: boolean): OutgoingHttpHeaders {
  const sent = kept(headers, NOT_RETURNED);
  const length = headers['content-length'];
  if (isUnchanged && length !== undefined) sent['content-length'] = length;
  return sent;
}
