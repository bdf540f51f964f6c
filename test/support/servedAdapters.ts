/** Adapters that PEFT wrote, before a server as a process: answers by name, and those of `generate`. */
import { join } from 'node:path';
import { tilewright } from '../e2e/support.js';
import { ADAPTERS, baseOf } from './adapters.js';
import { type Body, ServeProcess } from './serveProcess.js';

export const adapterAt = (name: string): string => join(ADAPTERS, name);
export const BASE = 'mistral-qv';
export const FLAGS = ['--target', 'cpu', '--threads', '1', '--cache-tokens', '4096', '--served-model-name', 'served'];
export const PROMPT = 'Once upon a time';

export const openBase = (...flags: readonly string[]): Promise<ServeProcess> =>
  ServeProcess.open(baseOf(BASE), [...FLAGS, ...flags]);

/** What an answer is compared by: tokens and the bits of their log-probabilities. */
export interface Written {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logProbs: readonly number[];
}

/** Greedy, so many tokens. */
export async function write(
  server: Pick<ServeProcess, 'complete'>,
  model: string,
  tokens: number,
  body: Body = {},
): Promise<Written> {
  const asked = { prompt: PROMPT, temperature: 0, ignore_eos: true, max_tokens: tokens };
  const { text, tokens: ids, logProbs, outcome } = await server.complete({ ...asked, model, ...body });
  if (outcome.error !== undefined) throw new Error(outcome.error);
  return { text, tokens: ids, logProbs };
}

/** What `generate` says to the same. */
export async function generated(adapter: string | undefined, tokens: number, prompt = PROMPT): Promise<Written> {
  const flags = adapter === undefined ? [] : ['--adapter', adapterAt(adapter)];
  const asked = ['--max-new-tokens', String(tokens), '--ignore-eos', '--json', prompt];
  const { status, stdout, stderr } = await tilewright([
    ...['generate', baseOf(BASE), '--target', 'cpu', '--threads', '1', ...flags, ...asked],
  ]);
  if (status !== 0) throw new Error(stderr);
  const { text, tokens: ids, logprobs } = JSON.parse(stdout) as Written & { readonly logprobs: readonly number[] };
  return { text, tokens: ids, logProbs: logprobs };
}

export async function post(url: string, path: string, body: Body): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${url}${path}`, {
    ...{ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) },
  });
  return { status: answer.status, text: await answer.text() };
}
