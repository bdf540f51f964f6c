/** What a client is told where its request cannot be answered: a status and `{ error: … }`, as OpenAI writes it. */
export interface ApiErrorOptions {
  /** The field of the body that is wrong, as `messages[0].content`. */
  readonly param?: string;
  /** What programs ask for: `context_length_exceeded`, `model_not_found`, `invalid_api_key` … */
  readonly code?: string;
  /** Default: by the status, as OpenAI names it. */
  readonly type?: string;
  /** Seconds after which another try makes sense; sent as Retry-After. */
  readonly retryAfter?: number;
  /** The same request will fail again: clients are told not to try (`x-should-retry: false`). */
  readonly isFinal?: boolean;
}

/** The message never quotes a whole prompt, a key or a path of this machine. */
export class ApiError extends Error {
  readonly status: number;
  readonly options: ApiErrorOptions;

  constructor(status: number, message: string, options: ApiErrorOptions = {}) {
    super(message);
    this.status = status;
    this.options = options;
  }

  /** The body of the answer, or of an event in a stream. */
  get body(): { readonly error: Readonly<Record<'message' | 'type' | 'param' | 'code', string | null>> } {
    const { type = typeOf(this.status), param = null, code = null } = this.options;
    return { error: { message: this.message, type, param, code } };
  }
}

/** A value of the body that cannot be taken. `param` names its field. */
export const badRequest = (message: string, param?: string, code?: string): ApiError =>
  new ApiError(400, message, { ...(param === undefined ? {} : { param }), ...(code === undefined ? {} : { code }) });

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 429) return 'rate_limit_error';
  return status < 500 ? 'invalid_request_error' : 'server_error';
}
