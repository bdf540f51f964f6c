/** Several continuations of one prompt, which share its pages. */
import type { Generated, Generator, GenerateRequest } from './generator.js';

/**
 * `count` continuations. The first is what the request gives by itself; each of the others has a seed that follows from
 * the request's and its own number, so that it does not depend on how many there are.
 */
export const generateSamples = (
  generator: Pick<Generator, 'generate'>,
  request: Omit<GenerateRequest, 'sample'>,
  count: number,
): Promise<readonly Generated[]> =>
  Promise.all(Array.from({ length: count }, (_, sample) => generator.generate({ ...request, sample })));
