/** Messages between the thread of the engine and the one that speaks HTTP. Events have a form of their own. */
import type { EngineProgress } from '../../engine/engine.js';
import type { ModelStats } from '../../engine/modelStats.js';
import type { EngineRequest } from '../../engine/request.js';
import type { GrammarSource } from '../../grammar/source.js';
import type { AdapterFacts } from '../adapters/names.js';
import type { ServedRequest } from '../models.js';
import type { Tape } from './eventTape.js';
import type { SentError } from './failures.js';

/** Ids of tokens that go from thread to thread: a list of numbers would be copied one by one. */
type SentTokens<R> = R extends { readonly prompt: readonly number[] }
  ? Omit<R, 'prompt'> & { readonly prompt: Int32Array }
  : R extends { readonly tokens: readonly number[] }
    ? Omit<R, 'tokens'> & { readonly tokens: Int32Array }
    : never;
export type SentRequest = SentTokens<ServedRequest>;

/** To the engine. `request` numbers requests, from 1; no number is used twice. */
export type ToEngine =
  | { readonly kind: 'submit'; readonly request: number; readonly asked: SentRequest }
  | { readonly kind: 'cancel'; readonly request: number }
  | { readonly kind: 'cut'; readonly request: number; readonly sample: number; readonly count: number }
  /** Of several requests: the number of each, and how many of its events were dealt with. */
  | { readonly kind: 'acknowledge'; readonly counts: Int32Array }
  | { readonly kind: 'stats'; readonly question: number; readonly models: readonly string[] }
  | { readonly kind: 'progress'; readonly question: number }
  | { readonly kind: 'check'; readonly question: number; readonly model: string; readonly source: GrammarSource }
  | { readonly kind: 'openAdapter'; readonly question: number; readonly path: string }
  | { readonly kind: 'releaseAdapter'; readonly question: number; readonly hash: string };

/** From the engine. */
export type FromEngine =
  | { readonly kind: 'events'; readonly tape: Tape }
  | { readonly kind: 'refused'; readonly request: number; readonly error: SentError }
  | { readonly kind: 'stats'; readonly question: number; readonly stats: readonly ModelStats[] }
  | { readonly kind: 'progress'; readonly question: number; readonly progress: EngineProgress }
  | { readonly kind: 'checked'; readonly question: number }
  | { readonly kind: 'adapter'; readonly question: number; readonly facts: AdapterFacts }
  | { readonly kind: 'released'; readonly question: number }
  | { readonly kind: 'failed'; readonly question: number; readonly error: SentError };

export function sentRequest(request: ServedRequest): SentRequest {
  if (request.kind === 'generate') return { ...request, prompt: Int32Array.from(request.prompt) };
  return request.kind === 'score'
    ? { ...request, tokens: Int32Array.from(request.tokens) }
    : { ...request, tokens: Int32Array.from(request.tokens) };
}

/** The buffer of a request's tokens, which may be handed over. */
export const buffersOf = (asked: SentRequest): ArrayBuffer[] => [
  (asked.kind === 'generate' ? asked.prompt : asked.tokens).buffer as ArrayBuffer,
];

/** The request as the engine takes it, but for what its text must be, and what is expected of it. */
export function engineRequestOf(asked: SentRequest): EngineRequest {
  switch (asked.kind) {
    case 'generate': {
      const { grammar: _, prediction: _p, prompt, ...rest } = asked;
      return { ...rest, prompt: Array.from(prompt) };
    }
    case 'score':
      return { ...asked, tokens: Array.from(asked.tokens) };
    case 'reward':
      return { ...asked, tokens: Array.from(asked.tokens) };
    default:
      return asked satisfies never;
  }
}
