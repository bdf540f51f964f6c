/** The hashes by which the harness tells whether two runs asked the same. */
import { dumpJson, str } from '../../python/show.js';
import type { Value } from '../../python/value.js';
import type { DocumentRequests, Request } from '../../tasks/requests/task.js';
import { sha256 } from '../samples.js';

/** What a request asks, as the harness's files list it. */
export const argumentsOf = (request: Request): readonly Value[] => {
  switch (request.kind) {
    case 'loglikelihood':
      return [request.context, request.continuation];
    case 'loglikelihood_rolling':
      return [request.text];
    case 'generate_until':
      return [request.context, request.settings];
    default:
      return request satisfies never;
  }
};

export interface SampleHashes {
  readonly document: string;
  readonly prompt: string;
  readonly target: string;
}

export function hashesOf({ document, target, requests }: DocumentRequests): SampleHashes {
  const [first] = requests;
  return {
    document: sha256(dumpJson(document)),
    prompt: sha256(first === undefined ? '' : String(argumentsOf(first)[0])),
    target: sha256(str(target)),
  };
}
