/** The thread that encodes long texts: workerData is a TokenizerSpec. Answers each job with the ids of its texts. */
import { parentPort, workerData } from 'node:worker_threads';
import { UserError } from '../../errors.js';
import type { TokenizerSpec } from '../../models/tokenizer/files.js';
import { createTokenizer } from '../../models/tokenizer/tokenizer.js';
import { encodeTexts } from './encodeTexts.js';
import { type EncodeJob, type EncodeReply, READY } from './encodeThread.js';

const port = parentPort;
if (port === null) throw new Error('serve/texts/encodeWorker runs as a worker thread only');

const tokenizer = createTokenizer(workerData as TokenizerSpec);

port.on('message', ({ texts, addSpecialTokens }: EncodeJob) => {
  void encodeTexts(tokenizer, texts, addSpecialTokens).then(
    (ids) => {
      const arrays = ids.map((each) => Int32Array.from(each));
      const reply: EncodeReply = { ids: arrays };
      port.postMessage(
        reply,
        arrays.map(({ buffer }) => buffer),
      );
    },
    (error: unknown) => {
      const message = error instanceof Error ? error.message : String(error);
      const reply: EncodeReply = { error: message, isRefused: error instanceof UserError };
      port.postMessage(reply);
    },
  );
});

port.postMessage(READY);
