/** A tokeniser thread: workerData is a TokenizerSource; answers each ChunkRequest with a ChunkReply, in order. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { parentPort, workerData } from 'node:worker_threads';
import { encodeChunk, loadTokenizer, type ChunkRequest, type TokenizerSource } from './tokeniseChunk.js';

const port = parentPort;
if (port === null) throw new Error('tokeniseWorker runs as a worker thread only');
const tokenizer = loadTokenizer(workerData as TokenizerSource);
// Reported with the first chunk, not as an unhandled rejection.
tokenizer.catch(() => {});

/** Chunks between collections. */
const COLLECT_EVERY = 8;

/**
 * What a tokenizer returns is kilobytes outside V8 behind an object of a few bytes, so V8 sees no reason to collect
 * and the process grows by tens of megabytes. A collection takes about ten milliseconds.
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
          // By name: classes do not cross threads, and the module behind the URL may carry its own copy.
          isUser: error instanceof Error && error.name === 'UserError',
        }),
    );
});
