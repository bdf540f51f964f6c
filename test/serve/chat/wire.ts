/** What /v1/chat/completions is sent, and what it answers. */
import { expect } from 'vitest';
import { chatFolder, type Script, type ScriptedServer, scriptedServer } from './scripted.js';

export type Json = Readonly<Record<string, unknown>>;

interface WireCall {
  readonly index?: number;
  readonly id?: string;
  readonly type?: string;
  readonly function: { readonly name?: string; readonly arguments: string };
}
interface WireMessage {
  readonly content?: string | null;
  readonly reasoning?: string | null;
  readonly reasoning_content?: string | null;
  readonly tool_calls?: readonly WireCall[];
}
interface WireLogProb {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
  readonly top_logprobs: readonly WireLogProb[];
}
interface WireChoice {
  readonly index: number;
  /** One of them. */
  readonly message: WireMessage;
  readonly delta: WireMessage;
  readonly logprobs: { readonly content: readonly WireLogProb[]; readonly refusal: null } | null;
  readonly finish_reason: string | null;
}
/** A whole answer, a chunk of one, or an error. */
export interface Wire {
  readonly id: string;
  readonly created: number;
  readonly object: string;
  readonly model: string;
  readonly seed: number;
  readonly choices: readonly WireChoice[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly completion_tokens_details: { readonly reasoning_tokens: number };
  };
  readonly error: Json;
}
const servers = new Map<string, Promise<ScriptedServer>>();

/** A server with this template, which says what `script` says. */
export async function serverOf(template: string | undefined, script: Script, special: readonly string[] = []) {
  const key = JSON.stringify([template, special]);
  const found = servers.get(key) ?? scriptedServer(chatFolder(template, special), script);
  servers.set(key, found);
  const server = await found;
  server.script = script;
  server.submitted.length = 0;
  return server;
}

/** Behind all tests of a file: files may share this module. */
export async function closeServers(): Promise<void> {
  const all = [...servers.values()];
  servers.clear();
  for (const server of all) await (await server).close();
}

export const USER = [{ role: 'user', content: 'Hi' }];
export const tool = (name: string, parameters?: unknown): Json => ({
  type: 'function',
  function: { name, parameters },
});
export const WEATHER = { type: 'object', properties: { city: { type: 'string' } } };
export const TOOLS = [tool('get_weather', WEATHER), tool('now')];

export async function post(server: ScriptedServer, body: Json): Promise<{ status: number; body: Wire }> {
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: USER, ...body }),
  });
  return { status: response.status, body: (await response.json()) as Wire };
}

/** The events of a stream: parsed, without the last, which is [DONE]. */
export async function streamed(server: ScriptedServer, body: Json): Promise<Wire[]> {
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: USER, stream: true, ...body }),
  });
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  const events = (await response.text()).split('\n\n').filter((event) => event !== '');
  expect(events.at(-1)).toBe('data: [DONE]');
  return events.slice(0, -1).map((event) => JSON.parse(event.slice('data: '.length)) as Wire);
}
