/**
 * A process that sends a share of a load: answers `ready`, begins when it is told the moment, answers what it found.
 */
import { LoadRunner, type Share } from './runner.js';

export type ToClient = { readonly share: Share } | { readonly beginMs: number };

let runner: LoadRunner | undefined;

const tell = (message: unknown): Promise<void> =>
  new Promise((resolve) => {
    process.send?.(message, () => resolve());
  });

async function take(message: ToClient): Promise<void> {
  try {
    if ('share' in message) {
      runner = new LoadRunner(message.share);
      await runner.warmUp();
      await tell({ kind: 'ready' });
      return;
    }
    if (runner === undefined) throw new Error('A load begins before it is known.');
    await tell({ kind: 'done', done: await runner.run(message.beginMs) });
    runner.close();
    process.disconnect();
  } catch (error) {
    await tell({ kind: 'failed', message: error instanceof Error ? error.message : String(error) });
    process.exitCode = 1;
    process.disconnect();
  }
}

process.on('message', (message) => void take(message as ToClient));
