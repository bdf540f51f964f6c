/** The thread that runs a chat template: workerData is a TemplateSource. Answers each conversation with its text. */
import { parentPort, workerData } from 'node:worker_threads';
import { chatRenderer, type ChatRequest, type TemplateSource } from './renderChat.js';

const port = parentPort;
if (port === null) throw new Error('chatTemplateWorker runs as a worker thread only');

let render: ReturnType<typeof chatRenderer> | undefined;
port.on('message', ({ messages, opensAnswer }: ChatRequest) => {
  try {
    render ??= chatRenderer(workerData as TemplateSource);
    port.postMessage({ text: render(messages, opensAnswer) });
  } catch (error) {
    port.postMessage({ error: error instanceof Error ? error.message : String(error), isRefused: true });
  }
});
