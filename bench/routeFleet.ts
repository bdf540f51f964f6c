/** Servers and a router as processes of this machine, and what a request through them takes. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { UserError } from '../errors.js';
import { LoadClient, nowMs } from './load/client.js';

const MAIN = join(dirname(dirname(fileURLToPath(import.meta.url))), 'cli', 'main.js');
/** Requests of a measurement must not wait for others' sockets. */
const MODEL = 'model';

interface Listening {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts the command, and resolves when it says where it listens. */
function start(args: readonly string[]): Promise<Listening> {
  const child: ChildProcess = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let stderr = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => (stderr = (stderr + text).slice(-4000)));
  const exit = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exit;
  };
  return new Promise((resolve, reject) => {
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const [, url] = /listening on (\S+)/.exec(line) ?? [];
      if (url !== undefined) resolve({ url, stop });
    });
    child.once('error', reject);
    child.once('exit', () => reject(new UserError(`tilewright ${args[0]} ended: ${stderr}`, 'npm run build')));
  });
}

/** When the first and the last token of a request came, behind its start. Milliseconds. */
export interface Moments {
  readonly firstMs: number;
  readonly endMs: number;
  readonly tokens: number;
}

export interface Lengths {
  /** Tokens of the prompt, and of the answer. */
  readonly prompt: number;
  readonly generated: number;
}

export class RealFleet {
  readonly servers: readonly LoadClient[];
  readonly router: LoadClient;
  private readonly url: string;
  private readonly processes: readonly Listening[];
  private readonly folder: string;
  private prompts = 0;

  private constructor(servers: readonly Listening[], router: Listening, folder: string) {
    this.processes = [router, ...servers];
    this.folder = folder;
    this.url = router.url;
    this.servers = servers.map(({ url }) => new LoadClient({ baseUrl: url }));
    this.router = new LoadClient({ baseUrl: router.url });
  }

  static async open(model: string, count: number, flags: readonly string[], config: object): Promise<RealFleet> {
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-route-'));
    const servers: Listening[] = [];
    for (let i = 0; i < count; i++)
      servers.push(await start(['serve', model, '--port', '0', '--quiet', '--served-model-name', MODEL, ...flags]));
    const file = join(folder, 'route.json');
    const replicas = servers.map(({ url }, i) => ({ name: `replica-${i}`, url }));
    writeFileSync(file, JSON.stringify({ listen: { port: 0 }, replicas, ...config }));
    const fleet = new RealFleet(servers, await start(['route', '--config', file, '--quiet']), folder);
    while ((await fetch(`${fleet.url}/health`)).status !== 200)
      await new Promise((resolve) => setTimeout(resolve, 100));
    return fleet;
  }

  /** A request of its own prompt, so that no pages of others help it. */
  async ask(client: LoadClient, { prompt, generated }: Lengths, vocabulary: number): Promise<Moments> {
    const own = this.prompts++;
    const tokens = Array.from(
      { length: prompt },
      (_, i) => 100 + ((own * 7919 + i * 104_729 + ((own * i) % 977)) % (vocabulary - 100)),
    );
    const started = nowMs();
    const body = { model: MODEL, prompt: tokens, max_tokens: generated, ignore_eos: true, stream: true, seed: own };
    const outcome = await client.send({ path: '/v1/completions', body: JSON.stringify(body) });
    if (outcome.error !== undefined) throw new UserError(`a request failed: ${outcome.error}`, 'look at the servers');
    const [firstMs = outcome.endMs] = outcome.tokensMs;
    return {
      firstMs: firstMs - started,
      endMs: (outcome.tokensMs.at(-1) ?? outcome.endMs) - started,
      tokens: generated,
    };
  }

  async close(): Promise<void> {
    for (const client of [this.router, ...this.servers]) client.close();
    await Promise.all(this.processes.map((each) => each.stop()));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
