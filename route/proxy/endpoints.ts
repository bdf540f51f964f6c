/** What a router answers: which paths go on to replicas, and which are its own. */

export type Endpoint =
  /** Goes to a replica. `handler`: its name in metrics. */
  | { readonly kind: 'forward'; readonly handler: string; readonly hasBody: boolean }
  /** Answered without a key, in every phase. */
  | { readonly kind: 'health' | 'version' | 'load' | 'metrics'; readonly handler: string }
  | { readonly kind: 'models'; readonly handler: string; readonly model?: string }
  /** For administrators. */
  | { readonly kind: 'status' | 'drain' | 'resume'; readonly handler: string };

const FORWARDED = [
  ...['/v1/completions', '/v1/chat/completions', '/tokenize', '/detokenize', '/pooling', '/classify', '/score'],
  ...['/rerank', '/v1/score', '/v1/rerank', '/v2/rerank', '/v1/embeddings'],
];

const OWN: ReadonlyMap<string, readonly (readonly [method: string, endpoint: Endpoint])[]> = new Map(
  (
    [
      ...FORWARDED.map((path) => [path, 'POST', { kind: 'forward', handler: path, hasBody: true }] as const),
      ['/tokenizer_info', 'GET', { kind: 'forward', handler: '/tokenizer_info', hasBody: false }],
      ['/health', 'GET', { kind: 'health', handler: '/health' }],
      ['/ping', 'GET', { kind: 'health', handler: '/ping' }],
      ['/ping', 'POST', { kind: 'health', handler: '/ping' }],
      ['/version', 'GET', { kind: 'version', handler: '/version' }],
      ['/load', 'GET', { kind: 'load', handler: '/load' }],
      ['/metrics', 'GET', { kind: 'metrics', handler: '/metrics' }],
      ['/v1/models', 'GET', { kind: 'models', handler: '/v1/models' }],
      ['/route/status', 'GET', { kind: 'status', handler: '/route/status' }],
      ['/route/drain', 'POST', { kind: 'drain', handler: '/route/drain' }],
      ['/route/resume', 'POST', { kind: 'resume', handler: '/route/resume' }],
    ] satisfies readonly (readonly [string, string, Endpoint])[]
  ).reduce((map, [path, method, endpoint]) => {
    map.set(path, [...(map.get(path) ?? []), [method, endpoint] as const]);
    return map;
  }, new Map<string, (readonly [string, Endpoint])[]>()),
);

const MODEL = '/v1/models/';

/** The endpoint, or the methods that the path takes; none: there is no such path. */
export function endpointOf(method: string, path: string): Endpoint | readonly string[] {
  if (path.startsWith(MODEL)) {
    const model = decoded(path.slice(MODEL.length));
    if (model === undefined || model === '') return [];
    return method === 'GET' ? { kind: 'models', handler: '/v1/models/:model', model } : ['GET'];
  }
  const own = OWN.get(path) ?? [];
  return own.find(([each]) => each === method)?.[1] ?? own.map(([each]) => each);
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
