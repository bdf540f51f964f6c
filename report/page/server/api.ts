/** What the page asks of the server that it comes from. The key is in memory, for as long as the page is open. */

/** An answer that is no success: what the server says, and its status. */
export class ServerError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export interface Model {
  readonly id: string;
  readonly maxLength: number | undefined;
  /** Whether it is a verifier, with which answers can be searched for. */
  readonly givesScores: boolean;
}

export interface Settings {
  readonly model: string;
  readonly isChat: boolean;
  readonly system: string;
  /** How an answer is searched for; empty: it is not. */
  readonly search: string;
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly maxTokens: number | undefined;
  /** Absent: the server draws one, and says which. */
  readonly seed: number | undefined;
}

export interface Turn {
  readonly role: 'user' | 'assistant';
  readonly content: string;
}

/** What a chunk of an answer adds. */
export interface Piece {
  readonly text: string;
  readonly reasoning: string;
  readonly finish: string | undefined;
  readonly seed: number | undefined;
  readonly fingerprint: string | undefined;
  readonly promptTokens: number | undefined;
  readonly tokens: number | undefined;
  /** Which of the texts that a search has found this is. */
  readonly found: string | undefined;
}

type Json = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null;
const object = (value: unknown): Json => (isObject(value) ? value : {});
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const number = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

export class Server {
  /** Sent where it is not empty. */
  key = '';

  private async ask(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.key !== '') headers.set('authorization', `Bearer ${this.key}`);
    const response = await fetch(path, { ...init, headers, credentials: 'omit' });
    if (response.ok) return response;
    const body = object(await response.json().catch(() => undefined));
    const message = text(object(body['error'])['message']);
    throw new ServerError(response.status, message === '' ? `The server answers ${response.status}.` : message);
  }

  async models(): Promise<readonly Model[]> {
    const { data } = object(await (await this.ask('v1/models')).json());
    if (!Array.isArray(data)) return [];
    return data.map((each: unknown) => ({
      id: text(object(each)['id']),
      maxLength: number(object(each)['max_model_len']),
      givesScores: object(each)['gives_scores'] === true,
    }));
  }

  /** Whether the model has a template for chats. */
  async hasChat(model: string): Promise<boolean> {
    const query = new URLSearchParams({ model });
    return text(object(await (await this.ask(`tokenizer_info?${query}`)).json())['chat_template']) !== '';
  }

  async metrics(): Promise<string> {
    return (await this.ask('metrics')).text();
  }

  /** Pieces of an answer, as they come. */
  async *answer(settings: Settings, turns: readonly Turn[], signal: AbortSignal): AsyncGenerator<Piece> {
    const { model, isChat, system, search, temperature, topP: top_p, maxTokens, seed } = settings;
    const isSearched = isChat && search !== '';
    const said = isSearched ? turns.slice(-1) : turns;
    const messages = [...(system === '' ? [] : [{ role: 'system', content: system }]), ...said];
    const asked = isChat ? { messages } : { prompt: turns.at(-1)?.content ?? '' };
    // What is undefined is left out.
    const most = isSearched ? { search: { method: search, max_step_tokens: maxTokens } } : { max_tokens: maxTokens };
    const sampling = { temperature, top_p, seed, ...most };
    const response = await this.ask(isChat ? 'v1/chat/completions' : 'v1/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model, ...asked, ...sampling, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    for await (const data of eventsOf(response)) {
      if (data === '[DONE]') return;
      const chunk = object(JSON.parse(data));
      if (isObject(chunk['error'])) throw new ServerError(response.status, text(chunk['error']['message']));
      yield pieceOf(chunk);
    }
  }
}

function pieceOf(chunk: Json): Piece {
  const { choices, seed, system_fingerprint: fingerprint, usage } = chunk;
  const choice = object(Array.isArray(choices) ? choices[0] : undefined);
  const delta = object(choice['delta']);
  return {
    text: text(choice['text']) + text(delta['content']),
    reasoning: text(delta['reasoning'] ?? delta['reasoning_content']),
    finish: text(choice['finish_reason']) || undefined,
    seed: number(seed),
    fingerprint: text(fingerprint) || undefined,
    promptTokens: number(object(usage)['prompt_tokens']),
    tokens: number(object(usage)['completion_tokens']),
    found: foundBy(object(chunk['search'])),
  };
}

function foundBy({ candidates, picked }: Json): string | undefined {
  if (!Array.isArray(candidates)) return undefined;
  if (typeof picked !== 'number') return 'nothing was found';
  const score = number(object(candidates[picked])['score']);
  const scored = score === undefined ? '' : `, score ${score.toFixed(3)}`;
  return `text ${picked + 1} of ${candidates.length}${scored}`;
}

/** The data of server-sent events: lines that begin with `data:`. */
async function* eventsOf(response: Response): AsyncGenerator<string> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line.startsWith('data:')) yield line.slice('data:'.length).trim();
    }
  } finally {
    // Whoever leaves early wants no more of it.
    void reader.cancel().catch(() => undefined);
  }
}
