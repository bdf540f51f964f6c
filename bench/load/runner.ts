/** Sends the requests of a load at their times, from one process. */
import { promptOf, type RequestLengths } from '../requestLengths.js';
import { type ClientOptions, LoadClient, nowMs, type Outcome } from './client.js';
import type { PlannedRequest } from './plan.js';

/** What bodies have in common. */
export interface BodyOptions {
  readonly endpoint: 'completions' | 'chat';
  readonly model: string;
  /** Tokens of prompts are below this. */
  readonly vocabSize: number;
  /** Number of the first prompt: others have not been seen by a server that keeps what it has computed. */
  readonly firstPrompt: number;
  readonly isStream: boolean;
  readonly ignoreEos: boolean;
  readonly temperature?: number;
  /** Further fields. */
  readonly extra: Readonly<Record<string, unknown>>;
}

/** Work of one process. */
export interface Share {
  readonly client: ClientOptions;
  readonly body: BodyOptions;
  readonly requests: readonly PlannedRequest[];
  readonly maxConcurrency: number;
  /** Requests that are sent before, one after another, and are not counted. */
  readonly warmUp: number;
}

/** What a process found. */
export interface Done {
  /** In the order of its requests. */
  readonly outcomes: readonly Outcome[];
  /** Processor time of this process from the first request to the last answer. */
  readonly cpuSeconds: number;
}

/** Words that most tokenizers have as one token. */
const WORDS = 'the of and to in is that it for was on are as with they be at one have this from or had by'.split(' ');

export function bodyOf(
  { endpoint, model, vocabSize, firstPrompt, isStream, ignoreEos, temperature, extra }: BodyOptions,
  index: number,
  { prompt, answer }: RequestLengths,
): string {
  const chosen = promptOf(firstPrompt + index, prompt, endpoint === 'chat' ? WORDS.length : vocabSize);
  return JSON.stringify({
    model,
    ...(endpoint === 'chat'
      ? { messages: [{ role: 'user', content: chosen.map((word) => WORDS[word]).join(' ') }] }
      : { prompt: chosen }),
    max_tokens: answer,
    ...(temperature === undefined ? {} : { temperature }),
    ...(ignoreEos ? { ignore_eos: true } : {}),
    ...(isStream ? { stream: true, stream_options: { include_usage: true } } : {}),
    ...extra,
  });
}

export const pathOf = ({ endpoint }: Pick<BodyOptions, 'endpoint'>): string =>
  endpoint === 'chat' ? '/v1/chat/completions' : '/v1/completions';

/** Bodies are made and connections warmed before `begin` is called; it gets the moment at which the load begins. */
export class LoadRunner {
  private readonly share: Share;
  private readonly client: LoadClient;
  private readonly bodies: readonly string[];

  constructor(share: Share) {
    this.share = share;
    this.client = new LoadClient(share.client);
    this.bodies = share.requests.map((request) => bodyOf(share.body, request.index, request));
  }

  /** Rejects where the server answers a request of these with an error. */
  async warmUp(): Promise<void> {
    const { warmUp, body } = this.share;
    for (let i = 0; i < warmUp; i++) {
      const { error } = await this.client.send({
        path: pathOf(body),
        body: bodyOf(body, 1_000_000 + i, { prompt: 32, answer: 8 }),
      });
      if (error !== undefined) throw new Error(error);
    }
  }

  async run(beginMs: number): Promise<Done> {
    const { requests, body, maxConcurrency } = this.share;
    const before = process.cpuUsage();
    const outcomes: Outcome[] = [];
    const waiting: (() => void)[] = [];
    let running = 0;
    const send = async (i: number): Promise<void> => {
      const { seconds, abortAfter } = requests[i]!;
      const left = beginMs + 1000 * seconds - nowMs();
      if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
      // Whoever ends wakes one, which takes its place.
      if (running >= maxConcurrency) await new Promise<void>((resolve) => waiting.push(resolve));
      else running++;
      outcomes[i] = await this.client.send({
        ...{ path: pathOf(body), body: this.bodies[i]! },
        ...(abortAfter === undefined ? {} : { abortAfter }),
      });
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    };
    await Promise.all(requests.map((_, i) => send(i)));
    const { user, system } = process.cpuUsage(before);
    return { outcomes, cpuSeconds: (user + system) / 1e6 };
  }

  close(): void {
    this.client.close();
  }
}
