/** The models of a server, as the thread that speaks HTTP sees them: what they are, and what can be asked of them. */
import type { AdapterRef } from '../engine/device.js';
import type { ModelStats } from '../engine/modelStats.js';
import { ApiError, badRequest } from './apiError.js';
import type { ContinuationRequest, RequestEvent, RewardRequest, ScoreRequest } from '../engine/request.js';
import type { ClassHead } from '../models/model/model.js';
import type { Detokenizer } from '../models/tokenizer/detokenizer.js';
import type { GrammarSource } from '../grammar/source.js';
import type { CallStyleName, ReasoningStyleName } from '../models/chat/answerStyles.js';

/** What goes from thread to thread of a request to the engine. */
type Sent<R> = Omit<R, 'signal' | 'drafts' | 'guide' | 'endsAt' | 'isQuiet'>;
export type ServedRequest =
  | (Sent<ContinuationRequest> & {
      /** What the text must be. */
      readonly grammar?: GrammarSource | undefined;
      /** i32[n]: tokens that are expected of it. They change when it is there, and nothing else. */
      readonly prediction?: Int32Array | undefined;
    })
  | Sent<ScoreRequest>
  | Sent<RewardRequest>;

/** Is told what happens to a request. Nothing comes before `submit` has returned. */
export interface RequestListener {
  /** Events of one step or more, in order. Each must be acknowledged once its text was sent, or not needed. */
  onEvents(events: readonly RequestEvent[]): void;
  /** The request was not taken: a full queue, a prompt that is too long … The only thing that is told then. */
  onRefused(error: Error): void;
}

export interface RunningRequest {
  /** Ends it with what there is; its events go on to their end. */
  cancel(): void;
  /**
   * Continuation `sample` ends with its first `count` tokens: a stop string was found in its text. Its end is told
   * once, with reason `stop`, unless it was told already; its other events are dropped.
   */
  cut(sample: number, count: number): void;
  /** So many events were dealt with. The engine holds a request back whose reader has too many before it. */
  acknowledge(count: number): void;
}

/** Text in and out of a model. Encoding and templates run in threads of their own, with bounds on time and memory. */
export interface ModelTexts {
  /** Ids of each text, with the special tokens that the tokenizer adds unless that is false. */
  encode(texts: readonly string[], addSpecialTokens?: boolean): Promise<readonly (readonly number[])[]>;
  /**
   * The text of a conversation by the model's template, and its ids: no special tokens are added. Rejects with ApiError
   * where there is no template, or where it refuses the conversation.
   */
  renderChat(conversation: ChatInput): Promise<{ readonly text: string; readonly tokens: readonly number[] }>;
  /** Bytes and texts of tokens, in this thread: a table, which is quick. */
  readonly detokenizer: Detokenizer;
  /** tokenizer_config.json, with the texts of its special tokens and its template. */
  readonly tokenizerInfo: Readonly<Record<string, unknown>>;
}

/** A conversation as its template gets it: values of JSON, or of Python where those say more. */
export interface ChatInput {
  readonly messages: readonly Readonly<Record<string, unknown>>[];
  readonly tools?: readonly unknown[] | undefined;
  readonly documents?: readonly unknown[] | undefined;
  readonly addGenerationPrompt: boolean;
  /** The text ends behind the content of the last message, which is to be gone on with. */
  readonly continueFinalMessage: boolean;
  /** Further variables of the template. */
  readonly variables: Readonly<Record<string, unknown>>;
}

/** A model that is served. */
export interface ServedModel {
  /** The name in the engine. */
  readonly key: string;
  /** Names that clients may ask for it by; the first is the one in answers. */
  readonly names: readonly string[];
  /** Seconds since 1970 at which it was opened. */
  readonly created: number;
  readonly kind: 'text' | 'reward';
  /** Longest text that it may have, prompt and answer: its context, or what memory has room for. */
  readonly maxLength: number;
  readonly vocabSize: number;
  /** Tokens that end an answer. */
  readonly eosTokenIds: ReadonlySet<number>;
  /** The token that begins texts, and the one that the tokenizer itself ends them with, where there are such. */
  readonly bosTokenId: number | undefined;
  readonly ownEosTokenId: number | undefined;
  /** Names weights, plan and kind of device: equal ones give equal answers to equal requests with a seed. */
  readonly fingerprint: string;
  readonly texts: ModelTexts;
  /** How answers are read, where that is not found in the chat template. */
  readonly parsers?: AnswerParsers;
  /** The adapter that its requests have. Names and fingerprint are then the adapter's. */
  readonly adapter?: ServedAdapter | undefined;
  /** How rows of it become scores: of a reward model, and of a language model that is known to be a verifier. */
  readonly scoring?: ScoringFacts | undefined;
}

export interface ServedAdapter extends AdapterRef {
  readonly rank: number;
  /** The name of the model that it belongs to. */
  readonly parent: string;
}

export interface AnswerParsers {
  readonly toolCalls?: CallStyleName | 'none';
  readonly reasoning?: ReasoningStyleName | 'none';
}

/** What is known of a verifier: plain data. */
export interface ScoringFacts {
  /** The kind of its head of classes (models/heads/records); absent for a language model. */
  readonly head?: ClassHead['kind'] | undefined;
  /** The name of a language model's record (models/heads/languageVerifiers). */
  readonly language?: string | undefined;
  /** Names of classes, as far as the model has some. */
  readonly labels: readonly string[];
  /** The token that begins texts, and the one that fills lines up, where there are such. */
  readonly bos: number | undefined;
  readonly pad: number | undefined;
}

/** What every request for a model says. */
export const askOf = ({ key, adapter }: ServedModel): { readonly model: string; readonly adapter?: AdapterRef } => ({
  model: key,
  ...(adapter === undefined ? {} : { adapter: { hash: adapter.hash, path: adapter.path } }),
});

/** Names of adapters, which clients ask for as models. Promises reject with ApiError. */
export interface AdapterModels {
  /** Whether clients may load adapters from paths of this machine, and unload them. */
  readonly allowsUpdates: boolean;
  /** In the order of their loading. */
  readonly models: readonly ServedModel[];
  /** Looks a name up in the folder of adapters, where there is no model of that name. */
  find(name: unknown): Promise<void>;
  load(name: string, path: string, inPlace: boolean): Promise<void>;
  unload(name: string): Promise<void>;
  /** A request has what the name means now. Call the result once, when the request has ended. */
  hold(name: unknown): () => void;
}

/** What endpoints ask. Over a port to the engine's thread; tests have one in their own. */
export interface ModelClient {
  /** Models, and adapters behind them. */
  readonly models: readonly ServedModel[];
  /** The names of adapters, where a model has slots for them. */
  readonly adapters?: AdapterModels | undefined;
  submit(request: ServedRequest, listener: RequestListener): RunningRequest;
  /** What the engine has counted of each model, in the order of `models` without adapters, a moment ago. */
  stats(): Promise<readonly ModelStats[]>;
  /** Rejects with ApiError 400 where no text can be asked for by this source, or it is beyond bounds. */
  checkGrammar(model: ServedModel, source: GrammarSource): Promise<void>;
}

/** The model that a body asks for: the first where it names none. */
export const findModel = ({ models }: ModelClient, name: unknown): ServedModel | undefined =>
  name === undefined || name === null ? models[0] : models.find(({ names }) => names.includes(String(name)));

/** The same. Throws ApiError 404 where there is no such model. */
export function requireAnyModel(client: ModelClient, name: unknown): ServedModel {
  const model = findModel(client, name);
  if (model !== undefined) return model;
  throw new ApiError(404, `there is no model ${JSON.stringify(String(name).slice(0, 200))}`, {
    param: 'model',
    code: 'model_not_found',
  });
}

/**
 * The same, of a kind: the first of it where the body names none. Throws ApiError: 404 where there is no such model,
 * 400 where it is of the other kind.
 */
export function requireModel(client: ModelClient, name: unknown, kind: ServedModel['kind']): ServedModel {
  const isNamed = name !== undefined && name !== null;
  const first = isNamed ? undefined : client.models.find((each) => each.kind === kind);
  const model = first ?? requireAnyModel(client, name);
  if (model.kind === kind) return model;
  const gives = model.kind === 'text' ? 'texts, and no scores' : 'scores, and no texts';
  throw badRequest(`the model ${JSON.stringify(model.names[0])} gives ${gives}`, 'model');
}
