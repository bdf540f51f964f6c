/** Models whose answers a test writes: a tiny model writes noise. Everything but the engine is as it is in a server. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RequestEvent } from '../../../engine/request.js';
import { routesOf } from '../../../serve/http/routes.js';
import { apiErrorOf } from '../../../serve/link/failures.js';
import type { ModelClient, ServedModel, ServedRequest } from '../../../serve/models.js';
import { isRecord } from '../../../system/json.js';
import { temporaryFolder } from '../../models/support.js';
import { DEMO, type Served, servedModels, type ServedOptions } from '../../support/servedModels.js';

export type Submitted = Extract<ServedRequest, { readonly kind: 'generate' }>;

export interface ScriptedAnswer {
  /** Tokens, or a text that is encoded. */
  readonly answer: string | readonly number[];
  /** Default: eos. */
  readonly reason?: 'eos' | 'length';
  /** Why there is none. */
  readonly error?: Error;
  /** Waits for the client to go before it ends. */
  readonly isEndless?: boolean;
}

/** What the model says to a prompt, for each choice. */
export type Script = (prompt: string, choice: number) => ScriptedAnswer | string;

export interface ScriptedServer {
  readonly url: string;
  readonly served: Served;
  /** Requests that were submitted, and how many of them were cancelled. */
  readonly submitted: Submitted[];
  readonly cancelled: { count: number };
  /** What the model says from now on. */
  script: Script;
  close(): Promise<void>;
}

/** A checkpoint folder with the demo's tokenizer, these special tokens and this chat template. */
export function chatFolder(template: string | undefined, special: readonly string[] = []): string {
  const folder = temporaryFolder();
  const tokenizer: unknown = JSON.parse(readFileSync(join(DEMO, 'tokenizer.json'), 'utf8'));
  const added = isRecord(tokenizer) && Array.isArray(tokenizer['added_tokens']) ? tokenizer['added_tokens'] : [];
  const tokens = special.map((content, i) => ({
    ...{ id: 4096 + i, content, special: true, normalized: false },
    ...{ single_word: false, lstrip: false, rstrip: false },
  }));
  const all = { ...(tokenizer as object), added_tokens: [...(added as unknown[]), ...tokens] };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(all));
  writeFileSync(join(folder, 'config.json'), readFileSync(join(DEMO, 'config.json')));
  if (template !== undefined) writeFileSync(join(folder, 'chat_template.jinja'), template);
  return folder;
}

export async function scriptedServer(
  folder: string,
  script: Script,
  options: ServedOptions = {},
): Promise<ScriptedServer> {
  const served = servedModels({ folder, ...options });
  const server: Omit<ScriptedServer, 'url'> = {
    served,
    submitted: [],
    cancelled: { count: 0 },
    script,
    close: () => served.close(),
  };
  const { url } = await served.listen({}, (client) => routesOf(scripted(client, server)));
  return Object.assign(server, { url });
}

function scripted(client: ModelClient, server: Omit<ScriptedServer, 'url'>): ModelClient {
  return {
    models: client.models,
    stats: () => client.stats(),
    checkGrammar: async () => undefined,
    submit: (request, listener) => {
      if (request.kind !== 'generate') return client.submit(request, listener);
      server.submitted.push(request);
      const running = new Running(server);
      void running.run(client.models[0]!, request, (events) => listener.onEvents(events));
      return running;
    },
  };
}

/** A request whose tokens come one by one, those of its choices in turn. */
class Running {
  readonly #server: Omit<ScriptedServer, 'url'>;
  readonly #cuts = new Map<number, number>();
  #isCancelled = false;

  constructor(server: Omit<ScriptedServer, 'url'>) {
    this.#server = server;
  }

  async run(
    { texts, eosTokenIds }: ServedModel,
    request: Submitted,
    tell: (events: readonly RequestEvent[]) => void,
  ): Promise<void> {
    const stream = texts.detokenizer.stream('all');
    const prompt = request.prompt.map((id) => stream.push(id)).join('') + stream.end();
    const answers = await Promise.all(
      Array.from({ length: request.n ?? 1 }, async (_, choice) => {
        const given = this.#server.script(prompt, choice);
        const own = typeof given === 'string' ? { answer: given } : given;
        const tokens = typeof own.answer === 'string' ? (await texts.encode([own.answer], false))[0]! : own.answer;
        const { reason = 'eos' } = own;
        return { ...own, reason, tokens: reason === 'eos' ? [...tokens, [...eosTokenIds][0]!] : tokens };
      }),
    );
    const longest = Math.max(...answers.map(({ tokens }) => tokens.length));
    for (let at = 0; at < longest && !this.#isCancelled; at++) {
      await new Promise((resolve) => setImmediate(resolve));
      tell(
        answers.flatMap(({ tokens, error }, sample): RequestEvent[] => {
          if (tokens[at] === undefined || (this.#cuts.get(sample) ?? Infinity) <= at) return [];
          if (error !== undefined && at === tokens.length - 1)
            return [{ kind: 'failed', sample, error: apiErrorOf(error) }];
          const top = Array.from({ length: request.sampling?.topLogProbs ?? 0 }, (_, i) => ({
            token: i === 0 ? tokens[at]! : 100 + i,
            logProb: -0.5 - i,
          }));
          return [{ kind: 'token', sample, token: { token: tokens[at]!, logProb: -0.5, top } }];
        }),
      );
    }
    while (answers.some(({ isEndless }) => isEndless === true) && !this.#isCancelled)
      await new Promise((resolve) => setImmediate(resolve));
    tell(
      answers.map(({ reason }, sample): RequestEvent => {
        const end = this.#isCancelled ? 'aborted' : this.#cuts.has(sample) ? 'stop' : reason;
        return { kind: 'end', sample, result: { tokens: [], promptScores: [], reason: end, foundTokens: 3 } };
      }),
    );
  }

  cancel(): void {
    if (!this.#isCancelled) this.#server.cancelled.count++;
    this.#isCancelled = true;
  }

  cut(sample: number, count: number): void {
    this.#cuts.set(sample, count);
  }

  acknowledge(): void {
    // Nothing is held back here.
  }
}
