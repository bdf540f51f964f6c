/** A tokeniser thread: workerData is a TokenizerSource; answers each ChunkRequest with a ChunkReply, in order. */
import { parentPort, workerData } from 'node:worker_threads';
import { encodeChunk, loadTokenizer, type ChunkRequest, type TokenizerSource } from './tokeniseChunk.js';

const port = parentPort;
if (port === null) throw new Error('tokeniseWorker runs as a worker thread only');
const tokenizer = loadTokenizer(workerData as TokenizerSource);
// Reported with the first chunk, not as an unhandled rejection.
tokenizer.catch(() => {});

port.on('message', (request: ChunkRequest) => {
  void tokenizer.then((loaded) => encodeChunk(loaded, request)).then(
    (reply) => port.postMessage(reply, [reply.tokens.buffer, reply.lengths.buffer]),
    (error: unknown) => port.postMessage({
      error: error instanceof Error ? error.message : String(error),
      hint: error instanceof Error && 'hint' in error ? error.hint : undefined,
      // By name: classes do not cross threads, and the module behind the URL may carry its own copy.
      isUser: error instanceof Error && error.name === 'UserError',
    }),
  );
});
