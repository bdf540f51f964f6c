/** A loaded model as a writer: prompts as tokens in, text out, a piece with every token. */
import { ProcessEnded } from '../driver/devices/protocol.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { cacheTokensOf } from '../driver/functions.js';
import { type Beam, searchBeams } from '../engine/beams.js';
import { Fleet } from '../engine/generator.js';
import { DEFAULT_NEW_TOKENS } from '../engine/limits.js';
import { type GenerateOptions, samplingOf } from '../engine/options.js';
import { type EndReason, GenerateError, type TokenLogProb } from '../engine/request.js';
import { StateLost, type StepOutputs, type Stepper } from '../engine/scheduler.js';
import { TextStream } from '../engine/textStream.js';
import { STEP } from '../ir/function.js';
import { LAST_TOKEN_ROWS, nothingFed, stepSize, takesLastTokens } from '../ir/stepping.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { Tokenizer } from '../models/tokenizer/tokenizer.js';
import type { CallResult } from '../runtime/call.js';
import { defined } from '../system/defined.js';
import type { LoadedModel } from './loadModel.js';
import type { TokenizedPrompt } from './promptTokens.js';
import { stepBudget } from './stepBudget.js';

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
  /** Seconds from the request to each token; empty for a search. */
  readonly seconds: readonly number[];
  /** The most likely tokens at each place, where they were asked for. */
  readonly top?: readonly (readonly TokenLogProb[])[];
  /** What the continuations of a prompt are ranked by: a path's log-probability, or the mean of a drawn text's. */
  readonly score?: number;
}

export interface ContinueOptions extends GenerateOptions {
  /** Told of every token that is drawn; a search has none before it ends. `sample`: of which continuation it is. */
  readonly onPiece?: (piece: TextPiece, sample: number) => Promise<void> | undefined | void;
  /** No token that ends a text comes before there are so many; a stop text does. Default 0. */
  readonly minBeforeEos?: number;
  /** Ends the continuation with what there is. */
  readonly signal?: AbortSignal | undefined;
}

export interface StepperOptions {
  /** Whether it can take tokens that the call before it has drawn. */
  readonly feeds?: boolean;
  /** Most tokens of a call in which texts wait for their next token. */
  readonly besideTokens?: number;
}

/** A model whose function `step` keeps keys and values for `cacheTokens`, on one replica. */
export function stepperOf(
  { executor, checkpoint }: { readonly executor: DeviceExecutor; readonly checkpoint: Pick<Checkpoint, 'config'> },
  cacheTokens: number,
  { feeds = false, besideTokens = Infinity }: StepperOptions = {},
): Stepper {
  const capacity = executor.capacity[STEP];
  if (capacity === undefined) throw new Error('The model has no function that generates.');
  const { devices: stages = 1 } = executor;
  // The last stage of a pipeline draws what the first one needs: its calls overlap with those of other sequences.
  const overlap = stages > 1 ? { groups: stages } : feeds ? { keptRows: LAST_TOKEN_ROWS } : {};
  const unfed = feeds && stages > 1;
  const size = stepSize(capacity);
  // The pages that the scheduler knows of are in the memory of this epoch, until it is told that they are lost.
  let { epoch } = executor;
  return {
    limits: { ...size, ...overlap, besideTokens },
    cacheTokens,
    maxLength: checkpoint.config.maxPositions,
    vocab: size.filtered === undefined ? undefined : checkpoint.config.vocabSize,
    step: async (inputs) => {
      try {
        const given = unfed ? nothingFed(inputs.tokens.length, inputs.row.length, inputs.topK?.length) : {};
        return stepOutputs(await executor.call(STEP, { ...inputs, ...given }, epoch));
      } catch (error) {
        throw error instanceof ProcessEnded ? new StateLost(error.message, error.wasAsked) : error;
      }
    },
    ...(executor.opened === undefined
      ? {}
      : {
          isLost: () => executor.epoch !== epoch,
          recovered: async () => {
            await executor.opened!();
            epoch = executor.epoch;
          },
        }),
  };
}

/** Replicas of the model that write side by side; those that are still loading join when they are ready. */
function fleetOf({ executor, checkpoint, model }: LoadedModel): Fleet {
  const of = (replica: DeviceExecutor): Stepper =>
    stepperOf({ executor: replica, checkpoint }, cacheTokensOf(model) ?? 0, {
      besideTokens: stepBudget(model.plan),
      feeds: takesLastTokens(model.plan),
    });
  const { members } = executor;
  if (members === undefined) return new Fleet([of(executor)]);
  const isLoaded = ({ capacity }: DeviceExecutor): boolean => capacity[STEP] !== undefined;
  const fleet = new Fleet(members.filter(isLoaded).map(of));
  for (const member of members)
    if (!isLoaded(member))
      void member.opened().then(
        () => fleet.add(of(member)),
        // The pool says who is left out.
        () => undefined,
      );
  return fleet;
}

function stepOutputs({ outputs }: CallResult): StepOutputs {
  const f32 = (name: string): Float32Array => {
    const found = outputs[name];
    if (found instanceof Float32Array) return found;
    throw new Error(`The function step gives no numbers ${name}.`);
  };
  const i32 = (name: string): Int32Array => {
    const found = outputs[name];
    if (found instanceof Int32Array) return found;
    throw new Error(`The function step gives no whole numbers ${name}.`);
  };
  return {
    logProb: f32('logProb'),
    isArgmax: i32('isArgmax'),
    nextToken: i32('nextToken'),
    nextTokenLogProb: f32('nextTokenLogProb'),
    ...defined({
      filtered: outputs['filteredToken'] && {
        token: i32('filteredToken'),
        logProb: f32('filteredTokenLogProb'),
        topTokens: i32('topTokens'),
        topLogProbs: f32('topLogProbs'),
      },
    }),
  };
}

/** A continuation, or why there is none. */
type Outcome = Continuation | Error;

const isText = (outcome: Outcome): outcome is Continuation => !(outcome instanceof Error);

const meanOf = ({ logProbs }: Pick<Continuation, 'logProbs'>): number =>
  logProbs.length === 0 ? 0 : logProbs.reduce((sum, each) => sum + each, 0) / logProbs.length;

export class TextGenerator {
  readonly generator: Fleet;
  private readonly tokenizer: Tokenizer;
  private readonly eos: ReadonlySet<number>;

  /** `eos`: tokens that end a text. */
  constructor(model: LoadedModel, tokenizer: Tokenizer, eos: ReadonlySet<number>) {
    this.generator = fleetOf(model);
    this.tokenizer = tokenizer;
    this.eos = eos;
  }

  /** As many as were asked for, one unless more; best first where they are ranked. */
  async continue(prompt: readonly number[], options: ContinueOptions): Promise<readonly Outcome[]> {
    const { n = 1, bestOf, beams } = options;
    if (beams !== undefined) return this.search(prompt, beams, options).catch((error: unknown) => [asError(error)]);
    const drawn = await Promise.all(
      Array.from({ length: bestOf ?? n }, (_, sample) => this.draw(prompt, sample, options).catch(asError)),
    );
    if (bestOf === undefined) return drawn;
    const texts = drawn.filter(isText).map((text) => ({ ...text, score: meanOf(text) }));
    return texts.length === 0 ? drawn.slice(0, 1) : texts.sort((a, b) => b.score - a.score).slice(0, n);
  }

  /** Rejects with what `Generator.generate` rejects with. */
  private async draw(prompt: readonly number[], sample: number, options: ContinueOptions): Promise<Continuation> {
    const { maxNewTokens = DEFAULT_NEW_TOKENS, minNewTokens = 0, minBeforeEos = 0, stop = [] } = options;
    const { onPiece, signal } = options;
    const started = performance.now();
    const stopTokens = this.stopTokens(options);
    const stream = new TextStream((ids) => this.tokenizer.decode(ids), stop);
    const seconds: number[] = [];
    const { tokens, reason, foundTokens } = await this.generator.generate({
      prompt,
      sample,
      maxNewTokens,
      minNewTokens: Math.max(minNewTokens, minBeforeEos),
      stopTokens,
      sampling: samplingOf(options),
      signal,
      onToken: async ({ token, logProb }) => {
        seconds.push((performance.now() - started) / 1000);
        const mayStop = seconds.length >= minNewTokens;
        const { added, isStopped } = stopTokens.has(token)
          ? { added: '', isStopped: false }
          : await stream.push(token, mayStop);
        await onPiece?.({ token, logProb, text: added }, sample);
        return isStopped ? 'stop' : undefined;
      },
    });
    const rest = reason === 'stop' ? '' : await stream.end();
    return {
      text: stream.text,
      rest,
      tokens: tokens.map(({ token }) => token),
      logProbs: tokens.map(({ logProb }) => logProb),
      reason,
      foundTokens,
      seconds,
      ...((options.topLogProbs ?? 0) > 0 ? { top: tokens.map(({ top = [] }) => top) } : {}),
    };
  }

  private async search(
    prompt: readonly number[],
    beams: number,
    options: ContinueOptions,
  ): Promise<readonly Continuation[]> {
    const { n = 1, maxNewTokens = DEFAULT_NEW_TOKENS, signal } = options;
    const stopTokens = this.stopTokens(options);
    const found = await searchBeams(this.generator, { prompt, maxNewTokens, stopTokens, signal, beams });
    return Promise.all(
      found.slice(0, n).map(async ({ tokens, logProbs, score, reason }: Beam): Promise<Continuation> => {
        const shown = reason === 'eos' ? tokens.slice(0, -1) : tokens;
        const text = await this.textOf(shown);
        return { text, rest: text, tokens, logProbs, reason, foundTokens: 0, seconds: [], score };
      }),
    );
  }

  /** The text of tokens as a stream of them would give it. */
  private async textOf(tokens: readonly number[]): Promise<string> {
    const stream = new TextStream((ids) => this.tokenizer.decode(ids));
    for (const token of tokens) await stream.push(token);
    await stream.end();
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
  readonly promptTokens: number;
}

export type GeneratedText = OfPrompt & Continuation;
/** The model has no answer to this prompt: a value was not finite. */
export type FailedPrompt = OfPrompt & { readonly error: string };
export type PromptResult = GeneratedText | FailedPrompt;

/** Told of everything as it is made. */
export interface ContinueListener {
  /** No further step begins before what it returns has settled. */
  onPiece?(index: number, piece: TextPiece, sample: number): Promise<void> | undefined | void;
  /** All continuations of a prompt are done, best first where they are ranked; prompts need not be done in order. */
  onResults?(index: number, results: readonly PromptResult[]): void;
}

/** Prompts that the scheduler has at a time; more than run together, so that it always finds one that fits. */
const MAX_AT_ONCE = 512;

/** Results in the order of the prompts. Once the signal is aborted, all end with what was generated so far. */
export async function continueAll(
  continuer: TextGenerator,
  prompts: readonly TokenizedPrompt[],
  options: Omit<ContinueOptions, 'onPiece'>,
  { onPiece, onResults }: ContinueListener,
): Promise<readonly PromptResult[]> {
  const most = Math.ceil(MAX_AT_ONCE / continuationsOf(options));
  const all = await eachOf(prompts, most, async ({ where, tokens }, index) => {
    const outcomes = await continuer.continue(tokens, {
      ...options,
      onPiece: (piece, sample) => onPiece?.(index, piece, sample),
    });
    const results = outcomes.map((outcome, sample): PromptResult => {
      const of = { index, sample, where, promptTokens: tokens.length };
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
function describe(error: Error): string {
  if (isNonFinite(error)) return nonFinite(error);
  if (error instanceof GenerateError) return error.message;
  throw error;
}

/** Errors lose their class between processes. */
const isNonFinite = (error: Error): error is Error & { readonly where?: string } => error.name === 'NonFiniteError';

const nonFinite = ({ where }: { readonly where?: string }): string =>
  `a value is NaN or infinite${where === undefined ? '' : ` in ${where}`}`;

/** Results of all items, of which `most` are in work at a time, taken in order. */
async function eachOf<T, R>(
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
