/** A router before replicas that do what they like: who answers, what goes through, what is asked again. */
import { afterEach, describe, expect, it } from 'vitest';
import { FakeReplica } from './fakeReplica.js';
import { World, type WorldOptions } from './world.js';

const worlds: World[] = [];
afterEach(async () => {
  await Promise.all(worlds.splice(0).map((world) => world.close()));
});

async function open(count: number, options: Omit<WorldOptions, 'replicas'> = {}): Promise<World> {
  const replicas = await Promise.all(Array.from({ length: count }, (_, i) => FakeReplica.open(`r${i}`)));
  const world = await World.open({ replicas, ...options });
  worlds.push(world);
  return world;
}

/** The replica that was asked last. */
const askedOf = ({ replicas }: World): readonly number[] => replicas.map(({ asked }) => asked.length);

describe('requests', () => {
  it('go through as they are, to the byte', async () => {
    const world = await open(1);
    const body =
      '{ "prompt" : "h\\u00e9 \\"model\\":\\"x\\"", "temperature": 1.0,\n "model":"base", "n": 12345678901234567890}';
    const reply = await world.ask('/v1/completions?x=1', { body, headers: { 'x-request-id': 'mine', te: 'trailers' } });
    expect([reply.status, reply.isWhole]).toEqual([200, true]);
    expect(JSON.parse(reply.text)).toEqual({ model: 'base', choices: [{ text: 'answer to hé "model":"x"' }] });
    const [seen] = world.replicas[0]!.asked;
    expect(seen).toMatchObject({ path: '/v1/completions?x=1', body });
    expect(seen!.headers).toMatchObject({ 'x-request-id': 'mine', 'content-length': String(Buffer.byteLength(body)) });
    expect(seen!.headers['te']).toBeUndefined();
    expect(reply.headers['x-request-id']).toBe('mine');
  });

  it('are streamed as they come', async () => {
    const world = await open(1);
    const reply = await world.complete({ stream: true });
    expect(reply.headers['content-type']).toBe('text/event-stream');
    expect(reply.text).toBe(
      ['answer ', 'to ', 'hello'].map((text) => `data: {"model":"base","choices":[{"text":"${text}"}]}\n\n`).join('') +
        'data: [DONE]\n\n',
    );
  });

  it('are spread over replicas', async () => {
    const world = await open(3);
    await Promise.all(Array.from({ length: 30 }, (_, i) => world.complete({ prompt: `p${i}` })));
    expect(Math.min(...askedOf(world))).toBeGreaterThan(2);
  });

  it('that are no JSON, too large, or for nobody are refused', async () => {
    const world = await open(1, { limits: { bodyMiB: 1 } });
    const codes = async (body: string): Promise<unknown> => {
      const { status, text } = await world.ask('/v1/completions', { body });
      return [status, (JSON.parse(text) as { error: { code: unknown } }).error.code];
    };
    expect(await codes('{"model":')).toEqual([400, null]);
    expect(await codes('[1]')).toEqual([400, null]);
    expect(await codes(JSON.stringify({ prompt: 'x'.repeat(1 << 20) }))).toEqual([413, 'request_too_large']);
    expect(await codes('{"model":"other"}')).toEqual([404, 'model_not_found']);
    expect((await world.get('/v1/nothing')).status).toBe(404);
    expect((await world.get('/v1/completions')).status).toBe(405);
    expect(world.replicas[0]!.asked).toEqual([]);
  });
});

describe('a replica that fails', () => {
  it('is passed over while nothing was sent', async () => {
    const world = await open(2);
    const [first, second] = world.replicas as [FakeReplica, FakeReplica];
    for (const each of [first, second]) {
      const other = each === first ? second : first;
      const handle = each.handle;
      each.handle = (_seen, response) => response.socket?.destroy();
      for (let i = 0; i < 6; i++) expect((await world.complete({ prompt: `${i}` })).text).toContain(`answer to ${i}`);
      each.handle = handle;
      expect(other.asked.length).toBeGreaterThan(0);
    }
    expect(world.events.filter(({ event }) => event === 'retry').length).toBeGreaterThan(0);
  });

  it('with a half answer that was not sent yet is passed over too', async () => {
    const world = await open(2);
    const [first] = world.replicas as [FakeReplica, FakeReplica];
    let cut = 0;
    first.handle = (_seen, response) => {
      cut++;
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1000 });
      response.write('{"half":');
      setTimeout(() => response.destroy(), 5);
    };
    for (let i = 0; i < 8; i++) expect((await world.complete({ prompt: `${i}` })).text).toContain(`answer to ${i}`);
    expect(cut).toBeGreaterThan(0);
  });

  it('ends a stream that has begun with an error, and one that has not goes elsewhere', async () => {
    const world = await open(2);
    const [first] = world.replicas as [FakeReplica, FakeReplica];
    let hasBegun = 0;
    first.handle = (seen, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': wait\n\n');
      const isLate = seen.body.includes('late');
      if (isLate) {
        hasBegun++;
        response.write('data: {"model":"base"}\n\ndata: {"mod');
      }
      setTimeout(() => response.destroy(), 5);
    };
    const early = await Promise.all(
      Array.from({ length: 8 }, (_, i) => world.complete({ prompt: `${i}`, stream: true })),
    );
    for (const [i, { text }] of early.entries()) {
      expect(text.replaceAll(': wait\n\n', '')).toContain(`"text":"${i}"`);
      expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    }
    const late = await Promise.all(
      Array.from({ length: 8 }, (_, i) => world.complete({ prompt: `late ${i}`, stream: true })),
    );
    const broken = late.filter(({ text }) => text.includes('answer_broke_off'));
    expect([broken.length > 0, broken.length]).toEqual([true, hasBegun]);
    for (const { text, isWhole } of broken) {
      expect(isWhole).toBe(true);
      expect(text).toMatch(/^: wait\n\ndata: {"model":"base"}\n\ndata: {"error":.*}\n\ndata: \[DONE\]\n\n$/);
    }
  });

  it('is gone, and comes back', async () => {
    const world = await open(2);
    const [first] = world.replicas as [FakeReplica, FakeReplica];
    const { port } = first;
    await first.kill();
    const replies = await Promise.all(Array.from({ length: 12 }, (_, i) => world.complete({ prompt: `${i}` })));
    expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 200));
    await expect.poll(() => world.server.fleet.replicas.get('r0')!.phase).toBe('down');
    await first.listen(port);
    await expect.poll(() => world.server.fleet.replicas.get('r0')!.phase).toBe('ready');
  });

  it('and is the only one is waited for', async () => {
    const world = await open(1);
    const [only] = world.replicas as [FakeReplica];
    const { port } = only;
    await only.kill();
    const reply = world.complete();
    await expect.poll(() => world.server.forwarder.waiting).toBe(1);
    await only.listen(port);
    expect((await reply).status).toBe(200);
  });

  it('hangs: what has not begun is asked elsewhere', async () => {
    const world = await open(2, { probe: { timeoutSeconds: 0.1 } });
    const [first] = world.replicas as [FakeReplica, FakeReplica];
    first.hangs.add('/v1/completions');
    const asked = Array.from({ length: 8 }, (_, i) => world.complete({ prompt: `${i}` }));
    await expect.poll(() => first.asked.length).toBeGreaterThan(0);
    first.hangs.add('/health');
    const replies = await Promise.all(asked);
    for (const [i, { text }] of replies.entries()) expect(text).toContain(`answer to ${i}`);
  });

  it('says that it is full: another one is asked, and the last word is passed on', async () => {
    const world = await open(2);
    const [first, second] = world.replicas as [FakeReplica, FakeReplica];
    const full: FakeReplica['handle'] = (_seen, response) =>
      void response
        .writeHead(429, { 'retry-after': '7', 'content-type': 'application/json' })
        .end('{"error":{"code":"queue_full"}}');
    first.handle = full;
    for (let i = 0; i < 6; i++) expect((await world.complete({ prompt: `${i}` })).status).toBe(200);
    expect(first.asked.length).toBeGreaterThan(0);
    second.handle = full;
    const reply = await world.complete();
    expect([reply.status, reply.headers['retry-after'], reply.text]).toEqual([
      429,
      '7',
      '{"error":{"code":"queue_full"}}',
    ]);
  });

  it.each(['no http at all\r\n\r\n', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(100_000)}\r\n\r\n`])(
    'and speaks no HTTP (%#) is passed over',
    async (bytes) => {
      const world = await open(2);
      const [first] = world.replicas as [FakeReplica, FakeReplica];
      first.handle = (_seen, response) => void response.socket?.end(bytes);
      for (let i = 0; i < 6; i++) expect((await world.complete({ prompt: `${i}` })).status).toBe(200);
      expect(first.asked.length).toBeGreaterThan(0);
    },
  );

  it('whose list is no list gets nothing', async () => {
    const replicas = await Promise.all(['r0', 'r1'].map((name) => FakeReplica.open(name)));
    replicas[0]!.models = '{"data": 3}';
    const world = await World.open({ replicas });
    worlds.push(world);
    for (let i = 0; i < 6; i++) expect((await world.complete({ prompt: `${i}` })).status).toBe(200);
    expect(askedOf(world)).toEqual([0, 6]);
  });
});

describe('clients', () => {
  it('that go away end their requests', async () => {
    const world = await open(1);
    let gone = 0;
    world.replicas[0]!.handle = (_seen, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: 1\n\n');
      response.on('close', () => gone++);
    };
    const leave = new AbortController();
    const reply = world.complete({ stream: true }, { signal: leave.signal }).catch(() => 'gone');
    await expect.poll(() => world.replicas[0]!.asked.length).toBe(1);
    leave.abort();
    await reply;
    await expect.poll(() => gone).toBe(1);
    await expect.poll(() => world.events.filter(({ event }) => event === 'request').length).toBe(1);
    expect(world.events.at(-1)).toMatchObject({ event: 'request', outcome: 'cancelled', status: 499 });
  });

  it('show keys, which replicas do not see', async () => {
    const world = await open(1, {
      more: { clientKeyVariables: ['CLIENT'], adminKeyVariable: 'ADMIN' },
      variables: { CLIENT: 'client-key', ADMIN: 'admin-key' },
    });
    const asked = async (path: string, key?: string): Promise<number> =>
      (
        await world.ask(path, {
          ...(path === '/v1/completions' ? { body: { model: 'base', prompt: 'x' } } : { method: 'GET' }),
          ...(key === undefined ? {} : { headers: { authorization: `Bearer ${key}` } }),
        })
      ).status;
    expect(await asked('/v1/completions')).toBe(401);
    expect(await asked('/v1/completions', 'admin-key')).toBe(401);
    expect(await asked('/v1/completions', 'client-key')).toBe(200);
    expect(await asked('/route/status', 'client-key')).toBe(401);
    expect(await asked('/route/status', 'admin-key')).toBe(200);
    expect(await asked('/health')).toBe(200);
    expect(world.replicas[0]!.asked[0]!.headers.authorization).toBeUndefined();
  });

  it('see that the router drains', async () => {
    const world = await open(1);
    let answer: (() => void) | undefined;
    world.replicas[0]!.handle = (seen, response) => (answer = () => world.replicas[0]!.answer(seen, response));
    const running = world.complete();
    await expect.poll(() => answer).toBeDefined();
    const drained = world.server.drain(5000);
    const late = await world.complete();
    expect([late.status, (await world.get('/health')).status]).toEqual([503, 503]);
    answer!();
    expect((await running).status).toBe(200);
    await drained;
  });
});

describe('administrators', () => {
  it('drain a replica, and resume it', async () => {
    const world = await open(2);
    expect((await world.ask('/route/drain', { body: { replica: 'r0' } })).status).toBe(200);
    for (let i = 0; i < 6; i++) await world.complete({ prompt: `${i}` });
    expect(askedOf(world)).toEqual([0, 6]);
    const status = JSON.parse((await world.get('/route/status')).text) as {
      replicas: { state: string; is_idle: boolean }[];
    };
    expect(status.replicas.map(({ state }) => state)).toEqual(['draining', 'ready']);
    expect(status.replicas[0]!.is_idle).toBe(true);
    expect((await world.ask('/route/resume', { body: { replica: 'r0' } })).status).toBe(200);
    await Promise.all(Array.from({ length: 12 }, (_, i) => world.complete({ prompt: `q${i}` })));
    expect(askedOf(world)[0]).toBeGreaterThan(0);
    expect((await world.ask('/route/drain', { body: { replica: 'none' } })).status).toBe(400);
  });

  it('read metrics', async () => {
    const world = await open(1);
    await world.complete();
    const { text } = await world.get('/metrics');
    expect(text).toContain('tilewright:route_replica_ready{replica="r0"} 1');
    expect(text).toContain('tilewright:route_attempts_total{replica="r0",outcome="answered"} 1');
    expect(text).toContain('http_requests_total{handler="/v1/completions",method="POST",status="200"} 1');
  });
});
