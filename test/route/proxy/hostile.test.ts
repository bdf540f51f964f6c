/** What no client and no replica should do: framing in two ways, endless headers, readers that do not read. */
import http from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { parseAnswer, openRaw, rawAnswer } from '../../serve/http/rawHttp.js';
import { FakeReplica } from './fakeReplica.js';
import { World, type WorldOptions } from './world.js';
import { thorough } from '../../support/thorough.js';

const worlds: World[] = [];
afterEach(async () => {
  await Promise.all(worlds.splice(0).map((world) => world.close()));
});

async function open(options: Omit<WorldOptions, 'replicas'> = {}): Promise<{ world: World; replica: FakeReplica }> {
  const replica = await FakeReplica.open('r0');
  const world = await World.open({ replicas: [replica], ...options });
  worlds.push(world);
  return { world, replica };
}

const BODY = '{"model":"base","prompt":"hi"}';
const HEAD = 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
const HIDDEN = 'GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n';

describe('a request', () => {
  it.each([
    ['two lengths', `${HEAD}Content-Length: ${BODY.length}\r\nContent-Length: 3\r\n\r\n${BODY}`],
    ['a length and chunks', `${HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
    ['chunks and a length', `${HEAD}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n${HIDDEN}`],
    ['two codings', `${HEAD}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${HIDDEN}`],
    ['a length that is none', `${HEAD}Content-Length: +3\r\n\r\n${BODY}`],
    ['a folded header', `${HEAD}X: a\r\n b\r\nContent-Length: 1x\r\n\r\n${BODY}`],
    ['a space before the colon', `${HEAD}Content-Length : ${BODY.length}\r\n\r\n${BODY}`],
    ['no version', 'POST /v1/completions\r\n\r\n'],
  ])('with %s is refused, and nothing of it goes on', async (_, bytes) => {
    const { world, replica } = await open();
    expect((await rawAnswer(world.url, bytes)).status).toBe(400);
    expect(replica.asked).toEqual([]);
  });

  it('in chunks goes on with a length; one that is hidden in a body stays there', async () => {
    const { world, replica } = await open();
    const body = JSON.stringify({ model: 'base', prompt: HIDDEN });
    const bytes = `${HEAD}Transfer-Encoding: chunked\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\n\r\n`;
    const half = body.length >> 1;
    const answer = await rawAnswer(
      world.url,
      bytes,
      ...[body.slice(0, half), body.slice(half), ''].map((part) => `${part.length.toString(16)}\r\n${part}\r\n`),
    );
    expect(answer.status).toBe(200);
    expect(replica.asked.map(({ path, body: seen }) => [path, seen])).toEqual([['/v1/completions', body]]);
    expect(replica.asked[0]!.headers).toMatchObject({ 'content-length': String(body.length) });
    expect(replica.asked[0]!.headers).not.toHaveProperty('x-secret');
    expect(replica.asked[0]!.headers).not.toHaveProperty('transfer-encoding');
  });

  it('to an absolute address stays with the replicas, and an upgrade is none', async () => {
    const { world, replica } = await open();
    const bytes =
      'POST http://elsewhere.example/v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close, upgrade\r\n' +
      `Upgrade: websocket\r\nContent-Type: application/json\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`;
    expect((await rawAnswer(world.url, bytes)).status).toBe(200);
    expect(replica.asked[0]!.headers).not.toHaveProperty('upgrade');
    expect(replica.asked[0]!.headers.host).toBe(new URL(replica.url).host);
  });

  it.each(['/v1/completions/../../route/drain', '/v1//completions', '/v1/completions%00', '/v1/models/%ff'])(
    'for %s is for nobody',
    async (path) => {
      const { world, replica } = await open();
      const answer = await rawAnswer(world.url, `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
      expect([404, 405]).toContain(answer.status);
      expect(replica.asked).toEqual([]);
    },
  );

  it('with headers without end is refused', async () => {
    const { world } = await open();
    const { socket, closed } = await openRaw(world.url);
    socket.write('GET /v1/models HTTP/1.1\r\n');
    socket.write(`x: ${'y'.repeat(40_000)}\r\n\r\n`);
    expect(parseAnswer(await closed).status).toBe(431);
  });
});

describe('a reader', () => {
  const CHUNK = `data: ${'x'.repeat(65_000)}\n\n`;

  /** A replica that writes as much as is taken, up to so many events. */
  function writer(replica: FakeReplica, events: number): { written: number; isClosed: boolean } {
    const state = { written: 0, isClosed: false };
    replica.handle = (_seen, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.on('close', () => (state.isClosed = true));
      const more = (): void => {
        while (state.written < events) {
          state.written++;
          if (!response.write(CHUNK)) return void response.once('drain', more);
        }
        response.end('data: [DONE]\n\n');
      };
      more();
    };
    return state;
  }

  const read = (world: World): Promise<http.IncomingMessage> =>
    new Promise((resolve, reject) => {
      const request = http.request(
        `${world.url}/v1/completions`,
        { method: 'POST', headers: { 'content-type': 'application/json' } },
        resolve,
      );
      request.on('error', reject);
      request.end(JSON.stringify({ model: 'base', stream: true }));
    });

  it('that is slow slows its replica, and gets everything', async () => {
    const { world, replica } = await open();
    const events = 1000;
    const state = writer(replica, events);
    const response = await read(world);
    // Buffers of four sockets fill, and no more.
    let before = -1;
    while (state.written !== before) {
      before = state.written;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect(state.written).toBeLessThan(events / 2);
    let size = 0;
    for await (const chunk of response) size += (chunk as Buffer).length;
    expect(size).toBe(events * CHUNK.length + 'data: [DONE]\n\n'.length);
  });

  it('that reads nothing is let go, and its replica too', async () => {
    const { world, replica } = await open({ limits: { stallSeconds: 0.4 } });
    const state = writer(replica, 1000);
    const response = await read(world);
    response.on('error', () => undefined);
    await expect.poll(() => state.isClosed).toBe(true);
    expect(state.written).toBeLessThan(500);
    response.destroy();
  });
});

describe('a replica', () => {
  thorough('whose metrics and lists have no end is bounded', async () => {
    const { world, replica } = await open();
    replica.metrics = 'vllm:num_requests_running 7\n'.repeat(400_000);
    const known = world.server.fleet.replicas.get('r0')!;
    await expect.poll(() => known.metrics).toBeUndefined();
    expect((await world.complete()).status).toBe(200);
    replica.metrics = '';
    replica.models = JSON.stringify({ data: [{ id: 'x'.repeat(33 << 20) }] });
    await expect.poll(() => known.phase).toBe('down');
  });

  it('that answers with a length that is not its own is passed over', async () => {
    const { world, replica } = await open({ limits: { attempts: 2, waitSeconds: 0.3 } });
    replica.handle = (_seen, response) =>
      void response.socket?.end('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{}');
    const reply = await world.complete();
    expect([reply.status, reply.text]).toEqual([503, expect.stringContaining('no_replica')]);
  });
});
