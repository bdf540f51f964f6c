/** What stands before every endpoint: limits, keys, routing, ids, draining. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { ApiError } from '../../../serve/apiError.js';
import type { EventStream, Exchange, Route } from '../../../serve/exchange.js';
import { type HttpOptions, HttpServer } from '../../../serve/http/server.js';
import { openRaw, parseAnswer, rawAnswer } from './rawHttp.js';

const open: HttpServer[] = [];
afterEach(async () => void (await Promise.all(open.splice(0).map((server) => server.close()))));

interface Started {
  readonly url: string;
  readonly server: HttpServer;
  /** Exchanges of `/stream`, which the test answers. */
  readonly streams: { readonly exchange: Exchange; readonly events: EventStream }[];
  /** Exchanges of `/wait`, which nobody answers. */
  readonly waiting: Exchange[];
  readonly errors: unknown[];
}

async function start(options: Partial<HttpOptions> = {}, isReady = true): Promise<Started> {
  const errors: unknown[] = [];
  const server = new HttpServer({
    ...{ host: '127.0.0.1', port: 0, version: '1.2.3', onError: (error) => errors.push(error) },
    ...options,
  });
  open.push(server);
  const { port } = await server.listen();
  const streams: { exchange: Exchange; events: EventStream }[] = [];
  const waiting: Exchange[] = [];
  const routes: readonly Route[] = [
    { method: 'POST', path: '/echo', handle: async (exchange) => exchange.reply(200, await exchange.json()) },
    { method: 'GET', path: '/models/:name', handle: (exchange) => exchange.reply(200, exchange.params) },
    {
      method: 'GET',
      path: '/stream',
      handle: (exchange) => void streams.push({ exchange, events: exchange.stream() }),
    },
    {
      method: 'GET',
      path: '/wait',
      handle: (exchange) => {
        waiting.push(exchange);
        return new Promise((resolve) => exchange.signal.addEventListener('abort', () => resolve()));
      },
    },
    {
      method: 'GET',
      path: '/broken',
      handle: () => {
        throw new TypeError('a secret of ours');
      },
    },
    { method: 'GET', path: '/free', isOpen: true, handle: (exchange) => exchange.reply(200, {}) },
  ];
  if (isReady) server.open(routes);
  return { url: `http://127.0.0.1:${port}`, server, streams, waiting, errors };
}

const JSON_TYPE = { 'content-type': 'application/json' };
const post = (url: string, body: string | Buffer, headers: Record<string, string> = JSON_TYPE): Promise<Response> =>
  fetch(`${url}/echo`, { method: 'POST', body, headers });
interface ErrorBody {
  readonly error: { readonly message: string; readonly type: string; readonly param: unknown; readonly code: unknown };
}
const errorOf = async (response: Response): Promise<readonly unknown[]> => {
  const { error } = (await response.json()) as ErrorBody;
  return [response.status, error.type, error.code, error.message];
};

describe('the body of a request', () => {
  it('is a JSON object', async () => {
    const { url } = await start();
    const value = { a: [1, { b: 'ä"\\]' }], __proto__: null };
    expect(await (await post(url, JSON.stringify(value))).json()).toEqual(value);
    const deep = '['.repeat(129) + ']'.repeat(129);
    const shallow = `{"a":${'['.repeat(127)}${']'.repeat(127)}}`;
    expect((await post(url, shallow)).status).toBe(200);
    for (const [body, message] of [
      ['', 'The body is no valid JSON.'],
      ['{"a":', 'The body is no valid JSON.'],
      ['{"a":1}{}', 'The body is no valid JSON.'],
      ['[1]', 'The body must be a JSON object.'],
      ['null', 'The body must be a JSON object.'],
      [deep, 'The body has more than 128 objects and lists inside one another.'],
      [Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), 'The body is no valid UTF-8.'],
      [Buffer.from('{"a":"\xed\xa0\x80"}', 'latin1'), 'The body is no valid UTF-8.'],
    ] as const)
      expect(await errorOf(await post(url, body))).toEqual([400, 'invalid_request_error', null, message]);
  });

  it('has a type and no other encoding', async () => {
    const { url } = await start();
    expect((await post(url, '{}', { 'content-type': 'Application/JSON; charset=utf-8' })).status).toBe(200);
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonp'])
      expect((await post(url, '{}', { 'content-type': type })).status).toBe(400);
    expect((await post(url, '{}', { ...JSON_TYPE, 'content-encoding': 'gzip' })).status).toBe(400);
    const plain = await rawAnswer(
      url,
      'POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}',
    );
    expect(plain.status).toBe(400);
  });

  it('is counted while it is read', async () => {
    const { url } = await start({ maxBodyBytes: 1000, unreadMs: 100 });
    expect((await post(url, JSON.stringify({ a: 'x'.repeat(900) }))).status).toBe(200);
    const refusal = [413, 'invalid_request_error', 'request_too_large', expect.any(String)];
    expect(await errorOf(await post(url, JSON.stringify({ a: 'x'.repeat(1000) })))).toEqual(refusal);
    const head = 'POST /echo HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n';
    // A length that lies, and no length at all.
    const stated = await rawAnswer(url, `${head}content-length: 100000000\r\n\r\n`, '{"a":');
    expect(stated.status).toBe(413);
    const { socket, text, closed } = await openRaw(url);
    socket.write(`${head}transfer-encoding: chunked\r\n\r\n`);
    for (let i = 0; i < 40 && !text().includes('\r\n\r\n'); i++) {
      socket.write(`64\r\n${'x'.repeat(100)}\r\n`);
      await sleep(5);
    }
    expect(parseAnswer(text()).status).toBe(413);
    // Who goes on sending is not listened to.
    await closed;
  });

  it('shares a bound with all others', async () => {
    const { url } = await start({ maxHeldBytes: 1000 });
    const head = 'POST /echo HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n';
    const { socket, text } = await openRaw(url);
    socket.write(`${head}content-length: 803\r\n\r\n${' '.repeat(800)}`);
    await expect.poll(async () => (await post(url, `{"a":"${'x'.repeat(400)}"}`)).status).toBe(429);
    socket.write('{} ');
    await expect.poll(() => text()).toContain('200 OK');
    expect((await post(url, `{"a":"${'x'.repeat(400)}"}`)).status).toBe(200);
    socket.destroy();
  });

  it('gives its share back when it is cut off', async () => {
    const { url, errors } = await start({ maxHeldBytes: 1000 });
    for (let i = 0; i < 3; i++) {
      const { socket } = await openRaw(url);
      socket.write('POST /echo HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n');
      socket.write(`content-length: 900\r\n\r\n${' '.repeat(800)}`);
      await sleep(20);
      socket.destroy();
    }
    await expect.poll(async () => (await post(url, `{"a":"${'x'.repeat(900)}"}`)).status).toBe(200);
    expect(errors).toEqual([]);
  });
});

describe('events', () => {
  const EVENTS = ['{"a":1}', JSON.stringify('ä€😀'.repeat(2000)), '{"b":2}'];
  const TEXT = [...EVENTS, '[DONE]'].map((event) => `data: ${event}\n\n`).join('');
  const send = ({ events }: Started['streams'][number]): void => {
    for (const event of EVENTS) events.send(event);
    events.end();
  };
  const get = (version: string, more = ''): string => `GET /stream HTTP/${version}\r\nhost: h\r\n${more}\r\n`;

  it('come in chunks, also of answers that wait for their turn', async () => {
    const { url, streams } = await start();
    const { socket, closed } = await openRaw(url);
    socket.write(get('1.1') + get('1.1', 'connection: close\r\n'));
    await expect.poll(() => streams.length).toBe(2);
    // The second one is made first.
    send(streams[1]!);
    send(streams[0]!);
    const pieces = Buffer.from(await closed);
    const texts: string[] = [];
    for (let at = pieces.indexOf('\r\n\r\n') + 4; at > 3; at = pieces.indexOf('\r\n\r\n', at) + 4) {
      let text = '';
      for (;;) {
        const end = pieces.indexOf('\r\n', at);
        const length = parseInt(pieces.toString('latin1', at, end), 16);
        text += pieces.toString('utf8', end + 2, end + 2 + length);
        expect(pieces.toString('latin1', end + 2 + length, end + 4 + length)).toBe('\r\n');
        at = end + 4 + length;
        if (length === 0) break;
      }
      texts.push(text);
    }
    expect(texts).toEqual([TEXT, TEXT]);
  });

  it('come as they are where HTTP has no chunks', async () => {
    const { url, streams } = await start();
    const answer = rawAnswer(url, get('1.0'));
    await expect.poll(() => streams.length).toBe(1);
    send(streams[0]!);
    expect((await answer).body).toBe(TEXT);
  });
});

describe('a client that is slow', () => {
  it('has so long for its headers and its body', async () => {
    const { url } = await start({ headersMs: 100, requestMs: 200 });
    const slowHeaders = await rawAnswer(url, 'GET /health HTTP/1.1\r\nhost: h\r\nx-a: ');
    expect([slowHeaders.status, JSON.parse(slowHeaders.body)]).toEqual([
      408,
      expect.objectContaining({ error: expect.objectContaining({ type: 'invalid_request_error' }) as unknown }),
    ]);
    const slowBody = await rawAnswer(
      url,
      'POST /echo HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{',
    );
    expect(slowBody.status).toBe(408);
  });

  it('loses its connection when it takes nothing', async () => {
    const { url, streams } = await start({ stallMs: 200 });
    const { socket } = await openRaw(url);
    socket.pause();
    socket.write('GET /stream HTTP/1.1\r\nhost: h\r\n\r\n');
    await expect.poll(() => streams.length).toBe(1);
    const [{ exchange, events }] = streams as [(typeof streams)[number]];
    // More than the system holds for a connection.
    let isBehind = false;
    for (let i = 0; i < 1000; i++) isBehind = !events.send(JSON.stringify('x'.repeat(30_000)));
    expect(isBehind).toBe(true);
    const drained = events.drained();
    if (!exchange.signal.aborted) await once(exchange.signal, 'abort');
    await drained;
    expect(events.send('"nobody hears this"')).toBe(true);
    socket.destroy();
  });

  it('is waited for where it takes something', async () => {
    const { url, streams } = await start({ stallMs: 400 });
    const { socket, text } = await openRaw(url);
    socket.pause();
    socket.write('GET /stream HTTP/1.1\r\nhost: h\r\n\r\n');
    await expect.poll(() => streams.length).toBe(1);
    const [{ exchange, events }] = streams as [(typeof streams)[number]];
    let sent = 0;
    while (events.send(JSON.stringify(`${sent}`.padEnd(10_000)))) sent++;
    const drained = events.drained();
    socket.resume();
    await drained;
    expect(exchange.signal.aborted).toBe(false);
    events.end();
    await expect.poll(() => text()).toContain('data: [DONE]');
    socket.destroy();
  });
});

describe('a request', () => {
  it('that is none is refused', async () => {
    const { url } = await start();
    expect((await rawAnswer(url, 'NONSENSE\r\n\r\n')).status).toBe(400);
    expect((await rawAnswer(url, `GET /health HTTP/1.1\r\nhost: h\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`)).status).toBe(
      431,
    );
    expect((await rawAnswer(url, `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nhost: h\r\n\r\n`)).status).toBe(431);
    expect((await rawAnswer(url, 'GET /health HTTP/1.1\r\nconnection: close\r\n\r\n')).status).toBe(400);
  });

  it('finds its endpoint by path and method', async () => {
    const { url } = await start();
    expect(await errorOf(await fetch(`${url}/nowhere`))).toEqual([
      404,
      'invalid_request_error',
      'not_found',
      'There is no such path.',
    ]);
    const wrong = await fetch(`${url}/echo`, { method: 'PUT' });
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'POST, OPTIONS']);
    expect(await (await fetch(`${url}/models/org%2Fa/b?x=1`)).json()).toEqual({ name: 'org/a/b' });
    expect((await fetch(`${url}/models/%ff`)).status).toBe(404);
    const head = await fetch(`${url}/health`, { method: 'HEAD' });
    expect([head.status, await head.text()]).toEqual([200, '']);
    expect(await (await fetch(`${url}/version`)).json()).toEqual({ version: '1.2.3' });
  });

  it('has an id', async () => {
    const { url } = await start();
    const idOf = async (id: string): Promise<readonly unknown[]> => {
      const { status, headers } = await fetch(`${url}/health`, { headers: { 'x-request-id': id } });
      return [status, headers.get('x-request-id')];
    };
    expect(await idOf('abc-123')).toEqual([200, 'abc-123']);
    for (const id of ['a b', 'ä', 'x'.repeat(129)]) expect((await idOf(id))[0]).toBe(400);
    const raw = await rawAnswer(url, 'GET /health HTTP/1.1\r\nhost: h\r\nx-request-id: a\x01b\r\n\r\n');
    expect(raw.status).toBe(400);
    const [, own] = await idOf('');
    expect(own).toMatch(/^[0-9a-f]{32}$/);
  });

  it('that fails shows nothing of ours', async () => {
    const { url, errors } = await start();
    expect(await errorOf(await fetch(`${url}/broken`))).toEqual([500, 'server_error', null, 'Internal server error.']);
    expect(errors).toMatchObject([{ message: 'a secret of ours' }]);
  });

  it('is over when its client goes, whether it streams or not', async () => {
    const { url, streams, waiting } = await start();
    for (const path of ['/stream', '/wait']) {
      const { socket } = await openRaw(url);
      socket.write(`GET ${path} HTTP/1.1\r\nhost: h\r\n\r\n`);
      const found = (): Exchange | undefined => (path === '/wait' ? waiting[0] : streams[0]?.exchange);
      await expect.poll(() => found()?.signal.aborted).toBe(false);
      socket.destroy();
      await expect.poll(() => found()?.signal.aborted).toBe(true);
    }
    expect(await (await fetch(`${url}/load`)).json()).toEqual({ server_load: 0 });
  });
});

describe('keys', () => {
  const withKey = (authorization?: string): RequestInit =>
    authorization === undefined ? {} : { headers: { authorization } };

  it('guard everything that does not say that it is open', async () => {
    const { url } = await start({ apiKeys: ['first', 'second'] });
    const statusOf = async (path: string, authorization?: string): Promise<number> =>
      (await fetch(url + path, withKey(authorization))).status;
    for (const path of ['/models/a', '/nowhere', '/echo', '/health/../models/a', '//models/a', '/Health', '/free/'])
      expect([path, await statusOf(path)]).toEqual([path, 401]);
    for (const path of ['/health', '/version', '/load', '/free', '/free?x=/models/a'])
      expect([path, await statusOf(path)]).toEqual([path, 200]);
    for (const key of ['Bearer first', 'bearer second', 'Bearer  second'])
      expect(await statusOf('/models/a', key)).toBe(200);
    for (const key of ['first', 'Bearer', 'Bearer ', 'Bearer firs', 'Bearer first second', 'Basic first'])
      expect(await statusOf('/models/a', key)).toBe(401);
    const refused = await fetch(`${url}/echo`, { method: 'POST', body: 'x'.repeat(100_000), headers: JSON_TYPE });
    expect([await errorOf(refused), refused.headers.get('www-authenticate')]).toEqual([
      [401, 'authentication_error', 'invalid_api_key', expect.any(String)],
      'Bearer',
    ]);
    // What a request says of itself is not what it asks for.
    const absolute = await rawAnswer(
      url,
      'GET http://h/models/a HTTP/1.1\r\nhost: /health\r\nconnection: close\r\n\r\n',
    );
    expect(absolute.status).toBe(401);
  });

  it('that are wrong leave a connection as it is', async () => {
    const { url } = await start({ apiKeys: ['key'], unreadMs: 20 });
    const { socket, text } = await openRaw(url);
    const ask = (key: string): boolean =>
      socket.write(`GET /models/a HTTP/1.1\r\nhost: h\r\nauthorization: Bearer ${key}\r\n\r\n`);
    ask('wrong');
    await expect.poll(text).toContain('401 Unauthorized');
    await sleep(60);
    ask('key');
    await expect.poll(text).toContain('200 OK');
    socket.destroy();
  });

  it('may be anything where there are none', async () => {
    const { url } = await start();
    for (const key of [undefined, 'Bearer EMPTY', 'Bearer ', 'nonsense'])
      expect((await fetch(`${url}/models/a`, withKey(key))).status).toBe(200);
  });
});

describe('pages of other origins', () => {
  const ask = (url: string, origin: string, method = 'GET'): Promise<Response> =>
    fetch(`${url}/models/a`, { method, headers: { origin, 'access-control-request-headers': 'x-own' } });

  it('may ask where they are allowed to', async () => {
    const { url } = await start({ origins: ['https://a.example'], apiKeys: ['key'] });
    const before = await ask(url, 'https://a.example', 'OPTIONS');
    expect(before.status).toBe(204);
    expect(Object.fromEntries(before.headers)).toMatchObject({
      'access-control-allow-origin': 'https://a.example',
      'access-control-allow-methods': 'GET, OPTIONS',
      'access-control-allow-headers': 'x-own',
      vary: 'Origin',
    });
    expect((await ask(url, 'https://b.example', 'OPTIONS')).headers.has('access-control-allow-origin')).toBe(false);
    expect((await ask(url, 'https://a.example')).headers.get('access-control-allow-origin')).toBe('https://a.example');
  });

  it('may not ask by a name that leads to this machine, unless they are allowed to or have a key', async () => {
    const post = async (url: string, origin: string, headers = {}): Promise<number> =>
      (await fetch(`${url}/models/a`, { headers: { origin, ...headers } })).status;
    const open = await start();
    const own = [`http://localhost:1`, 'http://127.0.0.1:8000', 'http://[::1]:1', 'http://a.localhost'];
    for (const origin of own) expect([origin, await post(open.url, origin)]).toEqual([origin, 200]);
    const others = ['http://a.example', 'http://127.0.0.1.a.example', 'http://localhost.a.example', 'null', 'http://'];
    for (const origin of others) expect([origin, await post(open.url, origin)]).toEqual([origin, 403]);
    const allowed = await start({ origins: ['http://a.example'] });
    expect(await post(allowed.url, 'http://a.example')).toBe(200);
    const guarded = await start({ apiKeys: ['key'] });
    expect(await post(guarded.url, 'http://a.example', { authorization: 'Bearer key' })).toBe(200);
  });

  it('may not ask by default, and all may with a star', async () => {
    const closed = await start();
    expect((await ask(closed.url, 'https://a.example')).headers.has('access-control-allow-origin')).toBe(false);
    const all = await start({ origins: ['*'] });
    expect((await ask(all.url, 'null')).headers.get('access-control-allow-origin')).toBe('*');
  });
});

describe('a server', () => {
  it('that loads is alive and takes nothing', async () => {
    const { url, server } = await start({}, false);
    for (const path of ['/health', '/ping', '/v1/models']) {
      const { status, headers } = await fetch(url + path);
      expect([path, status, headers.get('retry-after')]).toEqual([path, 503, '5']);
    }
    server.open([]);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  it('whose engine hangs says so, until it comes on again', async () => {
    const { url, server } = await start();
    server.setAlive(false);
    expect((await fetch(`${url}/health`)).status).toBe(503);
    expect(await errorOf(await fetch(`${url}/wait`))).toEqual([
      503,
      'server_error',
      'engine_dead',
      'The engine does not answer.',
    ]);
    server.setAlive(true);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  it('that drains ends what runs and takes no more', async () => {
    const { url, server, streams } = await start();
    const running = fetch(`${url}/stream`);
    await expect.poll(() => streams.length).toBe(1);
    const drained = server.drain();
    const refused = await fetch(`${url}/models/a`);
    expect([refused.status, refused.headers.get('connection'), refused.headers.get('retry-after')]).toEqual([
      503,
      'close',
      '5',
    ]);
    expect((await fetch(`${url}/health`)).status).toBe(503);
    streams[0]!.events.send('{"a":1}');
    streams[0]!.events.end();
    expect(await (await running).text()).toBe('data: {"a":1}\n\ndata: [DONE]\n\n');
    await drained;
  });

  it('that has no time left ends what runs with an error', async () => {
    const { url, server, streams, waiting } = await start();
    const stream = fetch(`${url}/stream`);
    await expect.poll(() => streams.length).toBe(1);
    const plain = fetch(`${url}/wait`);
    await expect.poll(() => waiting.length).toBe(1);
    const drained = server.drain();
    server.abort(new ApiError(503, 'Stopped.'));
    const events = await (await stream).text();
    expect(events).toMatch(/^data: \{"error":\{"message":"Stopped\."[^\n]*\}\n\ndata: \[DONE\]\n\n$/);
    expect((await plain).status).toBe(503);
    await drained;
  });

  it('refuses a port that is taken', async () => {
    const { url } = await start();
    const port = Number(new URL(url).port);
    await expect(start({ port })).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });

  it('keeps connections for longer than balancers do', async () => {
    const { url } = await start();
    const answer = await fetch(`${url}/health`);
    expect(answer.headers.get('keep-alive')).toBe('timeout=80');
  });
});
