/** A server as a process of its own. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { type Outcome, type Running, start } from './support.js';

export interface ServerProcess {
  readonly url: string;
  readonly running: Running;
  /** Ends it as Kubernetes does, and waits for that. */
  stop(): Promise<Outcome>;
}

/** Serves a model on a port of its own. Rejects where the process ends before it answers. */
export async function startServer(model: string, ...flags: readonly string[]): Promise<ServerProcess> {
  const running = start(['serve', model, '--port', '0', ...flags]);
  const url = (): string | undefined => /listening on (http:\S+)/.exec(running.stdout())?.[1];
  while (url() === undefined) {
    const { exitCode, signalCode } = running.process;
    if (exitCode !== null || signalCode !== null) throw new Error(`the server has ended: ${running.stderr()}`);
    await sleep(20);
  }
  return {
    url: url()!,
    running,
    stop: async () => {
      running.process.kill('SIGTERM');
      const outcome = await running.ended;
      expect(outcome, outcome.stderr).toMatchObject({ status: 0, signal: null });
      return outcome;
    },
  };
}
