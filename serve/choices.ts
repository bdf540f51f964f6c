/**
 * The events of a request as texts: for each choice the text that a token adds, stop texts found and cut out, why it
 * ended, and what was used. Every event is acknowledged, once whoever listens has room for more.
 */
import { Followed, type Prediction } from '../draft/prediction.js';
import type { EndReason, GeneratedToken, RequestEvent, RowResult } from '../engine/request.js';
import { TextStream, type TokenText } from '../engine/textStream.js';
import { defined } from '../system/defined.js';
import type { ModelClient, RequestListener, RunningRequest, ServedModel, ServedRequest } from './models.js';
import type { AnswerOptions } from './sampling.js';

export type FinishReason = 'stop' | 'length' | 'abort';

export interface Finish {
  readonly reason: FinishReason;
  /** The stop text or token that ended it; null for the model's own end. */
  readonly stopReason: string | number | null;
}

/** Is told of the choices of a request; `choice` counts from 0. */
export interface ChoiceListener {
  /** A token, and the text that stands with it: none where it may be part of a stop text or of a character. */
  onToken(choice: number, token: GeneratedToken, text: string): void;
  /** A row of the prompt. */
  onRow?(row: RowResult): void;
  /** The choice is over; `text` was held back. */
  onFinish(choice: number, text: string, finish: Finish): void;
  /** What events have come at a time is told. Resolves when there is room for more; undefined: there is. */
  onTold?(): Promise<void> | undefined;
}

export interface Usage {
  readonly promptTokens: number;
  /** Of all choices. */
  readonly completionTokens: number;
  /** Tokens of the prompt that had been computed before. */
  readonly cachedTokens: number;
  /** Where answers were expected: tokens of all choices that were, and those that were expected and did not come. */
  readonly prediction?: { readonly accepted: number; readonly rejected: number };
}

type TextOptions = Pick<AnswerOptions, 'stop' | 'stopTokenIds' | 'includesStop' | 'minTokens' | 'ignoresEos'>;

export interface ChoicesOptions extends TextOptions {
  readonly eosTokenIds: ServedModel['eosTokenIds'];
  /** Makes the text of a choice. */
  readonly openText: () => TokenText;
  /** What is expected of each choice. */
  readonly prediction?: Prediction | undefined;
}

type Generation = Extract<ServedRequest, { readonly kind: 'generate' }>;

/** A choice as it grows. */
interface Choice {
  readonly text: TokenText;
  /** Where there are stop texts. */
  readonly stopping: TextStream | undefined;
  /** Where something is expected of it. */
  readonly followed: Followed | undefined;
  tokens: number;
  last: number;
  /** Whether its text is over, and whether the engine has said so. */
  isFinished: boolean;
  isOver: boolean;
}

/** What a client is told of an end. */
export const FINISHES: Readonly<Record<EndReason, FinishReason>> = {
  eos: 'stop',
  stop: 'stop',
  length: 'length',
  context: 'length',
  cache: 'length',
  deadline: 'length',
  aborted: 'abort',
};

export class Choices implements RequestListener {
  /** Resolves when all choices are over; rejects where one failed or the request was not taken. */
  readonly ended: Promise<Usage>;
  readonly #choices: readonly Choice[];
  readonly #options: ChoicesOptions;
  readonly #listener: ChoiceListener;
  readonly #promptTokens: number;
  readonly #running: RunningRequest;
  #left: number;
  #cachedTokens = 0;
  #isFailed = false;
  #resolve: (usage: Usage) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;

  /** Asks for `request`. */
  constructor(client: ModelClient, request: Generation, options: ChoicesOptions, listener: ChoiceListener) {
    const { n = 1, prompt } = request;
    this.#options = options;
    this.#listener = listener;
    this.#promptTokens = prompt.length;
    this.#left = n;
    this.#choices = Array.from({ length: n }, () => {
      const text = options.openText();
      return {
        text,
        stopping: options.stop.length > 0 ? new TextStream(text, options.stop) : undefined,
        followed: options.prediction && new Followed(options.prediction),
        ...{ tokens: 0, last: -1, isFinished: false, isOver: false },
      };
    });
    this.ended = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Whoever asks may be told by `ended` alone, later.
    this.ended.catch(() => undefined);
    this.#running = client.submit(request, this);
  }

  /** So far. */
  get usage(): Usage {
    return {
      promptTokens: this.#promptTokens,
      completionTokens: this.#choices.reduce((sum, { tokens }) => sum + tokens, 0),
      cachedTokens: this.#cachedTokens,
      ...defined({ prediction: this.#foreseen }),
    };
  }

  get #foreseen(): Usage['prediction'] {
    const { prediction } = this.#options;
    if (prediction === undefined) return undefined;
    const { length } = prediction.tokens;
    const accepted = this.#choices.map(({ followed }) => Math.min(length, followed?.foreseen ?? 0));
    const sum = accepted.reduce((all, each) => all + each, 0);
    return { accepted: sum, rejected: length * accepted.length - sum };
  }

  /** Tokens of a choice. */
  tokensOf(choice: number): number {
    return this.#choices[choice]!.tokens;
  }

  /** Ends all choices with what there is. */
  cancel(): void {
    this.#running.cancel();
  }

  /** The choice is over: whoever reads its text has found its end. What comes after it is dropped. */
  finish(index: number, finish: Finish, text = ''): void {
    const choice = this.#choices[index]!;
    if (choice.isFinished) return;
    choice.isFinished = true;
    if (!choice.isOver) this.#running.cut(index, choice.tokens);
    this.#listener.onFinish(index, text, finish);
  }

  onRefused(error: Error): void {
    this.#fail(error);
  }

  onEvents(events: readonly RequestEvent[]): void {
    try {
      for (const event of events) if (!this.#isFailed) this.#take(event);
      const room = this.#isFailed ? undefined : this.#listener.onTold?.();
      if (room !== undefined) {
        const acknowledge = (): void => this.#running.acknowledge(events.length);
        void room.then(acknowledge, acknowledge);
        return;
      }
    } catch (error) {
      this.#fail(error);
    }
    this.#running.acknowledge(events.length);
  }

  #take(event: RequestEvent): void {
    switch (event.kind) {
      case 'token':
        return this.#token(event.sample, event.token);
      case 'row':
        return this.#listener.onRow?.(event.row);
      case 'end':
        return this.#end(event.sample, event.result.reason, event.result.foundTokens);
      case 'failed':
        return this.#fail(event.error);
      case 'classes':
        return undefined;
      default:
        return event satisfies never;
    }
  }

  #token(index: number, token: GeneratedToken): void {
    const choice = this.#choices[index]!;
    if (choice.isFinished) return;
    const id = token.token;
    choice.tokens++;
    choice.last = id;
    choice.followed?.take(id);
    const { text, stopping } = choice;
    if (this.#endsText(id)) {
      // Behind what may be the start of a stop text.
      const own = (): string => stopping?.push(id, false).added ?? text.push(id);
      return this.#listener.onToken(index, token, this.#options.includesStop ? own() : '');
    }
    if (stopping === undefined) return this.#listener.onToken(index, token, text.push(id));
    const { added } = stopping.push(id, choice.tokens >= this.#options.minTokens);
    const { stop } = stopping;
    if (stop === undefined) return this.#listener.onToken(index, token, added);
    this.#listener.onToken(index, token, this.#options.includesStop ? added + stop : added);
    this.finish(index, { reason: 'stop', stopReason: stop });
  }

  #endsText(id: number): boolean {
    const { eosTokenIds, ignoresEos, stopTokenIds } = this.#options;
    return (!ignoresEos && eosTokenIds.has(id)) || stopTokenIds.has(id);
  }

  #end(index: number, reason: EndReason, foundTokens: number): void {
    const choice = this.#choices[index]!;
    if (choice.isOver) return;
    choice.isOver = true;
    if (index === 0) this.#cachedTokens = foundTokens;
    if (!choice.isFinished) {
      const { eosTokenIds, ignoresEos } = this.#options;
      const isOwn = !ignoresEos && eosTokenIds.has(choice.last);
      const stopReason = reason === 'eos' && !isOwn ? choice.last : null;
      this.finish(index, { reason: FINISHES[reason], stopReason }, (choice.stopping ?? choice.text).end());
    }
    if (--this.#left === 0) this.#resolve(this.usage);
  }

  #fail(error: unknown): void {
    if (this.#isFailed) return;
    this.#isFailed = true;
    this.#reject(error);
    this.#running.cancel();
  }
}

/** Usage as clients read it, of all prompts of an answer. */
export function usageOf(usages: readonly Usage[]) {
  const sum = (name: Exclude<keyof Usage, 'prediction'>): number => usages.reduce((all, each) => all + each[name], 0);
  const [prompt, completion] = [sum('promptTokens'), sum('completionTokens')];
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum('cachedTokens') },
  };
}
