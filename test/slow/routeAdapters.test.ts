/**
 * A router before two real servers that have adapters loaded for it: a name gets another revision under load, and a
 * server is killed. Each answer is that of one revision, the old one before and the new one behind, and none is lost
 * that had not begun.
 */
import { existsSync, renameSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { LoadClient } from '../../bench/load/client.js';
import { temporaryFolder } from '../e2e/support.js';
import { ADAPTERS } from '../support/adapters.js';
import { RouteProcess } from '../support/routeProcess.js';
import { completeOver, type ServeProcess } from '../support/serveProcess.js';
import { adapterAt, generated, openBase, PROMPT, type Written } from '../support/servedAdapters.js';

const TOKENS = 16;
const [OLD, NEW, STEADY] = ['mistral-qv', 'mistral-all-rs', 'mistral-layers'] as const;

const servers: ServeProcess[] = [];
const routers: RouteProcess[] = [];
afterEach(async () => {
  for (const router of routers.splice(0)) await router.stop();
  for (const server of servers.splice(0)) await server.stop();
});

interface Asked {
  readonly model: string;
  readonly isStream: boolean;
  readonly begun: number;
  readonly ended: number;
  readonly answer: Written;
  readonly error: string | undefined;
}

const MODELS = ['live', 'served', 'live', 'steady'];

/** Clients that ask one after another. */
class Askers {
  readonly asked: Asked[] = [];
  private isOver = false;
  private readonly client: LoadClient;
  private readonly clients: readonly Promise<void>[];

  constructor(url: string, clients: number) {
    this.client = new LoadClient({ baseUrl: url });
    this.clients = Array.from({ length: clients }, async (_, first) => {
      for (let i = first; !this.isOver; i++) {
        const [model, isStream] = [MODELS[i % MODELS.length]!, (i >> 2) % 2 === 1];
        const begun = performance.now();
        const { text, tokens, logProbs, outcome } = await completeOver(this.client, {
          ...{ model, stream: isStream, prompt: PROMPT, temperature: 0, ignore_eos: true, max_tokens: TOKENS },
        });
        const { error } = outcome;
        this.asked.push({
          model,
          isStream,
          begun,
          ended: performance.now(),
          answer: { text, tokens, logProbs },
          error,
        });
      }
    });
  }

  async more(count: number): Promise<void> {
    const wanted = this.asked.length + count;
    await expect.poll(() => this.asked.length, { timeout: 100_000 }).toBeGreaterThan(wanted);
  }

  async stop(): Promise<void> {
    this.isOver = true;
    await Promise.all(this.clients);
    this.client.close();
  }
}

/** The link means another folder from one moment to the next. */
function setLink(link: string, folder: string): void {
  symlinkSync(folder, `${link}.next`);
  renameSync(`${link}.next`, link);
}

describe.skipIf(!existsSync(ADAPTERS))('a router before servers with adapters', () => {
  it('mixes no revisions and loses nothing that had not begun', { timeout: 600_000 }, async () => {
    const right = new Map<string, Written>();
    right.set('served', await generated(undefined, TOKENS));
    for (const name of [OLD, NEW, STEADY]) right.set(name, await generated(name, TOKENS));
    const folder = temporaryFolder();
    const link = join(folder, 'live');
    setLink(link, adapterAt(OLD));
    for (let i = 0; i < 2; i++) servers.push(await openBase('--adapter-updates', '--adapter-slots', '4'));
    const router = await RouteProcess.open(join(folder, 'route.json'), {
      replicas: servers.map(({ baseUrl }, i) => ({ name: `r${i}`, url: baseUrl })),
      adapters: {
        live: { base: 'served', path: link },
        steady: { base: 'served', path: adapterAt(STEADY) },
      },
      probe: { periodSeconds: 0.3, timeoutSeconds: 5 },
      policy: { placementSeconds: 0.5 },
    });
    routers.push(router);
    const revision = async (): Promise<string | null> =>
      (await router.status()).adapters.find(({ name }) => name === 'live')!.revision;
    await expect.poll(revision, { timeout: 30_000 }).not.toBeNull();
    const first = await revision();
    const askers = new Askers(router.url, 8);
    await askers.more(40);
    const swapBegun = performance.now();
    setLink(link, adapterAt(NEW));
    await expect.poll(revision, { timeout: 60_000 }).not.toBe(first);
    const swapEnded = performance.now();
    await askers.more(40);
    const killedAt = performance.now();
    process.kill(servers[1]!.pid, 'SIGKILL');
    await askers.more(60);
    await askers.stop();
    servers.splice(1, 1);

    const may = ({ model, begun, ended }: Asked): readonly Written[] => {
      if (model !== 'live') return [right.get(model === 'steady' ? STEADY : model)!];
      return [...(begun < swapEnded ? [OLD] : []), ...(ended > swapBegun ? [NEW] : [])].map((name) => right.get(name)!);
    };
    const broken = askers.asked.filter(({ error }) => error !== undefined);
    for (const each of broken) {
      expect(each.error).toContain('broken off');
      expect([each.isStream, each.ended > killedAt, each.answer.tokens.length > 0]).toEqual([true, true, true]);
      expect(may(each).some(({ text }) => text.startsWith(each.answer.text))).toBe(true);
    }
    expect(broken.length).toBeLessThanOrEqual(8);
    for (const each of askers.asked) if (each.error === undefined) expect(may(each)).toContainEqual(each.answer);
    const live = askers.asked.filter(({ model, error }) => model === 'live' && error === undefined);
    for (const name of [OLD, NEW])
      expect(
        live.some(({ answer }) => answer.text === right.get(name)!.text),
        name,
      ).toBe(true);
    // The old revision has left the server that is there.
    const { data } = (await (await fetch(`${servers[0]!.baseUrl}/v1/models`)).json()) as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).not.toContain(`live@${first}`);
  });
});
