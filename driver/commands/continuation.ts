/** A loaded model as a writer: prompts as tokens in, text out, a piece with every token. */
import { STEP } from '../../ir/function.js';
import { stepSize } from '../../ir/stepping.js';
import { Generator, type EndReason, type Stepper } from '../../generate/generator.js';
import { DEFAULT_NEW_TOKENS, type GenerateOptions } from '../../generate/options.js';
import { samplingOf } from '../../generate/sampling.js';
import { TextStream } from '../../generate/textStream.js';
import type { Tokenizer } from '../../models/tokenizer.js';
import type { CallResult } from '../../runtime/call.js';
import { cacheTokensOf } from '../functions.js';
import type { LoadedModel } from './loadModel.js';

/** A generated token, and the text that it adds: none where it may be the start of a stop string. */
export interface Piece {
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
  /** Seconds from the request to each token. */
  readonly seconds: readonly number[];
}

export interface ContinueOptions extends GenerateOptions {
  readonly onPiece?: (piece: Piece) => void;
  /** Ends the continuation with what there is. */
  readonly signal?: AbortSignal | undefined;
}

/** A model whose function `step` keeps keys and values for `cacheTokens`. */
export function stepperOf(
  { executor, checkpoint }: Pick<LoadedModel, 'executor' | 'checkpoint'>,
  cacheTokens: number,
  hasLogits = false,
): Stepper {
  const capacity = executor.capacity[STEP];
  if (capacity === undefined) throw new Error('The model has no function that generates.');
  return {
    limits: stepSize(capacity),
    cacheTokens,
    maxLength: checkpoint.config.maxPositions,
    hasLogits,
    step: async (inputs) => stepOutputs(await executor.call(STEP, { ...inputs })),
  };
}

function stepOutputs({ outputs: { logProb, isArgmax, drawn, drawnLogProb, logits } }: CallResult) {
  if (
    logProb instanceof Float32Array &&
    isArgmax instanceof Int32Array &&
    drawn instanceof Int32Array &&
    drawnLogProb instanceof Float32Array
  )
    return { logProb, isArgmax, drawn, drawnLogProb, ...(logits instanceof Float32Array ? { logits } : {}) };
  throw new Error('The function step does not give the scores of its rows.');
}

const returnsLogits = ({ model: { plan } }: Pick<LoadedModel, 'model'>): boolean =>
  plan.functions.some(({ interface: { outputs } }) => outputs.some(({ name }) => name === 'logits'));

export class Continuer {
  readonly generator: Generator;
  private readonly tokenizer: Tokenizer;
  private readonly eos: ReadonlySet<number>;

  constructor(model: LoadedModel, tokenizer: Tokenizer) {
    this.generator = new Generator(stepperOf(model, cacheTokensOf(model.model) ?? 0, returnsLogits(model)));
    this.tokenizer = tokenizer;
    this.eos = new Set(model.checkpoint.config.eosTokenIds);
  }

  /** Rejects with what `Generator.generate` rejects with. */
  async continue(prompt: readonly number[], options: ContinueOptions): Promise<Continuation> {
    const { maxNewTokens = DEFAULT_NEW_TOKENS, stop = [], ignoreEos = false, onPiece, signal } = options;
    const started = performance.now();
    const stopTokens = ignoreEos ? new Set<number>() : this.eos;
    const stream = new TextStream((ids) => this.tokenizer.decode(ids), stop);
    const seconds: number[] = [];
    const { tokens, reason, foundTokens } = await this.generator.generate({
      prompt,
      maxNewTokens,
      stopTokens,
      sampling: samplingOf(options),
      signal,
      onToken: async ({ token, logProb }) => {
        seconds.push((performance.now() - started) / 1000);
        const { added, isStopped } = stopTokens.has(token) ? { added: '', isStopped: false } : await stream.push(token);
        onPiece?.({ token, logProb, text: added });
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
    };
  }
}
