/** `generate`: reads, tokenises and checks prompts, then compiles and loads the model, then continues them. */
import type { GeneratorCounts } from '../../generate/generator.js';
import { DEFAULT_NEW_TOKENS, type GenerateOptions } from '../../generate/options.js';
import { needsLogits, samplingOf } from '../../generate/sampling.js';
import { readPrompts } from '../../generate/promptFile.js';
import type { NamedPrompt } from '../../generate/prompts.js';
import { ChatTemplate, findChatTemplate } from '../../models/chatTemplate.js';
import { createTokenizer } from '../../models/tokenizer.js';
import { Phases } from '../phases.js';
import { stepTo, type LoadRequest, type Ui } from '../requests.js';
import { cacheBytesOf, compileWithCache } from './cacheSize.js';
import { continueAll, type ContinueListener, type PromptResult } from './continueAll.js';
import { Continuer } from './continuation.js';
import { beginLoading } from './loadModel.js';
import { demandOf, tokenisePrompts } from './promptTokens.js';

export interface GenerateRequest extends LoadRequest, GenerateOptions {
  readonly prompts: readonly NamedPrompt[];
  /** A file of more prompts; `-`: the standard input. */
  readonly promptFile?: string;
}

export interface GenerateResult {
  /** In the order of the prompts. */
  readonly results: readonly PromptResult[];
  readonly counts: GeneratorCounts;
  readonly cacheBytes: number;
  /** From the first request to the last token. */
  readonly seconds: number;
}

/** Once its signal is aborted, everything ends with what was generated so far. */
export async function generate(
  request: GenerateRequest,
  ui: Ui,
  listener: ContinueListener = {},
): Promise<GenerateResult> {
  const { promptFile, signal, maxNewTokens = DEFAULT_NEW_TOKENS } = request;
  const phases = new Phases();
  const fromFile = promptFile === undefined ? [] : await readPrompts(promptFile, signal);
  const loading = beginLoading({ ...request, logits: needsLogits(samplingOf(request)) }, ui, phases);
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
    const results = await continueAll(continuer, prompts, request, {
      onPiece: (index, piece) => {
        progress.add();
        listener.onPiece?.(index, piece);
      },
      onResult: (result) => {
        progress.end('tokens' in result ? result.tokens.length : 0);
        listener.onResult?.(result);
      },
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
