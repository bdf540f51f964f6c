/** Errors as clients read them. */
import { describe, expect, it } from 'vitest';
import { ApiError, badRequest } from '../../serve/apiError.js';

describe('ApiError', () => {
  it('has the body that OpenAI sends', () => {
    expect(badRequest('n: expected a whole number', 'n').body).toEqual({
      error: { message: 'n: expected a whole number', type: 'invalid_request_error', param: 'n', code: null },
    });
  });

  it.each([
    [401, 'authentication_error'],
    [404, 'invalid_request_error'],
    [429, 'rate_limit_error'],
    [503, 'server_error'],
  ])('names the type of status %i', (status, type) => {
    expect(new ApiError(status, 'no').body.error.type).toBe(type);
  });
});
