/** What an answer grows by: thoughts, content and calls since it was last told, as JSON. */
import { createHash } from 'node:crypto';
import type { GeneratedToken } from '../../engine/request.js';
import { logProbJson, mostLikelyOf, type TokenTexts, tokenTexts } from '../tokenTexts.js';
import { AnswerReader } from './answerReader.js';
import type { ChatRequest } from './body.js';
import type { AnswerSink } from './textParts.js';

interface CallDelta {
  readonly index: number;
  /** Told with the first piece. */
  readonly begun: { readonly id: string; readonly name: string } | undefined;
  arguments: string;
}

/** A choice as it is read: what has come since the last time. */
export class ChoiceDeltas implements AnswerSink {
  /** Calls so far. */
  calls = 0;
  reasoningTokens = 0;
  readonly #chat: ChatRequest;
  readonly #choice: number;
  readonly #reader: AnswerReader;
  readonly #logProbs: ChatLogProbs | undefined;
  #reasoning = '';
  #content: string;
  #calls: CallDelta[] = [];
  #tokens: number[] = [];
  /** A call is left out: no other was to be made beside the first. */
  #isLeftOut = false;

  constructor(chat: ChatRequest, choice: number) {
    this.#chat = chat;
    this.#choice = choice;
    this.#content = chat.echoed;
    this.#reader = new AnswerReader(chat.form, this);
    this.#logProbs = chat.options.topLogProbs === undefined ? undefined : new ChatLogProbs(chat);
  }

  push(token: GeneratedToken, text: string): void {
    const wasThinking = this.#reader.isThinking;
    this.#reader.push(text);
    if (wasThinking || this.#reader.isThinking) this.reasoningTokens++;
    this.#logProbs?.add(token);
    if (this.#chat.options.returnsTokens) this.#tokens.push(token.token);
  }

  /** No token follows. `isCut`: because the answer may not be longer. */
  end(text: string, isCut: boolean): void {
    this.#reader.push(text);
    this.#reader.end(isCut);
  }

  reasoning(text: string): void {
    if (this.#chat.showsReasoning) this.#reasoning += text;
  }

  content(text: string): void {
    this.#content += text;
  }

  call(name: string, id?: string): void {
    this.#isLeftOut = this.calls > 0 && !this.#chat.isParallel;
    if (this.#isLeftOut) return;
    const index = this.calls++;
    this.#calls.push({ index, begun: { id: id ?? this.#idOf(index), name }, arguments: '' });
  }

  argument(text: string): void {
    if (this.#isLeftOut) return;
    const last = this.#calls.at(-1);
    if (last === undefined) this.#calls.push({ index: this.calls - 1, begun: undefined, arguments: text });
    else last.arguments += text;
  }

  /** Ids are in later prompts of some templates: equal requests with a seed get equal ones. */
  #idOf(call: number): string {
    const { prompt, options, idLength } = this.#chat;
    const hash = createHash('sha256').update(Int32Array.from(prompt));
    const hex = hash.update(`${options.sampling.seed} ${this.#choice} ${call}`).digest('hex');
    return idLength === undefined ? `call_${hex.slice(0, 24)}` : hex.slice(0, idLength);
  }

  /** What has come since the last time; undefined for nothing. */
  takeDelta(): string | undefined {
    const fields: string[] = [];
    if (this.#reasoning !== '') {
      const text = JSON.stringify(this.#reasoning);
      fields.push(`"reasoning":${text},"reasoning_content":${text}`);
    }
    if (this.#content !== '') fields.push(`"content":${JSON.stringify(this.#content)}`);
    if (this.#calls.length > 0) fields.push(`"tool_calls":[${this.#calls.map(deltaJson).join()}]`);
    if (fields.length === 0) return undefined;
    this.#reasoning = '';
    this.#content = '';
    this.#calls = [];
    return `{${fields.join()}}`;
  }

  /** The whole message, where nothing was taken before. */
  get messageJson(): string {
    const { reasoning: form } = this.#chat.form;
    const thoughts = this.#reasoning === '' ? 'null' : JSON.stringify(this.#reasoning);
    const content = this.#content === '' && this.calls > 0 ? 'null' : JSON.stringify(this.#content);
    const calls = this.#calls.length === 0 ? '' : `,"tool_calls":[${this.#calls.map(callJson).join()}]`;
    const reasoning = form === undefined ? '' : `,"reasoning":${thoughts},"reasoning_content":${thoughts}`;
    return `{"role":"assistant","content":${content},"refusal":null${reasoning}${calls}}`;
  }

  /** Log-probabilities of the tokens since the last time: null where there are none. */
  takeLogProbs(): string {
    return this.#logProbs?.take() ?? 'null';
  }

  /** Numbers of the tokens since the last time. */
  takeTokens(): readonly number[] {
    const tokens = this.#tokens;
    this.#tokens = [];
    return tokens;
  }
}

const argumentsJson = ({ arguments: text }: CallDelta): string => JSON.stringify(text);

function callJson(call: CallDelta): string {
  const { id, name } = call.begun!;
  const own = `{"name":${JSON.stringify(name)},"arguments":${argumentsJson(call)}}`;
  return `{"id":${JSON.stringify(id)},"type":"function","function":${own}}`;
}

const deltaJson = (call: CallDelta): string =>
  call.begun === undefined
    ? `{"index":${call.index},"function":{"arguments":${argumentsJson(call)}}}`
    : `{"index":${call.index},${callJson(call).slice(1)}`;

/** Log-probabilities as chats write them: an object a token, with the bytes that it stands for. */
class ChatLogProbs {
  readonly #texts: TokenTexts;
  readonly #namesTokens: boolean;
  readonly #top: number;
  #entries: string[] = [];

  constructor({ model, options }: ChatRequest) {
    this.#texts = tokenTexts(model.texts.detokenizer);
    this.#namesTokens = options.namesTokens;
    this.#top = options.topLogProbs ?? 0;
  }

  add(token: GeneratedToken): void {
    // The drawn token has one number, among the most likely ones as well.
    const top = mostLikelyOf(token, this.#top).map((each) => (each.token === token.token ? token : each));
    const tops = top.map((each) => `{${this.#fields(each)}}`).join();
    this.#entries.push(`{${this.#fields(token)},"top_logprobs":[${tops}]}`);
  }

  take(): string | undefined {
    if (this.#entries.length === 0) return undefined;
    const content = this.#entries.join();
    this.#entries = [];
    return `{"content":[${content}],"refusal":null}`;
  }

  #fields({ token, logProb }: GeneratedToken): string {
    const text = this.#namesTokens ? `"token_id:${token}"` : this.#texts.jsonOf(token);
    return `"token":${text},"logprob":${logProbJson(logProb)},"bytes":[${this.#texts.bytesOf(token).join()}]`;
  }
}
