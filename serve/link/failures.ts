/** What a client is told of an error of the engine: by its class, which does not cross threads. */
import { DeadlinePassed, QueueFull } from '../../engine/engine.js';
import { GenerateError, GivenUp } from '../../engine/request.js';
import { UserError } from '../../errors.js';
import { ApiError, type ApiErrorOptions } from '../apiError.js';

/** An error as a message: classes are lost on the way. */
export interface SentError {
  readonly status: number;
  readonly message: string;
  readonly options: ApiErrorOptions;
}

const CONTEXT = /^a prompt of \d+ tokens; the (model's context|cache) has/;

/** An error of a request: refused at once, or failed later. */
export function apiErrorOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof QueueFull)
    return new ApiError(429, 'Too many requests wait for the model. Try again later.', {
      code: 'queue_full',
      retryAfter: 5,
    });
  if (error instanceof DeadlinePassed) return new ApiError(408, 'The request waited for too long.');
  if (error instanceof GivenUp)
    return new ApiError(500, 'Devices ended while they computed this request, several times.', { isFinal: true });
  if (error instanceof GenerateError) {
    const { message } = error;
    return CONTEXT.test(message)
      ? new ApiError(400, `${message[0]!.toUpperCase()}${message.slice(1)}.`, { code: 'context_length_exceeded' })
      : new ApiError(400, message);
  }
  if (error instanceof UserError) return new ApiError(400, error.message);
  // Errors of device processes have lost their class.
  if (error instanceof Error && error.name === 'NonFiniteError')
    return new ApiError(
      500,
      'A value of the model is NaN or infinite for this request; others are not touched by it.',
      {
        code: 'non_finite',
        isFinal: true,
      },
    );
  return new ApiError(500, 'The engine failed at this request.');
}

export const sentError = (error: unknown): SentError => {
  const { status, message, options } = apiErrorOf(error);
  return { status, message, options };
};

export const receivedError = ({ status, message, options }: SentError): ApiError =>
  new ApiError(status, message, options);
