/** Adapters that a router has loaded, under names with their revision; revisions that change while requests run. */
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeReplica } from './fakeReplica.js';
import { World, type WorldOptions } from './world.js';

let folder = '';
const worlds: World[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-route-'));
});
afterEach(async () => {
  await Promise.all(worlds.splice(0).map((world) => world.close()));
  rmSync(folder, { recursive: true, force: true });
});

/** A revision in a folder of its own, and the link of the name set to it at once. */
function write(name: string, revision: string): string {
  const at = join(folder, `${name}-${revision}`);
  mkdirSync(at, { recursive: true });
  writeFileSync(join(at, 'adapter_config.json'), '{"peft_type":"LORA"}');
  writeFileSync(join(at, 'adapter_model.safetensors'), `weights of ${revision}`);
  const link = join(folder, name);
  symlinkSync(at, `${link}.new`);
  renameSync(`${link}.new`, link);
  return link;
}

async function open(count: number, names: readonly string[], options: Partial<WorldOptions> = {}): Promise<World> {
  const replicas =
    options.replicas ?? (await Promise.all(Array.from({ length: count }, (_, i) => FakeReplica.open(`r${i}`))));
  const adapters = Object.fromEntries(names.map((name) => [name, { base: 'base', path: write(name, 'one') }] as const));
  const world = await World.open({ ...options, replicas, adapters: { ...adapters, ...options.adapters } });
  worlds.push(world);
  return world;
}

const heldBy = (replica: FakeReplica): readonly string[] => [...replica.loaded.keys()];
const revisions = (world: World, name: string): readonly string[] => [
  ...new Set(world.replicas.flatMap(heldBy).filter((held) => held.startsWith(`${name}@`))),
];

describe('an adapter', () => {
  it('is loaded where the first request of it goes, and has its plain name in answers', async () => {
    const world = await open(2, ['sql'], { policy: { placementSeconds: 60 } });
    const reply = await world.complete({ model: 'sql' });
    expect(JSON.parse(reply.text)).toEqual({ model: 'sql', choices: [{ text: 'answer to hello' }] });
    const stream = await world.complete({ model: 'sql', stream: true });
    expect(stream.text).toContain('data: {"model":"sql","choices":[{"text":"hello"}]}\n\n');
    expect(stream.text).not.toContain('sql@');
    const [held] = revisions(world, 'sql');
    expect(held).toMatch(/^sql@[0-9a-f]{12}$/);
    expect(world.replicas.flatMap(({ loaded }) => [...loaded.values()])).toEqual([join(folder, 'sql-one')]);
    // The second request goes where it is.
    expect(world.replicas.map(({ asked }) => asked.length).sort()).toEqual([0, 2]);
  });

  it('is listed before anybody has it', async () => {
    const world = await open(2, ['sql', 'chat']);
    const { data } = JSON.parse((await world.get('/v1/models')).text) as { data: { id: string; parent?: string }[] };
    expect(data.map(({ id, parent }) => [id, parent]).sort()).toEqual([
      ['base', undefined],
      ['chat', 'base'],
      ['sql', 'base'],
    ]);
    expect((await world.get('/v1/models/sql')).status).toBe(200);
    expect((await world.get('/v1/models/sql@0')).status).toBe(404);
  });

  it('that is being loaded is waited for by all who ask for it', async () => {
    const world = await open(1, ['sql']);
    const [replica] = world.replicas;
    let openGate = (): void => undefined;
    replica!.gate = new Promise((resolve) => (openGate = resolve));
    const asked = Array.from({ length: 6 }, () => world.complete({ model: 'sql' }));
    await expect.poll(() => replica!.seen.some(({ path }) => path === '/v1/load_lora_adapter')).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 100));
    // Nobody has asked for what is not there yet.
    expect(replica!.asked).toEqual([]);
    openGate();
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(asked.map(() => 200));
    expect(replica!.asked).toHaveLength(6);
    expect(world.events.filter(({ event }) => event === 'retry')).toEqual([]);
  });

  it('that a replica falsely lists is loaded after all', async () => {
    const replicas = [await FakeReplica.open('r0')];
    const world = await open(1, ['sql'], { replicas });
    await world.complete({ model: 'sql' });
    const [held] = heldBy(replicas[0]!);
    // It forgets, and goes on listing it.
    replicas[0]!.models = JSON.stringify({ data: [{ id: 'base' }, { id: held, parent: 'base' }] });
    replicas[0]!.loaded.clear();
    expect((await world.complete({ model: 'sql' })).status).toBe(200);
    expect(heldBy(replicas[0]!)).toEqual([held]);
    expect(world.events.filter(({ event }) => event === 'retry')).toHaveLength(1);
  });

  it('that a replica cannot load is loaded elsewhere', async () => {
    const replicas = await Promise.all(['r0', 'r1'].map((name) => FakeReplica.open(name)));
    replicas[0]!.onLoad = () => ({ status: 400, text: '{"error":{"message":"it does not fit"}}' });
    const world = await open(2, ['a', 'b', 'c', 'd', 'e', 'f'], { replicas });
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const replies = await Promise.all(names.map((model) => world.complete({ model })));
    expect(replies.map(({ status }) => status)).toEqual(names.map(() => 200));
    expect(heldBy(replicas[1]!).length).toBe(6);
    expect(world.events.some((each) => each.event === 'load failed' && each.why.includes('it does not fit'))).toBe(
      true,
    );
  });

  it('without a folder is said to be unavailable', async () => {
    const world = await open(1, [], {
      adapters: { gone: { base: 'base', path: join(folder, 'nowhere') } },
      limits: { waitSeconds: 0.1 },
    });
    const reply = await world.complete({ model: 'gone' });
    expect([reply.status, reply.text]).toEqual([503, expect.stringContaining('adapter_unavailable')]);
  });
});

describe('a new revision', () => {
  it('takes over when all holders have it, and no request is lost or mixed', async () => {
    const replicas = await Promise.all(['r0', 'r1', 'r2'].map((name) => FakeReplica.open(name)));
    const world = await open(3, ['sql'], { replicas, policy: { epsilon: 0.01 } });
    const before = (await world.complete({ model: 'sql' }), revisions(world, 'sql')[0]!);
    // One that runs through the change.
    let slow: FakeReplica | undefined;
    let answer: (() => void) | undefined;
    for (const each of replicas)
      each.handle = (seen, response) => {
        if (!seen.body.includes('slow')) return each.answer(seen, response);
        [slow, answer] = [each, () => each.answer(seen, response)];
      };
    const running = world.complete({ model: 'sql', prompt: 'slow', stream: true });
    await expect.poll(() => answer).toBeDefined();
    write('sql', 'two');
    await expect.poll(() => world.events.filter(({ event }) => event === 'swap').length).toBe(1);
    const after = revisions(world, 'sql').find((held) => held !== before)!;
    const late = await world.complete({ model: 'sql' });
    expect(JSON.parse(late.text)).toMatchObject({ model: 'sql' });
    const last = world.replicas
      .flatMap(({ asked }) => asked)
      .filter(({ body }) => body.includes('hello'))
      .at(-1)!;
    expect(JSON.parse(last.body)).toMatchObject({ model: after });
    // The old one stays for the request that runs.
    expect(slow!.loaded.has(before)).toBe(true);
    answer!();
    expect((await running).text).toContain('slow');
    await expect.poll(() => revisions(world, 'sql')).toEqual([after]);
  });

  it('that no replica can load changes nothing', async () => {
    const replicas = [await FakeReplica.open('r0')];
    const world = await open(1, ['sql'], { replicas });
    await world.complete({ model: 'sql' });
    const before = heldBy(replicas[0]!);
    replicas[0]!.onLoad = () => ({ status: 400, text: 'bad' });
    write('sql', 'two');
    await expect.poll(() => world.events.filter(({ event }) => event === 'load failed').length).toBeGreaterThan(0);
    expect((await world.complete({ model: 'sql' })).status).toBe(200);
    expect(heldBy(replicas[0]!)).toEqual(before);
  });

  it('whose folder vanishes leaves the one that is served', async () => {
    const world = await open(1, ['sql']);
    await world.complete({ model: 'sql' });
    rmSync(join(folder, 'sql'), { force: true });
    await expect.poll(() => world.events.some(({ event }) => event === 'error')).toBe(true);
    expect((await world.complete({ model: 'sql' })).status).toBe(200);
  });

  it('is found by a router that is started anew, beside what replicas hold', async () => {
    const replicas = await Promise.all(['r0', 'r1'].map((name) => FakeReplica.open(name)));
    for (const replica of replicas) replica.loaded.set('sql@0123456789ab', 'somewhere');
    let loads = 0;
    for (const replica of replicas) replica.onLoad = () => (loads++ < 2 ? { status: 500, text: 'later' } : undefined);
    const world = await open(2, ['sql'], { replicas });
    const reply = await world.complete({ model: 'sql' });
    expect(reply.status).toBe(200);
    expect(JSON.parse(replicas.flatMap(({ asked }) => asked)[0]!.body)).toMatchObject({ model: 'sql@0123456789ab' });
    expect(world.events).toContainEqual(
      expect.objectContaining({ event: 'revision', revision: '0123456789ab', why: 'replicas hold it' }),
    );
  });
});

describe('two routers before the same replicas', () => {
  it('follow each other from revision to revision, and lose no request', async () => {
    const replicas = await Promise.all(['r0', 'r1'].map((name) => FakeReplica.open(name)));
    const first = await open(2, ['sql'], { replicas });
    // The other one looks at folders once a minute.
    const second = await World.open({
      ...{ replicas, policy: { placementSeconds: 60 } },
      adapters: { sql: { base: 'base', path: join(folder, 'sql') } },
    });
    worlds.push(second);
    const statuses: number[] = [];
    let isOver = false;
    const load = [first, second, second].map(async (world) => {
      while (!isOver) statuses.push((await world.complete({ model: 'sql' })).status);
    });
    await expect.poll(() => statuses.length).toBeGreaterThan(10);
    write('sql', 'two');
    const swaps = (world: World): number => world.events.filter(({ event }) => event === 'swap').length;
    await expect.poll(() => [swaps(first), swaps(second)]).toEqual([1, 1]);
    await expect.poll(() => revisions(first, 'sql').length).toBe(1);
    isOver = true;
    await Promise.all(load);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
  });
});

describe('a replica that is drained', () => {
  it('hands its adapters over before it is idle', async () => {
    const world = await open(2, ['sql']);
    await world.complete({ model: 'sql' });
    const holder = world.replicas.find(({ loaded }) => loaded.size > 0)!;
    const other = world.replicas.find((each) => each !== holder)!;
    await world.ask('/route/drain', { body: { replica: holder.name } });
    await expect.poll(() => heldBy(other).length).toBe(1);
    await world.complete({ model: 'sql' });
    expect(other.asked.length).toBe(1);
  });
});
