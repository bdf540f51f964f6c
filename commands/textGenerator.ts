/** A model of an engine as a writer: prompts as tokens in, text out, a piece with every token. */
import { type Beam, searchBeams } from '../engine/beams.js';
import type { AdapterRef } from '../engine/device.js';
import { DeadlinePassed, type Engine } from '../engine/engine.js';
import type { TokenGuide } from '../engine/guide.js';
import type { GeneratorCounts, ModelStats } from '../engine/modelStats.js';
import type { RequestHandle } from '../engine/handle.js';
import { DEFAULT_NEW_TOKENS } from '../engine/limits.js';
import { type GenerateOptions, samplingOf } from '../engine/options.js';
import {
  type EndReason,
  type Generated,
  type GeneratedToken,
  GenerateError,
  type RequestOptions,
  type TokenLogProb,
} from '../engine/request.js';
import { TextStream } from '../engine/textStream.js';
import type { Detokenizer } from '../models/tokenizer/detokenizer.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import { defined } from '../system/defined.js';
import type { TokenizedPrompt } from './promptTokens.js';

/** A generated token, and the text that it adds: none where it may be the start of a stop string. */
export interface TextPiece {
  readonly token: number;
  /** Natural logarithm of its probability after the tokens before it. */
  readonly logProb: number;
  readonly text: string;
}

/** What was generated after a prompt. */
export interface Continuation {
  readonly text: string;
  /** Its end, which no piece had: what was held back until it was known that nothing follows. */
  readonly rest: string;
  readonly tokens: readonly number[];
  /** Natural logarithm of each token's probability after those before it. */
  readonly logProbs: readonly number[];
  readonly reason: EndReason;
  /** Tokens of the prompt whose keys and values were there already. */
  readonly foundTokens: number;
  /** Drafts that steps computed behind it, and those of them that are its tokens; absent: there were none. */
  readonly drafts?: Generated['drafts'];
  /** Seconds from the request to each token; empty for a search. */
  readonly seconds: readonly number[];
  /** The most likely tokens at each place, where they were asked for. */
  readonly top?: readonly (readonly TokenLogProb[])[];
  /** What the continuations of a prompt are ranked by: a path's log-probability, or the mean of a drawn text's. */
  readonly score?: number;
}

export interface ContinueOptions extends GenerateOptions, Pick<RequestOptions, 'signal' | 'deadline' | 'priority'> {
  /** The adapter that it is computed with, of those that the model has slots for. */
  readonly byAdapter?: AdapterRef;
  /** Told of every token that is drawn; a search has none before it ends. `sample`: of which continuation it is. */
  readonly onPiece?: (piece: TextPiece, sample: number) => Promise<void> | undefined | void;
  /** No token that ends a text comes before there are so many; a stop text does. Default 0. */
  readonly minBeforeEos?: number;
  /** Says which tokens may come. Not for a search. */
  readonly guide?: TokenGuide;
}

/** A continuation, or why there is none. */
type Outcome = Continuation | Error;

const isText = (outcome: Outcome): outcome is Continuation => !(outcome instanceof Error);

const meanOf = ({ logProbs }: Pick<Continuation, 'logProbs'>): number =>
  logProbs.length === 0 ? 0 : logProbs.reduce((sum, each) => sum + each, 0) / logProbs.length;

/** A text as it grows: its reader's side of a continuation. */
class GrowingText {
  readonly seconds: number[] = [];
  outcome: Outcome | undefined;
  private readonly stream: TextStream;
  private readonly options: ContinueOptions;
  private readonly eos: ReadonlySet<number>;
  private isStopped = false;

  constructor(detokenizer: Detokenizer, options: ContinueOptions, eos: ReadonlySet<number>) {
    this.stream = new TextStream(detokenizer.stream(), options.stop);
    this.options = options;
    this.eos = eos;
  }

  /** Takes the next token. Returns whether a stop string ends the text with it; later ones count no more. */
  async take({ token, logProb }: GeneratedToken, sample: number, seconds: number): Promise<boolean> {
    if (this.isStopped) return false;
    const { minNewTokens = 0, onPiece } = this.options;
    this.seconds.push(seconds);
    const { added, isStopped } = this.eos.has(token)
      ? { added: '', isStopped: false }
      : this.stream.push(token, this.seconds.length >= minNewTokens);
    await onPiece?.({ token, logProb, text: added }, sample);
    this.isStopped = isStopped;
    return isStopped;
  }

  /** The end of a text that a stop string has cut is the one with that reason; another may have come before it. */
  end({ tokens, reason, foundTokens, drafts }: Generated): void {
    if (this.isStopped && reason !== 'stop') return;
    const rest = reason === 'stop' ? '' : this.stream.end();
    this.outcome = {
      text: this.stream.text,
      rest,
      tokens: tokens.map(({ token }) => token),
      logProbs: tokens.map(({ logProb }) => logProb),
      reason,
      foundTokens,
      ...defined({ drafts }),
      seconds: this.seconds,
      ...((this.options.topLogProbs ?? 0) > 0 ? { top: tokens.map(({ top = [] }) => top) } : {}),
    };
  }
}

const outcomeOf = ({ outcome }: GrowingText): Outcome => outcome ?? new Error('A text has no end.');

const NOTHING_IN_TIME: Generated = { tokens: [], promptScores: [], reason: 'deadline', foundTokens: 0 };

export class TextGenerator {
  private readonly engine: Engine;
  private readonly model: string | undefined;
  private readonly detokenizer: Detokenizer;
  private readonly eos: ReadonlySet<number>;

  /** `eos`: tokens that end a text. `model`: its name in the engine; may be left out where that has one model. */
  constructor(engine: Engine, tokenizer: Tokenizer, eos: ReadonlySet<number>, model?: string) {
    this.engine = engine;
    this.model = model;
    this.detokenizer = tokenizer.detokenizer();
    this.eos = eos;
  }

  get counts(): GeneratorCounts {
    return this.engine.countsOf(this.model);
  }

  get stats(): ModelStats {
    return this.engine.statsOf(this.model);
  }

  /**
   * As many as were asked for, one unless more; best first where they are ranked. Rejects with what `onPiece` throws,
   * which ends these texts and no others.
   */
  async continue(prompt: readonly number[], options: ContinueOptions): Promise<readonly Outcome[]> {
    const { n = 1, bestOf, beams } = options;
    if (beams !== undefined) return this.search(prompt, beams, options).catch((error: unknown) => [asError(error)]);
    const drawn = await this.draw(prompt, bestOf ?? n, options);
    if (bestOf === undefined) return drawn;
    const texts = drawn.filter(isText).map((text) => ({ ...text, score: meanOf(text) }));
    return texts.length === 0 ? drawn.slice(0, 1) : texts.sort((a, b) => b.score - a.score).slice(0, n);
  }

  private async draw(prompt: readonly number[], count: number, options: ContinueOptions): Promise<readonly Outcome[]> {
    const { maxNewTokens = DEFAULT_NEW_TOKENS, minNewTokens = 0, minBeforeEos = 0 } = options;
    const started = performance.now();
    const stopTokens = this.stopTokens(options);
    const texts = Array.from({ length: count }, () => new GrowingText(this.detokenizer, options, stopTokens));
    let handle: RequestHandle;
    try {
      handle = this.engine.submit({
        kind: 'generate',
        prompt,
        n: count,
        maxNewTokens,
        minNewTokens: Math.max(minNewTokens, minBeforeEos),
        stopTokens,
        sampling: samplingOf(options),
        ...defined({ guide: options.guide }),
        ...this.requestOptions(options),
      });
    } catch (error) {
      if (!(error instanceof DeadlinePassed)) return texts.map(() => asError(error));
      for (const text of texts) text.end(NOTHING_IN_TIME);
      return texts.map(outcomeOf);
    }
    try {
      for (let events = await handle.read(); events.length > 0; events = await handle.read()) {
        const seconds = (performance.now() - started) / 1000;
        for (const event of events) {
          const { sample } = event;
          const text = texts[sample]!;
          if (event.kind === 'failed') text.outcome = event.error;
          else if (event.kind === 'end') text.end(event.result);
          else if (event.kind === 'token' && (await text.take(event.token, sample, seconds)))
            handle.cut(sample, text.seconds.length, 'stop');
        }
      }
    } finally {
      handle.cancel();
    }
    return texts.map(outcomeOf);
  }

  private requestOptions({ signal, deadline, priority, byAdapter: adapter }: ContinueOptions): RequestOptions {
    return defined({ model: this.model, signal, deadline, priority, adapter });
  }

  private async search(
    prompt: readonly number[],
    beams: number,
    options: ContinueOptions,
  ): Promise<readonly Continuation[]> {
    const { n = 1, maxNewTokens = DEFAULT_NEW_TOKENS } = options;
    const stopTokens = this.stopTokens(options);
    const asked = { prompt, maxNewTokens, stopTokens, beams, ...this.requestOptions(options) };
    const found = await searchBeams(this.engine, asked);
    return found.slice(0, n).map(({ tokens, logProbs, score, reason }: Beam): Continuation => {
      const text = this.textOf(reason === 'eos' ? tokens.slice(0, -1) : tokens);
      return { text, rest: text, tokens, logProbs, reason, foundTokens: 0, seconds: [], score };
    });
  }

  /** The text of tokens as a stream of them would give it. */
  private textOf(tokens: readonly number[]): string {
    const stream = new TextStream(this.detokenizer.stream());
    for (const token of tokens) stream.push(token);
    stream.end();
    return stream.text;
  }

  private stopTokens({ ignoreEos = false }: ContinueOptions): ReadonlySet<number> {
    return ignoreEos ? new Set<number>() : this.eos;
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

interface OfPrompt {
  /** Counted from 0: those of the request, then those of the file. */
  readonly index: number;
  /** Which of the prompt's continuations, from 0. */
  readonly sample: number;
  readonly where: string;
  /** Name of the adapter that the prompt chose. */
  readonly adapter?: string;
  readonly promptTokens: number;
}

export type GeneratedText = OfPrompt & Continuation;
/** The model has no answer to this prompt: a value was not finite. */
export type FailedPrompt = OfPrompt & { readonly error: string };
export type PromptResult = GeneratedText | FailedPrompt;

/** Told of everything as it is made. */
export interface ContinueListener {
  /** What follows of this prompt waits for what it returns; other prompts do not. */
  onPiece?(index: number, piece: TextPiece, sample: number): Promise<void> | undefined | void;
  /** All continuations of a prompt are done, best first where they are ranked; prompts need not be done in order. */
  onResults?(index: number, results: readonly PromptResult[]): void;
}

/** Prompts that the scheduler has at a time; more than run together, so that it always finds one that fits. */
export const MAX_AT_ONCE = 512;

/**
 * Results in the order of the prompts. Once the signal is aborted, all end with what was generated so far. `adapters`:
 * what the names of prompts' adapters stand for.
 */
export async function continueAll(
  continuer: TextGenerator,
  prompts: readonly TokenizedPrompt[],
  options: Omit<ContinueOptions, 'onPiece'>,
  { onPiece, onResults }: ContinueListener,
  adapters: ReadonlyMap<string, AdapterRef> = new Map(),
): Promise<readonly PromptResult[]> {
  const most = Math.ceil(MAX_AT_ONCE / continuationsOf(options));
  const all = await eachOf(prompts, most, async ({ where, tokens, adapter }, index) => {
    const outcomes = await continuer.continue(tokens, {
      ...options,
      ...defined({ byAdapter: adapter === undefined ? undefined : adapters.get(adapter) }),
      onPiece: (piece, sample) => onPiece?.(index, piece, sample),
    });
    const results = outcomes.map((outcome, sample): PromptResult => {
      const of = { index, sample, where, promptTokens: tokens.length, ...defined({ adapter }) };
      return outcome instanceof Error ? { ...of, error: describe(outcome) } : { ...of, ...outcome };
    });
    onResults?.(index, results);
    return results;
  });
  return all.flat();
}

/** How many continuations of a prompt are computed. */
export const continuationsOf = ({ n = 1, bestOf, beams }: GenerateOptions): number => beams ?? bestOf ?? n;

/** Others go on where the fault is this prompt's; throws what is not. */
export function describe(error: Error): string {
  if (isNonFinite(error)) return nonFinite(error);
  if (error instanceof GenerateError) return error.message;
  throw error;
}

/** Errors lose their class between processes. */
const isNonFinite = (error: Error): error is Error & { readonly where?: string } => error.name === 'NonFiniteError';

const nonFinite = ({ where }: { readonly where?: string }): string =>
  `a value is NaN or infinite${where === undefined ? '' : ` in ${where}`}`;

/** Results of all items, of which `most` are in work at a time, taken in order. */
export async function eachOf<T, R>(
  items: readonly T[],
  most: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<readonly R[]> {
  const results: R[] = [];
  const entries = items.entries();
  const lane = async (): Promise<void> => {
    for (const [index, item] of entries) results[index] = await work(item, index);
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, lane));
  return results;
}
