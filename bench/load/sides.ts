/** A model twice: in an engine of this process, as `generate` has it, and in a server beside it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { EngineModels } from '../../commands/engineModels.js';
import { Engine } from '../../engine/engine.js';
import { UserError } from '../../errors.js';
import { askedOf } from '../../library/open.js';
import type { BenchTarget } from '../command.js';
import { packageRoot } from '../inputs.js';
import { promptOf, type RequestLengths } from '../requestLengths.js';
import { nowMs, type Outcome } from './client.js';

export interface SideOptions {
  /** Folder of a config.json, or one below bench/models. */
  readonly model: string;
  readonly target: BenchTarget;
  /** Of a CPU, for each side. */
  readonly threads: number;
  /** Room for keys and values of each side. */
  readonly cacheTokens: number;
}

/** An engine in this process; its devices are in one of their own, as those of the server are. */
export class OfflineSide {
  private readonly engine = new Engine();
  private readonly vocabSize: number;

  private constructor(vocabSize: number) {
    this.vocabSize = vocabSize;
  }

  static async open(folder: string, vocabSize: number, { target, threads, cacheTokens }: SideOptions) {
    const { asked, ui } = askedOf({ model: folder, init: 'random:1', target, threads, cacheTokens });
    const side = new OfflineSide(vocabSize);
    const { loaded, model } = await new EngineModels().open(asked, ui);
    side.engine.load('model', { ...model, close: () => loaded.close() });
    return side;
  }

  /** New tokens a second of all these at once. */
  async rate(requests: readonly RequestLengths[], firstPrompt: number): Promise<number> {
    const started = performance.now();
    const done = await Promise.all(
      requests.map(({ prompt, answer }, i) =>
        this.engine.generate({
          ...{ prompt: promptOf(firstPrompt + i, prompt, this.vocabSize), maxNewTokens: answer, sampling: {} },
        }),
      ),
    );
    const tokens = done.reduce((sum, each) => sum + each.tokens.length, 0);
    return (1000 * tokens) / (performance.now() - started);
  }

  /** One request, as a client would see it. */
  async alone({ prompt, answer }: RequestLengths, firstPrompt: number): Promise<Outcome> {
    const sentMs = nowMs();
    const moments: number[] = [];
    const asked = { prompt: promptOf(firstPrompt, prompt, this.vocabSize), maxNewTokens: answer, sampling: {} };
    for await (const { kind } of this.engine.submit({ kind: 'generate', ...asked }))
      if (kind === 'token') moments.push(nowMs());
    return {
      ...{ status: 200, sentMs, tokensMs: Float64Array.from(moments), endMs: nowMs(), isAborted: false },
      ...{ promptTokens: prompt, answerTokens: moments.length },
    };
  }

  close(): Promise<void> {
    return this.engine.close();
  }
}

const STOP_MS = 20_000;

/** `tilewright serve` as a process. */
export class ServerSide {
  readonly baseUrl: string;
  readonly pid: number;
  private readonly child: ChildProcess;

  private constructor(child: ChildProcess, baseUrl: string) {
    this.child = child;
    this.baseUrl = baseUrl;
    this.pid = child.pid ?? 0;
  }

  /** Resolves when it listens. Rejects with UserError where it ends before. */
  static open(folder: string, { target, threads, cacheTokens }: SideOptions): Promise<ServerSide> {
    const flags = ['--port', '0', '--init', 'random:1', '--target', target, '--threads', String(threads)];
    const child = spawn(
      process.execPath,
      [join(packageRoot(), 'dist/cli/main.js'), 'serve', folder, ...flags, '--cache-tokens', String(cacheTokens)],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    const lines = createInterface({ input: child.stdout });
    return new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (status) =>
        reject(new UserError(`the server ended with status ${status}`, 'its last lines say why')),
      );
      lines.on('line', (line) => {
        const [, url] = /listening on (\S+)/.exec(line) ?? [];
        if (url !== undefined) resolve(new ServerSide(child, url));
      });
    });
  }

  async close(): Promise<void> {
    const { child } = this;
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.removeAllListeners('exit');
    await new Promise<void>((resolve) => {
      const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
      child.once('exit', () => {
        clearTimeout(late);
        resolve();
      });
      child.kill('SIGTERM');
    });
  }
}
