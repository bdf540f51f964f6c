/** `generate`: reads, tokenises and checks prompts, then compiles and loads the model, then continues them. */
import type { GeneratorCounts } from '../../generate/generator.js';
import { DEFAULT_NEW_TOKENS, wantsLogits, type GenerateOptions } from '../../generate/options.js';
import { readPrompts } from '../../generate/promptFile.js';
import type { NamedPrompt } from '../../generate/prompts.js';
import { readGenerationConfig, type GenerationConfig } from '../../models/generationConfig.js';
import { createTokenizer } from '../../models/tokenizer.js';
import type { Dict } from '../../python/value.js';
import { Phases } from '../phases.js';
import type { LoadRequest, Ui } from '../requests.js';
import { cacheBytesOf, compileWithCache } from './cacheSize.js';
import { mayFeed } from '../targets/index.js';
import { continuationsOf, continueAll, type ContinueListener, type PromptResult } from './continueAll.js';
import { Continuer } from './continuation.js';
import { beginLoading } from './loadModel.js';
import { checkBiases, demandOf, tokenisePrompts } from './promptTokens.js';
import { openTemplate } from './templates.js';
import { TextProgress } from './textProgress.js';

export interface GenerateRequest extends LoadRequest, GenerateOptions {
  readonly prompts: readonly NamedPrompt[];
  /** A file of more prompts; `-`: the standard input. */
  readonly promptFile?: string;
  /** Variables of the chat template, for conversations that do not set them. */
  readonly templateVariables?: Dict;
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
  const asked = { ...request, logits: wantsLogits(request), feeds: mayFeed(request) };
  const loading = beginLoading(asked, ui, phases);
  const { config } = loading.checkpoint;
  checkBiases(request.logitBias, config);
  const own = readGenerationConfig(loading.checkpoint, loading.tokenizer);
  noteSuggestion(own, request, ui);
  const tokenizer = createTokenizer(loading.tokenizer.spec);
  const named = [...request.prompts, ...fromFile];
  const hasChats = named.some(({ prompt }) => 'messages' in prompt);
  const template = hasChats ? openTemplate(loading.checkpoint.path) : undefined;
  const writer = { tokenizer, template, variables: request.templateVariables };
  const prompts = await tokenisePrompts(named, writer, config).finally(() => template?.close());
  const several = continuationsOf(request);
  await compileWithCache(loading, asked, demandOf(prompts, maxNewTokens, config, several), ui);
  const loaded = await loading.finish();
  try {
    ui.phase('generate', prompts.length === 1 ? undefined : `${prompts.length} prompts`);
    const continuer = new Continuer(loaded, tokenizer, own.eosTokenIds);
    const progress = new TextProgress(
      prompts.map(() => several * maxNewTokens),
      ui,
    );
    const started = performance.now();
    const results = await continueAll(continuer, prompts, request, {
      onPiece: (index, piece, sample) => {
        progress.add(index);
        return listener.onPiece?.(index, piece, sample);
      },
      onResults: (index, results) => {
        progress.end(index);
        listener.onResults?.(index, results);
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

const SUGGESTED = ['temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'beams'] as const;

/** Says what the makers of the model suggest, to who chose nothing. */
export function noteSuggestion({ suggested }: GenerationConfig, options: GenerateOptions, ui: Pick<Ui, 'note'>): void {
  if (suggested !== undefined && SUGGESTED.every((field) => options[field] === undefined))
    ui.note(`generation_config.json suggests ${suggested}; nothing of it is applied unless it is given`);
}
