/** A load on several processes, each with its share of the requests. */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { UserError } from '../../errors.js';
import { nowMs, type Outcome } from './client.js';
import type { PlannedRequest } from './plan.js';
import { type Done, LoadRunner, type Share } from './runner.js';

type FromClient =
  | { readonly kind: 'ready' }
  | { readonly kind: 'done'; readonly done: Done }
  | { readonly kind: 'failed'; readonly message: string };

/** Time for all processes to hear of the beginning. */
const LEAD_MS = 50;

interface Sender {
  readonly ready: Promise<void>;
  begin(beginMs: number): Promise<Done>;
  close(): void;
}

function inProcess(share: Share): Sender {
  const runner = new LoadRunner(share);
  return { ready: runner.warmUp(), begin: (beginMs) => runner.run(beginMs), close: () => runner.close() };
}

function forked(share: Share): Sender {
  const child = fork(fileURLToPath(new URL('process.js', import.meta.url)), { serialization: 'advanced' });
  const heard = (kind: FromClient['kind']): Promise<FromClient> =>
    new Promise((resolve, reject) => {
      const gone = (): void => reject(new Error('a process of the client has ended'));
      // Its end may be noticed before what it has said: the channel closes behind all of that.
      child.once('disconnect', gone);
      child.once('message', (message) => {
        child.off('disconnect', gone);
        const told = message as FromClient;
        if (told.kind === kind) resolve(told);
        else reject(new Error(told.kind === 'failed' ? told.message : `told ${told.kind}, not ${kind}`));
      });
    });
  const ready = heard('ready');
  child.send({ share });
  return {
    ready: ready.then(() => undefined),
    begin: async (beginMs) => {
      const done = heard('done');
      child.send({ beginMs });
      const told = await done;
      return told.kind === 'done' ? told.done : { outcomes: [], cpuSeconds: 0 };
    },
    close: () => void child.kill(),
  };
}

/** What a whole load gave. */
export interface LoadRun {
  /** The moment at which it began. */
  readonly beginMs: number;
  /** In the order of the requests. */
  readonly outcomes: readonly Outcome[];
  /** Processor time of all processes of the client. */
  readonly clientSeconds: number;
}

export interface LoadOptions extends Omit<Share, 'requests'> {
  readonly requests: readonly PlannedRequest[];
  /** 1: this one. */
  readonly processes: number;
  /** Called when all are ready, right before the load begins. */
  readonly onBegin?: () => void;
}

/** Rejects with UserError where the server does not answer. */
export async function runLoad({
  requests,
  processes,
  maxConcurrency,
  onBegin,
  ...rest
}: LoadOptions): Promise<LoadRun> {
  const count = Math.min(processes, requests.length, maxConcurrency);
  const shares = Array.from({ length: count }, (_, i) => ({
    ...rest,
    requests: requests.filter(({ index }) => index % count === i),
    maxConcurrency: maxConcurrency === Infinity ? Infinity : Math.floor((maxConcurrency + i) / count),
  }));
  const senders = shares.map((share) => (count === 1 ? inProcess(share) : forked(share)));
  try {
    try {
      await Promise.all(senders.map(({ ready }) => ready));
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      throw new UserError(`${rest.client.baseUrl}: ${said}`, 'start the server, and name it: --base-url URL');
    }
    onBegin?.();
    const beginMs = nowMs() + (count === 1 ? 0 : LEAD_MS);
    const done = await Promise.all(senders.map((sender) => sender.begin(beginMs)));
    const outcomes: Outcome[] = [];
    done.forEach((own, i) => own.outcomes.forEach((outcome, k) => (outcomes[shares[i]!.requests[k]!.index] = outcome)));
    return { beginMs, outcomes, clientSeconds: done.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0) };
  } finally {
    for (const sender of senders) sender.close();
  }
}
