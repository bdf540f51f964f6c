/** A tokenizer thread: workerData is a TokenizerSource. Answers each ChunkRequest with a ChunkReply, in order. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { parentPort, workerData } from 'node:worker_threads';
import { type ChunkRequest, encodeChunk, isUserError, loadTokenizer, type TokenizerSource } from './tokenizeChunk.js';

const port = parentPort;
if (port === null) throw new Error('tokenizeWorker runs as a worker thread only');
const tokenizer = loadTokenizer(workerData as TokenizerSource);
// A failure is reported with the first chunk, not as an unhandled rejection.
tokenizer.catch(() => {});

/** Number of chunks between garbage collections. */
const COLLECT_EVERY = 8;

/**
 * A tokenizer's result is a small object that holds kilobytes outside V8, so V8 sees no reason to collect and the
 * process grows by tens of megabytes. A collection takes about 10 ms.
 */
function collector(): () => void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as (options: { type: 'major' }) => void;
  let chunks = 0;
  return () => {
    if (++chunks % COLLECT_EVERY === 0) collect({ type: 'major' });
  };
}

const collect = collector();

port.on('message', (request: ChunkRequest) => {
  void tokenizer
    .then((loaded) => encodeChunk(loaded, request))
    .then(
      (reply) => {
        port.postMessage(reply, [reply.tokens.buffer, reply.lengths.buffer]);
        collect();
      },
      (error: unknown) =>
        port.postMessage({
          error: error instanceof Error ? error.message : String(error),
          hint: error instanceof Error && 'hint' in error ? error.hint : undefined,
          question: error instanceof Error && 'question' in error ? error.question : undefined,
          isUser: isUserError(error),
        }),
    );
});
