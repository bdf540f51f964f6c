/** Answers of a completion: whole ones, and streamed ones. Both are written as text, without an object of the whole. */
import type { GeneratedToken, RowResult } from '../../engine/request.js';
import { type ChoiceListener, type Finish, type Usage, usageOf } from '../choices.js';
import type { EventStream } from '../exchange.js';
import { characters, tokenTexts, type TokenTexts, mostLikelyOf } from '../tokenTexts.js';
import type { Completion } from './body.js';
import { LogProbLists } from './logProbs.js';
import type { AnsweredPrompt } from './prompt.js';

/** What an answer begins with, whole or in chunks. */
export function answerHead({ model, options }: Completion, id: string): string {
  const created = Math.floor(Date.now() / 1000);
  const own = { id: `cmpl-${id}`, object: 'text_completion', created, model: model.names[0] };
  const head = JSON.stringify({ ...own, system_fingerprint: model.fingerprint, seed: options.sampling.seed });
  return `${head.slice(0, -1)},"choices":[`;
}

export const usageJson = (usages: readonly Usage[]): string => JSON.stringify(usageOf(usages));

/** Log-probabilities of an answer's tokens as they come, and where their texts begin. */
class TokenLists {
  readonly #texts: TokenTexts;
  readonly #completion: Completion;
  #offset: number;
  #lists: LogProbLists;

  constructor(completion: Completion, prompt: AnsweredPrompt) {
    this.#texts = tokenTexts(completion.model.texts.detokenizer);
    this.#completion = completion;
    this.#offset = characters(prompt.text);
    this.#lists = this.#begin();
  }

  #begin(): LogProbLists {
    return new LogProbLists(this.#texts, this.#completion.options.namesTokens);
  }

  /** `text`: what the answer's text grows by. */
  add(token: GeneratedToken, text: string): void {
    this.#lists.add(token, mostLikelyOf(token, this.#completion.options.topLogProbs ?? 0), this.#offset);
    this.#offset += characters(text);
  }

  /** Those since the last time. */
  take(): LogProbLists {
    const lists = this.#lists;
    this.#lists = this.#begin();
    return lists;
  }
}

interface WholeChoice {
  text: string;
  readonly tokens: number[];
  readonly lists: TokenLists | undefined;
  /** Of the log-probabilities of its tokens. */
  sum: number;
  finish: Finish | undefined;
}

/** The choices of a prompt, gathered. */
export class WholeAnswer implements ChoiceListener {
  readonly #completion: Completion;
  readonly #prompt: AnsweredPrompt;
  readonly #choices: readonly WholeChoice[];

  constructor(completion: Completion, prompt: AnsweredPrompt) {
    this.#completion = completion;
    this.#prompt = prompt;
    const hasLists = completion.options.topLogProbs !== undefined;
    this.#choices = Array.from({ length: completion.drawn }, () => ({
      text: prompt.text,
      tokens: [],
      lists: hasLists ? new TokenLists(completion, prompt) : undefined,
      ...{ sum: 0, finish: undefined },
    }));
  }

  onToken(index: number, token: GeneratedToken, text: string): void {
    const choice = this.#choices[index]!;
    choice.text += text;
    choice.tokens.push(token.token);
    choice.sum += token.logProb;
    choice.lists?.add(token, text);
  }

  onRow(row: RowResult): void {
    this.#prompt.take(row);
  }

  onFinish(index: number, text: string, finish: Finish): void {
    const choice = this.#choices[index]!;
    choice.text += text;
    choice.finish = finish;
  }

  /** Its choices as JSON, the first of which has number `first`: the likeliest, where more were drawn. */
  json(first: number): string {
    const { n } = this.#completion.options;
    const mean = ({ tokens, sum }: WholeChoice): number => (tokens.length === 0 ? 0 : sum / tokens.length);
    const ranked = n < this.#choices.length ? this.#choices.toSorted((a, b) => mean(b) - mean(a)) : this.#choices;
    return ranked
      .slice(0, n)
      .map((choice, i) => this.#choiceJson(choice, first + i))
      .join();
  }

  #choiceJson({ text, tokens, lists, finish }: WholeChoice, index: number): string {
    const { options } = this.#completion;
    const logProbs = lists === undefined ? 'null' : LogProbLists.json([...this.#prompt.lists, lists.take()]);
    const { reason, stopReason }: Finish = finish ?? { reason: 'abort', stopReason: null };
    const end = `"finish_reason":"${reason}","stop_reason":${JSON.stringify(stopReason)}`;
    const own = `{"index":${index},"text":${JSON.stringify(text)},"logprobs":${logProbs},${end}`;
    const ofPrompt =
      options.promptLogProbs === undefined ? '' : `,"prompt_logprobs":${this.#prompt.promptLogProbsJson}`;
    const ids = options.returnsTokens
      ? `,"token_ids":[${tokens.join()}],"prompt_token_ids":[${this.#prompt.prompt.tokens.join()}]`
      : '';
    return `${own}${ofPrompt}${ids}}`;
  }
}

const GOING = ',"finish_reason":null,"stop_reason":null';

interface StreamedChoice {
  /** Of a chunk, up to its text. */
  readonly head: string;
  readonly lists: TokenLists | undefined;
  isBegun: boolean;
}

/** The choices of a prompt, a chunk a token. */
export class StreamedAnswer implements ChoiceListener {
  readonly #completion: Completion;
  readonly #prompt: AnsweredPrompt;
  readonly #choices: readonly StreamedChoice[];
  readonly #open: () => EventStream;
  /** Whether a chunk holds nothing but text. */
  readonly #isPlain: boolean;
  /** Set once its request is on its way. */
  usages: () => readonly Usage[] = () => [];
  /** What has come before the rows of the prompt, which are to be shown first. */
  #early: (() => void)[] = [];
  #room: Promise<void> | undefined;

  /** `head`: of the answer. `open`: begins it, or gives what it has begun. */
  constructor(completion: Completion, prompt: AnsweredPrompt, head: string, first: number, open: () => EventStream) {
    this.#completion = completion;
    this.#prompt = prompt;
    this.#open = open;
    const { hasUsageAlways, n, returnsTokens, topLogProbs } = completion.options;
    this.#isPlain = topLogProbs === undefined && !returnsTokens && !hasUsageAlways;
    this.#choices = Array.from({ length: n }, (_, i) => ({
      head: `${head}{"index":${first + i},"text":`,
      lists: topLogProbs === undefined ? undefined : new TokenLists(completion, prompt),
      isBegun: !completion.echoes && !returnsTokens,
    }));
  }

  onToken(index: number, token: GeneratedToken, text: string): void {
    if (!this.#prompt.isComplete) return void this.#early.push(() => this.onToken(index, token, text));
    const choice = this.#choices[index]!;
    if (this.#isPlain && choice.isBegun) {
      if (text === '') return;
      return this.#send(`${choice.head}${JSON.stringify(text)},"logprobs":null${GOING}}]}`);
    }
    choice.lists?.add(token, text);
    const hasLists = choice.lists !== undefined;
    this.#chunk(choice, text, hasLists ? [choice.lists.take()] : [], [token.token], GOING);
  }

  onRow(row: RowResult): void {
    this.#prompt.take(row);
    if (!this.#prompt.isComplete) return;
    for (const send of this.#early) send();
    this.#early = [];
  }

  onFinish(index: number, text: string, { reason, stopReason }: Finish): void {
    if (!this.#prompt.isComplete)
      return void this.#early.push(() => this.onFinish(index, text, { reason, stopReason }));
    const end = `,"finish_reason":"${reason}","stop_reason":${JSON.stringify(stopReason)}`;
    this.#chunk(this.#choices[index]!, text, [], [], end);
  }

  onTold(): Promise<void> | undefined {
    const room = this.#room;
    this.#room = undefined;
    return room;
  }

  /** The first of a choice begins with what its prompt has. */
  #chunk(
    choice: StreamedChoice,
    text: string,
    own: readonly LogProbLists[],
    tokens: readonly number[],
    end: string,
  ): void {
    const { hasUsageAlways, returnsTokens } = this.#completion.options;
    const isFirst = !choice.isBegun;
    choice.isBegun = true;
    const lists = isFirst ? [...this.#prompt.lists, ...own] : own;
    const logProbs = lists.length === 0 ? 'null' : LogProbLists.json(lists);
    const all = isFirst ? this.#prompt.text + text : text;
    const ofPrompt = isFirst && returnsTokens ? `,"prompt_token_ids":[${this.#prompt.prompt.tokens.join()}]` : '';
    const ids = returnsTokens ? `,"token_ids":[${tokens.join()}]${ofPrompt}` : '';
    const usage = hasUsageAlways ? `,"usage":${usageJson(this.usages())}` : '';
    this.#send(`${choice.head}${JSON.stringify(all)},"logprobs":${logProbs}${end}${ids}}]${usage}}`);
  }

  #send(json: string): void {
    const stream = this.#open();
    if (!stream.send(json)) this.#room ??= stream.drained();
  }
}
