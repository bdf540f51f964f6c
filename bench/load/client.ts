/** A client of OpenAI-compatible servers for measurements: node:http, kept connections, a reader of events by line. */
import http from 'node:http';
import https from 'node:https';
import { isRecord } from '../../system/json.js';

/** A request as it is sent. */
export interface SentRequest {
  /** Below the base, as `/v1/completions`. */
  readonly path: string;
  /** JSON. */
  readonly body: string;
  /** Goes away after so many tokens. */
  readonly abortAfter?: number;
  /** Reads no more after so many tokens, and holds the connection. */
  readonly stallAfter?: number;
  /** Is given each event of a stream, or the whole body. */
  readonly onData?: (json: string) => void;
}

/** What came of a request. Moments are milliseconds of `nowMs`. */
export interface Outcome {
  readonly status: number;
  readonly sentMs: number;
  /** Of each event with a token; of an answer that is no stream, its end. */
  readonly tokensMs: Float64Array;
  readonly endMs: number;
  /** As the server counts them; tokens of the answer are counted by events where it does not. */
  readonly promptTokens: number;
  readonly answerTokens: number;
  readonly isAborted: boolean;
  /** Why it failed. */
  readonly error?: string;
}

/** Milliseconds, comparable between processes of a machine. */
export const nowMs = (): number => performance.timeOrigin + performance.now();

/** Most bytes of an error's body that are read. */
const MAX_ERROR_BYTES = 1 << 16;
const DATA = 'data: ';

/** Moments of tokens, and what is told of usage: filled by the lines of a stream. */
class StreamReader {
  readonly moments: number[] = [];
  usage: unknown;
  error: string | undefined;
  isDone = false;
  private rest = '';
  private readonly onData: ((json: string) => void) | undefined;

  constructor(onData: ((json: string) => void) | undefined) {
    this.onData = onData;
  }

  /** Bytes as latin1: what is looked for is ASCII, and events end with an empty line. */
  take(text: string, now: number): void {
    if (this.rest !== '') text = this.rest + text;
    let from = 0;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n', from)) {
      if (text.startsWith(DATA, from)) this.event(text, from + DATA.length, end, now);
      from = end + 2;
    }
    this.rest = from === 0 ? text : text.slice(from);
  }

  private event(text: string, from: number, end: number, now: number): void {
    if (text.startsWith('[DONE]', from)) {
      this.isDone = true;
      return;
    }
    const json = text.slice(from, end);
    this.onData?.(Buffer.from(json, 'latin1').toString());
    if (json.startsWith('{"error"')) this.error = messageOf(json);
    else if (json.includes('"choices":[]')) this.usage = parsed(json)['usage'];
    else if (hasToken(json)) this.moments.push(now);
  }
}

/** False for events that only begin or end a choice: they come with, or right behind, one that has a token. */
const hasToken = (json: string): boolean =>
  !json.includes('"delta":{}') &&
  !(json.includes('"text":""') && !json.includes('"finish_reason":null')) &&
  !(json.includes('"role":"assistant"') && json.includes('"content":""'));

function parsed(json: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(json);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

function messageOf(json: string): string {
  const { error } = parsed(json);
  return isRecord(error) && typeof error['message'] === 'string' ? error['message'] : json.slice(0, 200);
}

export interface ClientOptions {
  /** `http://127.0.0.1:8000`, with or without `/v1`. */
  readonly baseUrl: string;
  readonly apiKey?: string;
}

export class LoadClient {
  private readonly base: URL;
  private readonly agent: http.Agent;
  private readonly library: Pick<typeof http, 'request'>;
  private readonly headers: Readonly<Record<string, string>>;

  constructor({ baseUrl, apiKey }: ClientOptions) {
    this.base = new URL(baseUrl.replace(/\/+$/, '').replace(/\/v1$/, ''));
    const isTls = this.base.protocol === 'https:';
    this.library = isTls ? https : http;
    this.agent = new (isTls ? https : http).Agent({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: Infinity });
    this.headers = {
      'content-type': 'application/json',
      ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
    };
  }

  private options(method: 'GET' | 'POST', path: string): http.RequestOptions {
    const { hostname, port, pathname } = this.base;
    const prefix = pathname === '/' ? '' : pathname;
    return {
      ...{ method, path: prefix + path, headers: this.headers, agent: this.agent },
      hostname: hostname.replace(/^\[|\]$/g, ''),
      ...(port === '' ? {} : { port }),
    };
  }

  /** Sends it. Never rejects: what fails is told by the outcome. */
  send({ path, body, abortAfter, stallAfter, onData }: SentRequest): Promise<Outcome> {
    return new Promise((resolve) => {
      const sentMs = nowMs();
      const reader = new StreamReader(onData);
      let status = 0;
      let [isEvents, isAborted, isOver] = [false, false, false];
      let whole = '';
      const finish = (failure?: string): void => {
        if (isOver) return;
        isOver = true;
        const endMs = nowMs();
        if (failure === undefined && !isEvents) {
          reader.usage = parsed(whole)['usage'];
          reader.moments.push(endMs);
          onData?.(whole);
        }
        const error = reader.error ?? (isAborted ? undefined : failure);
        const usage = isRecord(reader.usage) ? reader.usage : {};
        const counted = (name: string, otherwise: number): number => {
          const value = usage[name];
          return typeof value === 'number' ? value : otherwise;
        };
        resolve({
          ...{ status, sentMs, endMs, isAborted, tokensMs: Float64Array.from(reader.moments) },
          promptTokens: counted('prompt_tokens', 0),
          answerTokens: counted('completion_tokens', reader.moments.length),
          ...(error === undefined ? {} : { error }),
        });
      };
      const request = this.library.request(this.options('POST', path), (response) => {
        status = response.statusCode ?? 0;
        isEvents = response.headers['content-type']?.startsWith('text/event-stream') === true;
        response.setEncoding(isEvents ? 'latin1' : 'utf8');
        response.on('data', (text: string) => {
          if (!isEvents) {
            if (status === 200 || whole.length < MAX_ERROR_BYTES) whole += text;
            return;
          }
          reader.take(text, nowMs());
          const count = reader.moments.length;
          if (abortAfter !== undefined && count >= abortAfter) leave();
          else if (stallAfter !== undefined && count >= stallAfter) response.pause();
        });
        response.on('end', () => {
          if (status !== 200) finish(`status ${status}: ${messageOf(whole)}`);
          else finish(isEvents && !reader.isDone ? 'the stream ended without [DONE]' : undefined);
        });
        response.on('error', (error) => finish(error.message));
      });
      const leave = (): void => {
        isAborted = true;
        request.destroy();
      };
      request.on('error', (error) => finish(error.message));
      request.end(body);
      if (abortAfter === 0) setTimeout(leave, 1);
    });
  }

  /** The body of an answer that is JSON. Rejects where there is none. */
  get(path: string): Promise<Readonly<Record<string, unknown>>> {
    return new Promise((resolve, reject) => {
      const request = this.library.request(this.options('GET', path), (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (more: string) => (text += more));
        response.on('end', () => resolve(parsed(text)));
        response.on('error', reject);
      });
      request.on('error', reject);
      request.end();
    });
  }

  /** Closes all connections. */
  close(): void {
    this.agent.destroy();
  }
}
