/** `tilewright route` as a process, before servers that are processes too. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { readSettings } from '../../settings.js';
import { environment, MAIN } from '../e2e/support.js';

export interface RouteStatus {
  readonly replicas: readonly { readonly name: string; readonly state: string; readonly is_idle: boolean }[];
  readonly adapters: readonly { readonly name: string; readonly revision: string | null }[];
  readonly requests: { readonly active: number; readonly retries: Readonly<Record<string, number>> };
}

export class RouteProcess {
  readonly url: string;
  /** What it has written to the standard error: a JSON value a line. */
  stderr = '';
  private readonly child: ChildProcess;
  private readonly exit: Promise<number | null>;

  private constructor(child: ChildProcess, url: string) {
    this.child = child;
    this.url = url;
    this.exit = new Promise((resolve) => child.once('exit', resolve));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
  }

  /** Writes the configuration to a file. Resolves when it listens. */
  static open(file: string, config: Readonly<Record<string, unknown>>): Promise<RouteProcess> {
    writeFileSync(file, JSON.stringify({ listen: { port: 0 }, ...config }));
    const child = spawn(process.execPath, [MAIN, 'route', '--config', file, '--json'], {
      env: { PATH: readSettings().path, ...environment() },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return new Promise((resolve, reject) => {
      createInterface({ input: child.stdout }).on('line', (line) => {
        const [, url] = /listening on (\S+)/.exec(line) ?? [];
        if (url !== undefined) resolve(new RouteProcess(child, url));
      });
      child.once('error', reject);
      child.once('exit', () => reject(new Error(`the router ended: ${String(child.stderr.read() ?? '')}`)));
    });
  }

  async status(): Promise<RouteStatus> {
    return (await (await fetch(`${this.url}/route/status`)).json()) as RouteStatus;
  }

  async setDrain(replica: string, path: 'drain' | 'resume' = 'drain'): Promise<void> {
    await fetch(`${this.url}/route/${path}`, { method: 'POST', body: JSON.stringify({ replica }) });
  }

  /** Tells it to stop. Resolves with its status. */
  async stop(): Promise<number | null> {
    this.child.kill('SIGTERM');
    return this.exit;
  }
}
