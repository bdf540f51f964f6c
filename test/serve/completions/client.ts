/** Asks a server for completions, whole and streamed. */
export interface LogProbs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly (number | null)[];
  readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[];
  readonly text_offset: readonly number[];
}

export interface AnswerChoice {
  readonly index: number;
  readonly text: string;
  readonly logprobs: LogProbs | null;
  readonly finish_reason: string | null;
  readonly stop_reason: string | number | null;
  readonly token_ids?: readonly number[];
  readonly prompt_token_ids?: readonly number[];
  readonly prompt_logprobs?: readonly (Readonly<
    Record<string, { readonly logprob: number; readonly rank: number | null; readonly decoded_token: string }>
  > | null)[];
}

export interface AnswerUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

export interface Answer {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly system_fingerprint: string;
  readonly seed: number;
  readonly choices: readonly AnswerChoice[];
  readonly usage?: AnswerUsage;
}

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

type Body = Readonly<Record<string, unknown>>;

export const post = (url: string, path: string, body: Body, signal?: AbortSignal): Promise<Response> =>
  fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });

export async function complete(url: string, body: Body): Promise<Answer> {
  const response = await post(url, '/v1/completions', body);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
  return JSON.parse(text) as Answer;
}

export async function refused(url: string, body: Body, path = '/v1/completions') {
  const response = await post(url, path, body);
  const { error } = (await response.json()) as ErrorBody;
  return { status: response.status, headers: response.headers, ...error };
}

/** The chunks of a streamed answer, the last of which is [DONE]. */
export async function chunks(url: string, body: Body): Promise<readonly Answer[]> {
  const response = await post(url, '/v1/completions', { ...body, stream: true });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
  const events = text.split('\n\n').slice(0, -1);
  if (events.pop() !== 'data: [DONE]') throw new Error('no [DONE]');
  return events.map((event) => JSON.parse(event.replace(/^data: /, '')) as Answer);
}

/** What the chunks of each choice say together. */
export function joined(all: readonly Answer[]): readonly AnswerChoice[] {
  const choices = new Map<number, AnswerChoice>();
  for (const { choices: own } of all)
    for (const choice of own) {
      const { index } = choice;
      const before = choices.get(index);
      if (before !== undefined && before.finish_reason !== null)
        throw new Error(`choice ${index} goes on behind its end`);
      choices.set(index, before === undefined ? choice : together(before, choice));
    }
  return [...choices.values()].sort((a, b) => a.index - b.index);
}

function together(a: AnswerChoice, b: AnswerChoice): AnswerChoice {
  const logprobs =
    a.logprobs === null || b.logprobs === null
      ? (a.logprobs ?? b.logprobs)
      : {
          tokens: [...a.logprobs.tokens, ...b.logprobs.tokens],
          token_logprobs: [...a.logprobs.token_logprobs, ...b.logprobs.token_logprobs],
          top_logprobs: [...a.logprobs.top_logprobs, ...b.logprobs.top_logprobs],
          text_offset: [...a.logprobs.text_offset, ...b.logprobs.text_offset],
        };
  const ids = a.token_ids === undefined ? {} : { token_ids: [...a.token_ids, ...(b.token_ids ?? [])] };
  return { ...a, ...b, text: a.text + b.text, logprobs, ...ids };
}
