/** Reads the body of a request whole, within bounds: it is sent on as it is, perhaps more than once. */
import type { IncomingMessage } from 'node:http';
import { ApiError, badRequest } from '../../serve/apiError.js';

export interface HeldBodies {
  /** Bytes that all requests hold. */
  bytes: number;
  readonly most: number;
}

/**
 * Rejects with ApiError where it is too large, cut off, or encoded. `held` counts it until the caller gives it back.
 */
export function readBody(request: IncomingMessage, maxBytes: number, held: HeldBodies): Promise<Buffer> {
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    return Promise.reject(badRequest('The body must be sent as it is, without Content-Encoding.'));
  const tooLarge = (): ApiError =>
    new ApiError(413, `The body of the request is larger than ${maxBytes} bytes.`, { code: 'request_too_large' });
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) return Promise.reject(tooLarge());
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const stop = (error: Error): void => {
      request.off('data', onData).off('end', onEnd).off('error', onCut).off('close', onCut);
      // What still comes is thrown away.
      request.on('error', () => undefined).resume();
      held.bytes -= size;
      reject(error);
    };
    const onData = (chunk: Buffer): void => {
      if (size + chunk.length > maxBytes) return stop(tooLarge());
      if (held.bytes + chunk.length > held.most)
        return stop(new ApiError(429, 'Too many large requests at a time. Try again later.', { retryAfter: 1 }));
      size += chunk.length;
      held.bytes += chunk.length;
      chunks.push(chunk);
    };
    const onEnd = (): void => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    const onCut = (): void => {
      if (!request.complete) stop(badRequest('The body of the request was cut off.'));
    };
    request.on('data', onData).on('end', onEnd).on('error', onCut).on('close', onCut);
  });
}
