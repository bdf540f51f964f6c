/** Reads the body of a request as a JSON object, within bounds. */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { isRecord } from '../../system/json.js';
import { ApiError, badRequest } from '../apiError.js';
import { rememberText } from '../exactBody.js';

/** Objects and lists inside one another. */
const MAX_DEPTH = 128;

/** Bytes of bodies that all requests hold at a time. */
export class BodyBudget {
  private held = 0;
  private readonly most: number;

  constructor(most: number) {
    this.most = most;
  }

  /** Throws ApiError 429 where there is no room for as much more. */
  take(bytes: number): void {
    if (this.held + bytes > this.most)
      throw new ApiError(429, 'Too many large requests at a time. Try again later.', { retryAfter: 1 });
    this.held += bytes;
  }

  give(bytes: number): void {
    this.held -= bytes;
  }
}

export interface BodyLimits {
  /** Of one body. */
  readonly maxBytes: number;
  readonly budget: BodyBudget;
}

const tooLarge = (maxBytes: number): ApiError =>
  new ApiError(413, `The body of the request is larger than ${maxBytes} bytes.`, { code: 'request_too_large' });

/** Rejects with ApiError where the body is too large, cut off, or no JSON object. */
export async function readJson(
  request: IncomingMessage,
  limits: BodyLimits,
): Promise<Readonly<Record<string, unknown>>> {
  const [type = ''] = (request.headers['content-type'] ?? '').split(';', 1);
  // A page of another site may send other types without asking whether it may.
  if (!/^application\/(json|[\w.-]+\+json)$/i.test(type.trim()))
    throw badRequest('The body must be JSON: send the header Content-Type: application/json.');
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    throw badRequest('The body must be sent as it is, without Content-Encoding.');
  const { budget, maxBytes } = limits;
  const stated = Number(request.headers['content-length'] ?? 0);
  if (stated > maxBytes) throw tooLarge(maxBytes);
  let held = 0;
  const hold = (bytes: number): void => {
    budget.take(bytes);
    held += bytes;
  };
  try {
    return parse(await bytesOf(request, maxBytes, hold));
  } finally {
    budget.give(held);
  }
}

function bytesOf(request: IncomingMessage, maxBytes: number, hold: (bytes: number) => void): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const stop = (error: Error): void => {
      request.off('data', onData).off('end', onEnd).off('error', onCut).off('close', onCut);
      // What still comes is thrown away.
      request.on('error', () => undefined).resume();
      reject(error);
    };
    const onData = (chunk: Buffer): void => {
      size += chunk.length;
      try {
        if (size > maxBytes) throw tooLarge(maxBytes);
        hold(chunk.length);
      } catch (error) {
        return stop(error as Error);
      }
      chunks.push(chunk);
    };
    const onEnd = (): void => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    const onCut = (): void => {
      if (!request.complete) stop(badRequest('The body of the request was cut off.'));
    };
    request.on('data', onData).on('end', onEnd).on('error', onCut).on('close', onCut);
  });
}

function parse(bytes: Buffer): Readonly<Record<string, unknown>> {
  if (!isUtf8(bytes)) throw badRequest('The body is no valid UTF-8.');
  if (isTooDeep(bytes)) throw badRequest(`The body has more than ${MAX_DEPTH} objects and lists inside one another.`);
  const text = bytes.toString();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw badRequest('The body is no valid JSON.');
  }
  if (!isRecord(value)) throw badRequest('The body must be a JSON object.');
  rememberText(value, text);
  return value;
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];

/** Whether brackets outside strings nest too deeply. Of what is no JSON it says anything. */
function isTooDeep(bytes: Buffer): boolean {
  let depth = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i]!;
    if (byte === QUOTE) {
      for (i++; i < bytes.length && bytes[i] !== QUOTE; i++) if (bytes[i] === BACKSLASH) i++;
    } else if (byte === 0x5b || byte === 0x7b) {
      if (++depth > MAX_DEPTH) return true;
    } else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return false;
}
