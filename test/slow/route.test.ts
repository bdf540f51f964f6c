/**
 * A router before real servers of the bundled model: one is killed, one is taken out, one comes back, all under load.
 * Every answer is the one that a single server gives, and none is lost that had not begun.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LoadClient } from '../../bench/load/client.js';
import { isRecord } from '../../system/json.js';
import { ROOT } from '../e2e/support.js';
import { RouteProcess } from '../support/routeProcess.js';
import { ServeProcess } from '../support/serveProcess.js';

const MODEL = join(ROOT, 'models', 'demo');
const FLAGS = ['--threads', '1', '--target', 'cpu', '--served-model-name', 'served', '--cache-tokens', '8192'];
const PROBE = { periodSeconds: 0.3, timeoutSeconds: 5 };
const KINDS = 24;

let folder = '';
const servers: ServeProcess[] = [];
const routers: RouteProcess[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-route-'));
});
afterEach(async () => {
  for (const router of routers.splice(0)) await router.stop();
  for (const server of servers.splice(0)) await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function open(count: number): Promise<readonly ServeProcess[]> {
  for (let i = 0; i < count; i++) servers.push(await ServeProcess.open(MODEL, FLAGS));
  return servers;
}

async function route(config: Readonly<Record<string, unknown>> = {}): Promise<RouteProcess> {
  const replicas = servers.map(({ baseUrl }, i) => ({ name: `r${i}`, url: baseUrl }));
  const router = await RouteProcess.open(join(folder, 'route.json'), { replicas, probe: PROBE, ...config });
  routers.push(router);
  await expect
    .poll(async () => (await router.status()).replicas.map(({ state }) => state))
    .toEqual(servers.map(() => 'ready'));
  return router;
}

const bodyOf = (kind: number): Readonly<Record<string, unknown>> => ({
  ...{ model: 'served', prompt: `Story ${kind % 7}: once`, seed: kind, max_tokens: 8 + (kind % 3) * 12 },
  ...{ logprobs: 0, stream: kind % 2 === 1, ignore_eos: true },
});

interface Answer {
  readonly text: string;
  readonly logProbs: readonly unknown[];
  readonly error: string | undefined;
  readonly events: number;
}

async function ask(client: LoadClient, kind: number): Promise<Answer> {
  let text = '';
  let events = 0;
  const logProbs: unknown[] = [];
  const { error } = await client.send({
    path: '/v1/completions',
    body: JSON.stringify(bodyOf(kind)),
    onData: (json) => {
      const value: unknown = JSON.parse(json);
      const [choice] = isRecord(value) && Array.isArray(value['choices']) ? (value['choices'] as unknown[]) : [];
      if (!isRecord(choice)) return;
      events++;
      text += String(choice['text']);
      const lists = choice['logprobs'];
      if (isRecord(lists)) logProbs.push(...(lists['token_logprobs'] as unknown[]));
    },
  });
  return { text, logProbs, error, events };
}

/** What one server says to each kind of request. */
async function wanted(server: ServeProcess): Promise<readonly Answer[]> {
  const answers = await Promise.all(Array.from({ length: KINDS }, (_, kind) => ask(server.client, kind)));
  expect(answers.map(({ error }) => error)).toEqual(answers.map(() => undefined));
  expect(new Set(answers.map(({ text }) => text)).size).toBeGreaterThan(KINDS / 2);
  return answers;
}

/** Clients that ask one after another until they are stopped. */
class Load {
  readonly answers: { readonly kind: number; readonly answer: Answer }[] = [];
  private isOver = false;
  private readonly client: LoadClient;
  private readonly clients: readonly Promise<void>[];

  constructor(url: string, clients: number) {
    this.client = new LoadClient({ baseUrl: url });
    this.clients = Array.from({ length: clients }, (_, i) => this.run(i));
  }

  private async run(first: number): Promise<void> {
    for (let i = 0; !this.isOver; i++) {
      const kind = (first * 5 + i) % KINDS;
      this.answers.push({ kind, answer: await ask(this.client, kind) });
    }
  }

  async until(count: number): Promise<void> {
    await expect.poll(() => this.answers.length).toBeGreaterThan(this.answers.length + count);
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await Promise.all(this.clients);
    this.client.close();
  }
}

const same = (a: Answer, b: Answer): boolean =>
  a.text === b.text && JSON.stringify(a.logProbs) === JSON.stringify(b.logProbs);

describe('a router before servers', () => {
  it('loses nothing that had not begun when one is killed', { timeout: 600_000 }, async () => {
    const [first, second] = await open(3);
    const right = await wanted(first!);
    const router = await route();
    const load = new Load(router.url, 12);
    await load.until(20);
    process.kill(second!.pid, 'SIGKILL');
    await load.until(40);
    await load.stop();
    const broken = load.answers.filter(({ answer }) => answer.error !== undefined);
    // Streams that had begun, and no more than ran there.
    for (const { kind, answer } of broken) {
      expect(answer.error).toContain('broken off');
      expect([kind % 2, answer.events > 0]).toEqual([1, true]);
      expect(right[kind]!.text.startsWith(answer.text)).toBe(true);
    }
    expect(broken.length).toBeLessThanOrEqual(12);
    const whole = load.answers.filter(({ answer }) => answer.error === undefined);
    expect(whole.filter(({ kind, answer }) => !same(answer, right[kind]!))).toEqual([]);
    expect(whole.length).toBeGreaterThan(50);
    expect((await router.status()).replicas.map(({ state }) => state)).toEqual(['ready', 'down', 'ready']);
    servers.splice(1, 1);
  });

  it('loses nothing at all when one is taken out', { timeout: 600_000 }, async () => {
    const [first] = await open(3);
    const right = await wanted(first!);
    const router = await route();
    const load = new Load(router.url, 12);
    await load.until(20);
    await router.setDrain('r2');
    await expect.poll(async () => (await router.status()).replicas[2]!.is_idle).toBe(true);
    const [taken] = servers.splice(2, 1);
    const asked = await taken!.metric('vllm:request_success_total');
    expect(await taken!.stop()).toBe(0);
    await load.until(30);
    await load.stop();
    expect(asked).toBeGreaterThan(0);
    expect(
      load.answers.filter(({ kind, answer }) => answer.error !== undefined || !same(answer, right[kind]!)),
    ).toEqual([]);
  });

  it('waits for one that is stopped and goes on', { timeout: 600_000 }, async () => {
    const [first, second] = await open(2);
    const right = await wanted(first!);
    const router = await route({ probe: { ...PROBE, timeoutSeconds: 1 } });
    const load = new Load(router.url, 8);
    await load.until(16);
    process.kill(second!.pid, 'SIGSTOP');
    try {
      await expect.poll(async () => (await router.status()).replicas[1]!.state).toBe('down');
      await load.until(20);
    } finally {
      process.kill(second!.pid, 'SIGCONT');
    }
    await expect.poll(async () => (await router.status()).replicas[1]!.state).toBe('ready');
    await load.stop();
    // Streams that had begun there go on when it does.
    expect(
      load.answers.filter(({ kind, answer }) => answer.error !== undefined || !same(answer, right[kind]!)),
    ).toEqual([]);
  });

  it('ends what runs when it is told to stop', { timeout: 600_000 }, async () => {
    await open(1);
    const router = await route();
    const client = new LoadClient({ baseUrl: router.url });
    const running = ask(client, 23);
    await expect.poll(async () => (await router.status()).requests.active).toBe(1);
    routers.splice(0);
    expect(await router.stop()).toBe(0);
    expect((await running).error).toBeUndefined();
    client.close();
  });
});
