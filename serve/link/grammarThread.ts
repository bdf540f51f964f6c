/** The thread that follows grammars: workerData is GrammarThreadData. */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { warm } from '../../grammar/tokens/warm.js';
import type { GrammarThreadData, ToGrammars } from './grammarMessages.js';
import { grammarVocabulary, GrammarWork } from './grammarWork.js';

const port = parentPort;
if (port === null) throw new Error('serve/link/grammarThread runs as a worker thread only');

/** Answers are held back for this long at most, in milliseconds. */
const HELD_MS = 0.3;

const { models, progress } = workerData as GrammarThreadData;
Atomics.store(progress, 0, -1);
const vocabularies = new Map(models.map((model) => [model.key, grammarVocabulary(model)]));
for (const vocabulary of vocabularies.values()) warm(vocabulary);
const work = new GrammarWork(vocabularies, progress);
Atomics.store(progress, 0, 0);
Atomics.add(progress, 1, 1);

function tell(): void {
  const answer = work.take();
  if (answer === undefined) return;
  port!.postMessage(answer, [
    answer.masks.buffer as ArrayBuffer,
    ...answer.looked.map(({ masks }) => masks.buffer as ArrayBuffer),
    ...answer.fresh.map(({ words }) => words.buffer as ArrayBuffer),
  ]);
}

port.on('message', (message: ToGrammars) => {
  work.add(message);
  let told = performance.now();
  while (!work.isIdle) {
    work.next();
    // What has come meanwhile may cost less.
    for (let more = receiveMessageOnPort(port); more !== undefined; more = receiveMessageOnPort(port))
      work.add(more.message as ToGrammars);
    const now = performance.now();
    if (now - told < HELD_MS) continue;
    tell();
    told = now;
  }
  tell();
});
