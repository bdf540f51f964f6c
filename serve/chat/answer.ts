/** Answers of a chat completion: whole ones, and streamed ones. Both are written as text. */
import type { GeneratedToken } from '../../engine/request.js';
import { type ChoiceListener, type Finish, type Usage, usageOf } from '../choices.js';
import type { EventStream } from '../exchange.js';
import type { ChatRequest } from './body.js';
import { ChoiceDeltas } from './deltas.js';

/** What an answer begins with, whole or in chunks. */
export function answerHead({ model, options }: ChatRequest, id: string): string {
  const created = Math.floor(Date.now() / 1000);
  const object = options.isStreamed ? 'chat.completion.chunk' : 'chat.completion';
  const own = { id: `chatcmpl-${id}`, object, created, model: model.names[0] };
  const head = JSON.stringify({ ...own, system_fingerprint: model.fingerprint, seed: options.sampling.seed });
  return `${head.slice(0, -1)},"choices":[`;
}

/** `choices`: those that think, of which tokens are counted; absent for a model without thoughts. */
function usageJson(usage: Usage, chat: ChatRequest, choices: readonly ChoiceDeltas[]): string {
  const { prediction } = usage;
  const details = {
    ...(chat.form.reasoning === undefined
      ? {}
      : { reasoning_tokens: choices.reduce((sum, { reasoningTokens }) => sum + reasoningTokens, 0) }),
    ...(prediction === undefined
      ? {}
      : { accepted_prediction_tokens: prediction.accepted, rejected_prediction_tokens: prediction.rejected }),
  };
  const hasDetails = Object.keys(details).length > 0;
  return JSON.stringify({ ...usageOf([usage]), ...(hasDetails ? { completion_tokens_details: details } : {}) });
}

/** A call that was asked for by its name ends as a text does. */
function finishReason({ choice }: ChatRequest, { reason }: Finish, calls: number): string {
  return reason === 'stop' && calls > 0 && choice.kind !== 'named' ? 'tool_calls' : reason;
}

const openChoices = (chat: ChatRequest): readonly ChoiceDeltas[] =>
  Array.from({ length: chat.options.n }, (_, index) => new ChoiceDeltas(chat, index));

const isCut = ({ reason }: Finish): boolean => reason !== 'stop';

export class WholeChat implements ChoiceListener {
  readonly #chat: ChatRequest;
  readonly #choices: readonly ChoiceDeltas[];
  readonly #finishes: Finish[] = [];

  constructor(chat: ChatRequest) {
    this.#chat = chat;
    this.#choices = openChoices(chat);
  }

  onToken(index: number, token: GeneratedToken, text: string): void {
    this.#choices[index]!.push(token, text);
  }

  onFinish(index: number, text: string, finish: Finish): void {
    this.#choices[index]!.end(text, isCut(finish));
    this.#finishes[index] = finish;
  }

  /** What follows the head. */
  json(usage: Usage): string {
    const choices = this.#choices.map((choice, index) => {
      const finish = this.#finishes[index]!;
      const end = `"finish_reason":"${finishReason(this.#chat, finish, choice.calls)}"`;
      const reason = `"stop_reason":${JSON.stringify(finish.stopReason)}`;
      const ids = this.#chat.options.returnsTokens ? `,"token_ids":[${choice.takeTokens().join()}]` : '';
      const logProbs = `"logprobs":${choice.takeLogProbs()}`;
      return `{"index":${index},"message":${choice.messageJson},${logProbs},${end},${reason}${ids}}`;
    });
    const { returnsTokens } = this.#chat.options;
    const ids = returnsTokens ? `,"prompt_token_ids":[${this.#chat.prompt.join()}]` : '';
    return `${choices.join()}],"usage":${usageJson(usage, this.#chat, this.#choices)}${ids}}`;
  }
}

const GOING = '"finish_reason":null';

/** A chunk a token, before them one with the role of each choice, and one with the reason of its end behind them. */
export class StreamedChat implements ChoiceListener {
  readonly #chat: ChatRequest;
  readonly #choices: readonly ChoiceDeltas[];
  /** Of a chunk of each choice, up to its delta. */
  readonly #heads: readonly string[];
  readonly #open: () => EventStream;
  /** Whether every token has a chunk, also without text: one that says something of it. */
  readonly #isPlain: boolean;
  #isBegun = false;
  #room: Promise<void> | undefined;
  /** Set once its request is on its way. */
  usage: () => Usage = () => ({ promptTokens: 0, completionTokens: 0, cachedTokens: 0 });

  /** `open`: begins the answer, or gives what it has begun. */
  constructor(chat: ChatRequest, head: string, open: () => EventStream) {
    this.#chat = chat;
    this.#choices = openChoices(chat);
    this.#heads = this.#choices.map((_, index) => `${head}{"index":${index},"delta":`);
    this.#open = open;
    const { hasUsageAlways, returnsTokens, topLogProbs } = chat.options;
    this.#isPlain = topLogProbs === undefined && !returnsTokens && !hasUsageAlways;
  }

  onToken(index: number, token: GeneratedToken, text: string): void {
    this.#begin();
    const choice = this.#choices[index]!;
    choice.push(token, text);
    const delta = choice.takeDelta();
    if (delta !== undefined || !this.#isPlain) this.#chunk(index, delta ?? '{}', GOING);
  }

  onFinish(index: number, text: string, finish: Finish): void {
    this.#begin();
    const choice = this.#choices[index]!;
    choice.end(text, isCut(finish));
    const delta = choice.takeDelta();
    if (delta !== undefined) this.#chunk(index, delta, GOING);
    const end = `"finish_reason":"${finishReason(this.#chat, finish, choice.calls)}"`;
    this.#chunk(index, '{}', `${end},"stop_reason":${JSON.stringify(finish.stopReason)}`);
  }

  onTold(): Promise<void> | undefined {
    const room = this.#room;
    this.#room = undefined;
    return room;
  }

  /** Of all choices, once they have ended. */
  usageJson(usage: Usage): string {
    return usageJson(usage, this.#chat, this.#choices);
  }

  #begin(): void {
    if (this.#isBegun) return;
    this.#isBegun = true;
    const { returnsTokens } = this.#chat.options;
    const ids = returnsTokens ? `,"prompt_token_ids":[${this.#chat.prompt.join()}]` : '';
    this.#choices.forEach((choice, index) => {
      this.#send(`${this.#heads[index]!}{"role":"assistant","content":""},"logprobs":null,${GOING}}]${ids}}`);
      const delta = choice.takeDelta();
      if (delta !== undefined) this.#chunk(index, delta, GOING);
    });
  }

  #chunk(index: number, delta: string, end: string): void {
    if (this.#isPlain) return this.#send(`${this.#heads[index]!}${delta},"logprobs":null,${end}}]}`);
    const choice = this.#choices[index]!;
    const { hasUsageAlways, returnsTokens } = this.#chat.options;
    const ids = returnsTokens ? `,"token_ids":[${choice.takeTokens().join()}]` : '';
    const usage = hasUsageAlways ? `,"usage":${this.usageJson(this.usage())}` : '';
    this.#send(`${this.#heads[index]!}${delta},"logprobs":${choice.takeLogProbs()},${end}${ids}}]${usage}}`);
  }

  #send(json: string): void {
    const stream = this.#open();
    if (!stream.send(json)) this.#room ??= stream.drained();
  }
}
