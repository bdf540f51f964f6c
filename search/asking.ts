/**
 * How a search asks an engine, in its own thread or over a port. The engine's handle is one such request; a server's
 * client has an adapter.
 */
import type { Engine } from '../engine/engine.js';
import type { ContinuationRequest, RequestEvent, RewardRequest, ScoreRequest } from '../engine/request.js';

export interface AskedRequest extends AsyncIterable<RequestEvent> {
  /** Ends it with what there is. */
  cancel(): void;
}

/** Of requests of a search, lower ones first: a score decides which paths go on, and what it waits for is short. */
export const PRIORITY = { score: -1, step: 0, speculative: 1 } as const;

/** Throws, or its reader gets, what `Engine.submit` throws. */
export type Ask = (request: ContinuationRequest | ScoreRequest | RewardRequest) => AskedRequest;

/** Asks an engine of this thread. */
export const askOf =
  (engine: Pick<Engine, 'submit'>): Ask =>
  (request) =>
    engine.submit(request);

/** Text in and out of one of the models. */
export interface SearchTexts {
  /** Tokens of a text to which none are added. */
  encodeWritten(text: string): Promise<readonly number[]>;
  /** Tokens of a conversation by the model's template. Rejects with UserError where there is none. */
  writeTurns(turns: readonly ChatTurn[], addGenerationPrompt: boolean): Promise<readonly number[]>;
  readonly hasTemplate: boolean;
}

export interface ChatTurn {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}
