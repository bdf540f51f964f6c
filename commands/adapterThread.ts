/** The thread that reads adapters: workerData is the path of their checkpoint. One after another. */
import { parentPort, workerData } from 'node:worker_threads';
import { UserError } from '../errors.js';
import { readAdapter, type ReadJob, type ReadReply } from './adapterReader.js';

const port = parentPort;
if (port === null) throw new Error('commands/adapterThread runs as a worker thread only');

let last: Promise<unknown> = Promise.resolve();

async function read({ id, path }: ReadJob): Promise<ReadReply> {
  try {
    return { id, read: await readAdapter(workerData as string, path) };
  } catch (error) {
    const hint = error instanceof UserError ? error.hint : undefined;
    return {
      ...{ id, hint, isUser: error instanceof UserError },
      error: error instanceof Error ? error.message : String(error),
    };
  }
}

port.on('message', (job: ReadJob) => {
  last = last.then(async () => port.postMessage(await read(job)));
});
