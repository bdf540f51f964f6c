/** The thread that runs a chat template: workerData is a TemplateSource. Answers each conversation with its text. */
import { parentPort, workerData } from 'node:worker_threads';
import { parseJsonValue } from '../../python/literal.js';
import { isDict } from '../../python/value.js';
import { chatRenderer, problemOf, type TemplateSource } from './render.js';

const port = parentPort;
if (port === null) throw new Error('chatTemplateWorker runs as a worker thread only');

let render: ReturnType<typeof chatRenderer> | undefined;
// Variables come as JSON: a copy would not keep floats apart from whole numbers.
port.on('message', (json: string) => {
  try {
    render ??= chatRenderer(workerData as TemplateSource);
    const variables = parseJsonValue(json);
    port.postMessage({ text: render(isDict(variables) ? variables : new Map()) });
  } catch (error) {
    port.postMessage({ error: problemOf(error), isRefused: true });
  }
});
