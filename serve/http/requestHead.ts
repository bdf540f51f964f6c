/** What servers read of the head of a request before anything else: its name, and its path. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { badRequest } from '../apiError.js';

/** The client's X-Request-Id, or a random one. Throws ApiError where it would not be safe in a header or a log. */
export function idOf({ headers }: IncomingMessage): string {
  const given = headers['x-request-id'];
  if (given === undefined || given === '') return randomUUID().replaceAll('-', '');
  if (typeof given === 'string' && /^[\x21-\x7e]{1,128}$/.test(given)) return given;
  throw badRequest('X-Request-Id: expected at most 128 letters of ASCII, without spaces.');
}

export function urlOf({ url = '/' }: IncomingMessage): URL {
  try {
    return new URL(url.startsWith('/') ? `http://host${url}` : url);
  } catch {
    throw badRequest('The path of the request is no URL.');
  }
}
