/** `tilewright serve` as a process, and what is left in it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { LoadClient, type Outcome, type SentRequest } from '../../bench/load/client.js';
import { readSettings } from '../../settings.js';
import { isRecord } from '../../system/json.js';
import { devicesOf } from '../e2e/children.js';
import { environment, MAIN } from '../e2e/support.js';

/** What a client sees of one continuation. */
export interface Answer {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
  readonly finish: unknown;
  readonly outcome: Outcome;
}

export type Body = Readonly<Record<string, unknown>>;

/** A completion of one choice, with its tokens and their log-probabilities. */
export async function completeOver(client: LoadClient, body: Body, more: Partial<SentRequest> = {}): Promise<Answer> {
  const [tokens, logProbs]: [number[], number[]] = [[], []];
  let [text, finish]: [string, unknown] = ['', null];
  const outcome = await client.send({
    path: '/v1/completions',
    body: JSON.stringify({ model: 'served', logprobs: 0, return_token_ids: true, ...body }),
    ...more,
    onData: (json) => {
      const value: unknown = JSON.parse(json);
      const [choice] = isRecord(value) && Array.isArray(value['choices']) ? (value['choices'] as unknown[]) : [];
      if (!isRecord(choice)) return;
      text += String(choice['text']);
      if (Array.isArray(choice['token_ids'])) tokens.push(...(choice['token_ids'] as number[]));
      const lists = choice['logprobs'];
      if (isRecord(lists)) logProbs.push(...(lists['token_logprobs'] as number[]));
      finish = choice['finish_reason'] ?? finish;
      more.onData?.(json);
    },
  });
  return { text, tokens, logProbs, finish, outcome };
}

export class ServeProcess {
  readonly pid: number;
  readonly baseUrl: string;
  readonly client: LoadClient;
  /** What it has written to the standard error, and lines of the standard output behind its address. */
  stderr = '';
  readonly lines: string[] = [];
  private readonly child: ChildProcess;
  private readonly exit: Promise<number | null>;

  private constructor(child: ChildProcess, baseUrl: string) {
    this.child = child;
    this.pid = child.pid!;
    this.baseUrl = baseUrl;
    this.client = new LoadClient({ baseUrl });
    this.exit = new Promise((resolve) => child.once('exit', resolve));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
  }

  /** Resolves when it listens. */
  static open(model: string, flags: readonly string[], node: readonly string[] = []): Promise<ServeProcess> {
    const child = spawn(process.execPath, [...node, MAIN, 'serve', model, '--port', '0', '--quiet', ...flags], {
      env: { PATH: readSettings().path, ...environment() },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return new Promise((resolve, reject) => {
      let server: ServeProcess | undefined;
      createInterface({ input: child.stdout }).on('line', (line) => {
        const [, url] = /listening on (\S+)/.exec(line) ?? [];
        if (server !== undefined) server.lines.push(line);
        else if (url !== undefined) resolve((server = new ServeProcess(child, url)));
      });
      child.once('error', reject);
      child.once('exit', () => reject(new Error(`the server ended: ${String(child.stderr.read() ?? '')}`)));
    });
  }

  /** Processes of its devices. */
  devices(): number[] {
    return devicesOf(this.pid);
  }

  /** Files and sockets that it has open. */
  files(): number {
    return readdirSync(`/proc/${this.pid}/fd`).length;
  }

  residentBytes(): number {
    return 4096 * Number(readFileSync(`/proc/${this.pid}/statm`, 'utf8').split(' ')[1]);
  }

  /** A metric's value, summed over its labels. */
  async metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.baseUrl}/metrics`)).text();
    const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
    if (lines.length === 0) throw new Error(`there is no metric ${name}`);
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  }

  /** Requests in the engine, and the share of its pages that they hold. */
  async held(): Promise<readonly number[]> {
    const names = ['vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:kv_cache_usage_perc'];
    return Promise.all(names.map((name) => this.metric(name)));
  }

  /** A completion of one choice, with its tokens and their log-probabilities. */
  complete(body: Body, more: Partial<SentRequest> = {}): Promise<Answer> {
    return completeOver(this.client, body, more);
  }

  /** Tells it to stop. Resolves with its status. */
  async stop(): Promise<number | null> {
    this.client.close();
    this.child.kill('SIGTERM');
    return this.exit;
  }
}
