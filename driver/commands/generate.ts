/** `generate`: prompts are read, tokenised and checked, then the model is compiled and loaded, then it continues them. */
import { GenerateError, type GeneratorCounts } from '../../generate/generator.js';
import { DEFAULT_NEW_TOKENS, type GenerateOptions } from '../../generate/options.js';
import { readPrompts } from '../../generate/promptFile.js';
import type { NamedPrompt } from '../../generate/prompts.js';
import { ChatTemplate, findChatTemplate } from '../../models/chatTemplate.js';
import { createTokenizer } from '../../models/tokenizer.js';
import { Phases } from '../phases.js';
import { stepTo, type LoadRequest, type Ui } from '../requests.js';
import { cacheBytesOf, compileWithCache } from './cacheSize.js';
import { Continuer, type Continuation, type Piece } from './continuation.js';
import { beginLoading } from './loadModel.js';
import { demandOf, tokenisePrompts, type TokenisedPrompt } from './promptTokens.js';

export interface GenerateRequest extends LoadRequest, GenerateOptions {
  readonly prompts: readonly NamedPrompt[];
  /** A file of more prompts; `-`: the standard input. */
  readonly promptFile?: string;
}

interface OfPrompt {
  /** Counted from 0: those of the request, then those of the file. */
  readonly index: number;
  readonly where: string;
  readonly promptTokens: number;
}

export type GeneratedText = OfPrompt & Continuation;
/** The model has no answer to this prompt: a value was not finite. */
export type FailedPrompt = OfPrompt & { readonly error: string };
export type PromptResult = GeneratedText | FailedPrompt;

export interface GenerateResult {
  /** In the order of the prompts. */
  readonly results: readonly PromptResult[];
  readonly counts: GeneratorCounts;
  readonly cacheBytes: number;
  /** From the first request to the last token. */
  readonly seconds: number;
}

/** Told of everything as it is made. */
export interface GenerateListener {
  onPiece?(index: number, piece: Piece): void;
  /** A prompt is done; prompts need not be done in order. */
  onResult?(result: PromptResult): void;
}

/** Prompts that the scheduler has at a time; more than run together, so that it always finds one that fits. */
const MOST_AT_ONCE = 512;

/** Once its signal is aborted, everything ends with what was generated so far. */
export async function generate(
  request: GenerateRequest,
  ui: Ui,
  listener: GenerateListener = {},
): Promise<GenerateResult> {
  const { promptFile, signal, maxNewTokens = DEFAULT_NEW_TOKENS } = request;
  const phases = new Phases();
  const fromFile = promptFile === undefined ? [] : await readPrompts(promptFile, signal);
  const loading = beginLoading(request, ui, phases);
  const { config } = loading.checkpoint;
  const tokenizer = createTokenizer(loading.tokenizer.spec);
  const named = [...request.prompts, ...fromFile];
  const found = named.some(({ prompt }) => 'messages' in prompt) ? findChatTemplate(loading.checkpoint.dir) : undefined;
  const template = found === undefined ? undefined : new ChatTemplate(found);
  const prompts = await tokenisePrompts(named, { tokenizer, template }, config).finally(() => template?.close());
  await compileWithCache(loading, request, demandOf(prompts, maxNewTokens, config), ui);
  const loaded = await loading.finish();
  try {
    ui.phase('generate', prompts.length === 1 ? undefined : `${prompts.length} prompts`);
    const continuer = new Continuer(loaded, tokenizer);
    const progress = new GenerateProgress(prompts.length, maxNewTokens, ui);
    const started = performance.now();
    const results = await eachOf(prompts, MOST_AT_ONCE, async (prompt, index) => {
      const result = await continueOne(continuer, prompt, index, request, (piece) => {
        progress.add();
        listener.onPiece?.(index, piece);
      });
      progress.end('tokens' in result ? result.tokens.length : 0);
      listener.onResult?.(result);
      return result;
    });
    return {
      results,
      counts: continuer.generator.counts,
      cacheBytes: cacheBytesOf(loaded.model),
      seconds: (performance.now() - started) / 1000,
    };
  } finally {
    await loaded.close();
  }
}

async function continueOne(
  continuer: Continuer,
  { where, tokens }: TokenisedPrompt,
  index: number,
  options: GenerateRequest,
  onPiece: (piece: Piece) => void,
): Promise<PromptResult> {
  const of = { index, where, promptTokens: tokens.length };
  try {
    return { ...of, ...(await continuer.continue(tokens, { ...options, onPiece })) };
  } catch (error) {
    // Others go on where the fault is this prompt's.
    if (!(error instanceof Error) || !(error instanceof GenerateError || isNonFinite(error))) throw error;
    return { ...of, error: isNonFinite(error) ? nonFinite(error) : error.message };
  }
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

/** Tokens of all that can still come. A prompt that ends early lowers it. */
class GenerateProgress {
  private done = 0;
  private total: number;
  private readonly most: number;
  private readonly ui: Ui;

  constructor(prompts: number, maxNewTokens: number, ui: Ui) {
    this.most = maxNewTokens;
    this.total = prompts * maxNewTokens;
    this.ui = ui;
  }

  add(): void {
    this.done++;
    this.tell();
  }

  end(tokens: number): void {
    this.total -= this.most - tokens;
    this.tell();
  }

  private tell(): void {
    stepTo(this.ui, { done: this.done, total: this.total, unit: 'tokens' });
  }
}
