/** Continues prompts: a client of the function `step`. */
import { STEP } from '../../ir/function.js';
import { stepSize } from '../../ir/stepping.js';
import { UsageError } from '../../errors.js';
import { Generator, type EndReason, type GeneratorCounts, type Stepper } from '../../generate/generator.js';
import { TextStream } from '../../generate/textStream.js';
import { createTokenizer, type Tokenizer } from '../../models/tokenizer.js';
import type { CallResult } from '../../runtime/call.js';
import { Phases } from '../phases.js';
import type { LoadRequest, Ui } from '../requests.js';
import { beginLoading, type LoadedModel } from './loadModel.js';

/** What is continued: a text, which gets the tokenizer's own special tokens, or tokens as they are. */
export type Prompt = { readonly text: string } | { readonly tokens: readonly number[] };

export interface GenerateOptions {
  readonly maxNewTokens: number;
  /** Texts that end what is generated; they are not part of it. */
  readonly stop?: readonly string[];
  /** Goes on after the model's end-of-text token. */
  readonly ignoreEos?: boolean;
}

export interface GenerateRequest extends LoadRequest, GenerateOptions {
  readonly prompts: readonly Prompt[];
}

export interface GeneratedText {
  /** Index of the prompt. */
  readonly index: number;
  readonly promptTokens: readonly number[];
  readonly text: string;
  readonly tokens: readonly number[];
  /** Natural logarithm of each token's probability after those before it. */
  readonly logProbs: readonly number[];
  readonly reason: EndReason;
  /** Seconds from the request to the first token. */
  readonly firstTokenSeconds: number;
  /** Tokens of the prompt whose keys and values were there already. */
  readonly foundTokens: number;
}

export interface GenerateResult {
  readonly generated: readonly GeneratedText[];
  readonly counts: GeneratorCounts;
  readonly seconds: number;
}

/** Told of every piece of text as it is made, by prompt. */
export type OnText = (index: number, added: string) => void;

/** A model whose function `step` keeps keys and values for `cacheTokens`. */
export function stepperOf(
  { executor, checkpoint }: Pick<LoadedModel, 'executor' | 'checkpoint'>,
  cacheTokens: number,
): Stepper {
  const capacity = executor.capacity[STEP];
  if (capacity === undefined) throw new Error('The model has no function that generates.');
  return {
    limits: stepSize(capacity),
    cacheTokens,
    maxLength: checkpoint.config.maxPositions,
    step: async (inputs) => stepOutputs(await executor.call(STEP, { ...inputs })),
  };
}

function stepOutputs({ outputs: { logProb, isArgmax, best, bestLogProb } }: CallResult) {
  if (
    logProb instanceof Float32Array &&
    isArgmax instanceof Int32Array &&
    best instanceof Int32Array &&
    bestLogProb instanceof Float32Array
  )
    return { logProb, isArgmax, best, bestLogProb };
  throw new Error('The function step does not give the scores of its rows.');
}

export async function generate(request: GenerateRequest, ui: Ui, onText?: OnText): Promise<GenerateResult> {
  const { cacheTokens } = request;
  if (cacheTokens === undefined) throw new Error('generate needs memory for keys and values.');
  for (const stop of request.stop ?? [])
    if (stop === '') throw new UsageError('a stop string is empty', 'for example: --stop "\\n\\n"');
  const phases = new Phases();
  const loaded = await beginLoading(request, ui, phases).finish();
  try {
    const tokenizer = createTokenizer(loaded.tokenizer.spec);
    ui.phase('generate');
    const started = performance.now();
    const generator = new Generator(stepperOf(loaded, cacheTokens));
    const eos = request.ignoreEos === true ? [] : loaded.checkpoint.config.eosTokenIds;
    const generated = await Promise.all(
      request.prompts.map((prompt, index) =>
        continuePrompt({ generator, tokenizer, stopTokens: new Set(eos), request, onText }, prompt, index),
      ),
    );
    return { generated, counts: generator.counts, seconds: (performance.now() - started) / 1000 };
  } finally {
    await loaded.close();
  }
}

interface Session {
  readonly generator: Generator;
  readonly tokenizer: Tokenizer;
  readonly stopTokens: ReadonlySet<number>;
  readonly request: GenerateOptions;
  readonly onText: OnText | undefined;
}

async function continuePrompt(
  { generator, tokenizer, stopTokens, request, onText }: Session,
  prompt: Prompt,
  index: number,
): Promise<GeneratedText> {
  const started = performance.now();
  let firstTokenSeconds = 0;
  const promptTokens = 'tokens' in prompt ? prompt.tokens : await tokenizer.encode(prompt.text);
  const stream = new TextStream((ids) => tokenizer.decode(ids), request.stop ?? []);
  const { tokens, reason, foundTokens } = await generator.generate({
    prompt: promptTokens,
    maxNewTokens: request.maxNewTokens,
    stopTokens,
    onToken: async ({ token }) => {
      firstTokenSeconds ||= (performance.now() - started) / 1000;
      if (stopTokens.has(token)) return undefined;
      const { added, isStopped } = await stream.push(token);
      if (added !== '') onText?.(index, added);
      return isStopped ? 'stop' : undefined;
    },
  });
  if (reason !== 'stop') {
    const rest = await stream.end();
    if (rest !== '') onText?.(index, rest);
  }
  return {
    index,
    promptTokens,
    text: stream.text,
    tokens: tokens.map(({ token }) => token),
    logProbs: tokens.map(({ logProb }) => logProb),
    reason,
    firstTokenSeconds,
    foundTokens,
  };
}
