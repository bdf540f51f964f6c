/** `generate`: reads, tokenizes and checks prompts, then compiles and loads the model, then continues them. */
import { dirname } from 'node:path';
import { checkpointPath } from '../driver/artifact/load.js';
import { readManifest } from '../driver/artifact/manifest.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { isArtifact } from '../driver/names.js';
import { Phases } from '../driver/phases.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { LoadRequest, NamedAdapter, Ui } from '../driver/requests.js';
import { FirstAnswer } from '../driver/startUp.js';
import { mayFeed } from '../driver/targets/index.js';
import { UserError } from '../errors.js';
import type { GeneratorCounts } from '../engine/modelStats.js';
import { DEFAULT_NEW_TOKENS } from '../engine/limits.js';
import { type GenerateOptions, wantsLogits } from '../engine/options.js';
import { type Message, type NamedPrompt, readPrompts } from '../engine/prompts.js';
import { STEP } from '../ir/function.js';
import { stepExtents } from '../ir/stepping.js';
import { type GenerationConfig, readGenerationConfig } from '../models/generationConfig.js';
import { requireModelAt } from '../models/model/refusals.js';
import { createTokenizer, openTokenizer, type Tokenizer } from '../models/tokenizer/tokenizer.js';
import type { Dict } from '../python/value.js';
import type { FirstCall } from '../runtime/stageRunner.js';
import { defined } from '../system/defined.js';
import { isFolder } from '../system/read.js';
import { cacheBytesOf, compileWithCache, type Demand, fitsLeastCache } from './cacheSize.js';
import { type DraftFigures, draftFigures } from './draftFigures.js';
import { draftModelOf, type DraftOptions } from './draftOptions.js';
import { modelDrafts } from './drafts.js';
import { engineOf } from './engineModel.js';
import { beginLoading, EarlyModel, type LoadedModel, type ModelLoading } from './loadModel.js';
import { planAdapters, readChosen } from './promptAdapters.js';
import { checkBiases, demandOf, likelyDemand, tokenizePrompts } from './promptTokens.js';
import { requireVocabulary } from './requireVocabulary.js';
import { guideOf, type Structure } from './structure.js';
import { openTemplate } from './templates.js';
import {
  type Continuation,
  continuationsOf,
  continueAll,
  type ContinueListener,
  type PromptResult,
  TextGenerator,
  type TextPiece,
} from './textGenerator.js';
import { TextProgress } from './textProgress.js';

export interface GenerateRequest extends Omit<LoadRequest, 'adapter' | 'adapters'>, GenerateOptions, DraftOptions {
  /** Adapters that prompts may name. The whole model has a single one that no prompt names. */
  readonly named?: readonly NamedAdapter[];
  readonly prompts: readonly NamedPrompt[];
  /** A file of more prompts; `-`: the standard input. */
  readonly promptFile?: string;
  /** Variables of the chat template, for conversations that do not set them. */
  readonly templateVariables?: Dict;
  /** What texts have to be. */
  readonly structure?: Structure;
}

export interface GenerateResult {
  /** In the order of the prompts. */
  readonly results: readonly PromptResult[];
  readonly counts: GeneratorCounts;
  readonly drafts: DraftFigures;
  readonly cacheBytes: number;
  /** From the first request to the last token. */
  readonly seconds: number;
}

/** Once its signal is aborted, everything ends with what was generated so far. */
export async function generate(
  asked: WithTargetChoice<GenerateRequest>,
  ui: Ui,
  listener: ContinueListener = {},
): Promise<GenerateResult> {
  requireModelAt(asked.model);
  const { named: adapters = [], ...rest } = asked;
  const settled = await settleTarget({ ...rest, ...draftModelOf(rest) }, ui);
  const logits = wantsLogits(settled) || settled.structure !== undefined;
  const { promptFile, signal, structure, maxNewTokens = DEFAULT_NEW_TOKENS } = settled;
  const phases = new Phases();
  phases.begin('questions');
  const fromFile = promptFile === undefined ? [] : await readPrompts(promptFile, signal);
  const named = [...settled.prompts, ...fromFile];
  const plan = planAdapters(adapters, named);
  phases.begin('open');
  const chosen =
    plan.kind === 'byPrompt' ? await readChosen(pathOf(settled), plan.used, (line) => ui.warn(line)) : undefined;
  const request = {
    ...settled,
    ...(plan.kind === 'whole' ? { adapter: plan.adapter } : {}),
    ...defined({ adapters: chosen?.slots }),
    logits,
    feeds: mayFeed(settled),
  };
  const loading = beginLoading(request, ui, phases);
  const { config } = loading.checkpoint;
  requireVocabulary(loading.checkpoint, 'generate');
  checkBiases(request.logitBias, config);
  const own = readGenerationConfig(loading.checkpoint, loading.tokenizer);
  noteSuggestion(own, request, ui);
  const several = continuationsOf(request);
  const texts = several * named.length;
  const likely = likelyDemand(named, maxNewTokens, config, several);
  phases.end();
  const early =
    likely !== undefined && request.cacheTokens === undefined && fitsLeastCache(likely)
      ? await beginEarly(loading, request, likely, texts, ui)
      : undefined;
  const tokenizing = phases.during('tokenize', async () => {
    const tokenizer = createTokenizer(loading.tokenizer.spec);
    const hasChats = named.some(({ prompt }) => 'messages' in prompt);
    const template = hasChats ? openTemplate(loading.checkpoint.path) : undefined;
    const writer = { tokenizer, template, variables: request.templateVariables };
    const prompts = await tokenizePrompts(named, writer, config).finally(() => template?.close());
    const facts = { tokenizer: loading.tokenizer.spec, vocabSize: config.vocabSize, eosTokenIds: [...own.eosTokenIds] };
    return { tokenizer, prompts, ...(structure === undefined ? {} : { guide: guideOf(structure, facts) }) };
  });
  let loaded: LoadedModel | undefined;
  try {
    const demand = demandOf((await tokenizing).prompts, maxNewTokens, config, several);
    if (fitsLeastCache(demand)) loaded = await early?.take();
    if (loaded === undefined) {
      await early?.close();
      await compileWithCache(loading, request, demand, ui);
      loaded = await loading.finish({ first: firstSteps(demand, texts, request) });
    }
  } finally {
    await early?.close();
  }
  const { tokenizer, prompts, guide } = await tokenizing;
  try {
    ui.phase('generate', prompts.length === 1 ? undefined : `${prompts.length} prompts`);
    const continuer = new TextGenerator(engineOf(loaded, modelDrafts(request)), tokenizer, own.eosTokenIds);
    const first = new FirstAnswer(phases, ui);
    const progress = new TextProgress(
      prompts.map(() => several * maxNewTokens),
      ui,
      () => first.came(loaded.executor),
    );
    first.begin(request.beams === undefined ? 'first token' : 'first text');
    const started = performance.now();
    const results = await continueAll(
      continuer,
      prompts,
      { ...request, ...defined({ guide }) },
      {
        onPiece: (index, piece, sample) => {
          progress.add(index);
          return listener.onPiece?.(index, piece, sample);
        },
        onResults: (index, results) => {
          progress.end(index);
          listener.onResults?.(index, results);
        },
      },
      chosen?.refs,
    );
    return {
      results,
      counts: continuer.counts,
      drafts: draftFigures(continuer.stats),
      cacheBytes: cacheBytesOf(loaded.model),
      seconds: (performance.now() - started) / 1000,
    };
  } finally {
    await loaded.close();
  }
}

type Opening = LoadRequest & DraftOptions;

/**
 * Begins to load the model with the smallest cache, before prompts are tokenized: opening a large tokenizer takes as
 * long as streaming weights. Undefined where something is in the way, which is said once prompts are known.
 */
async function beginEarly(
  loading: ModelLoading,
  asked: Opening,
  likely: Demand,
  texts: number,
  ui: Ui,
): Promise<EarlyModel | undefined> {
  try {
    await compileWithCache(loading, asked, likely, ui);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return undefined;
  }
  return EarlyModel.begin(loading, { first: firstSteps(likely, texts, asked) });
}

/** The step that reads the prompts, and one that goes on with them. */
function firstSteps({ prompt }: Demand, texts: number, { logits }: Pick<LoadRequest, 'logits'>): readonly FirstCall[] {
  const filtered = logits === true ? { filtered: texts, entries: 1 } : {};
  const step = (tokens: number, run: number): FirstCall => ({
    function: STEP,
    extents: stepExtents({ tokens, rows: texts, keys: prompt, ...filtered }),
    run,
  });
  return [step(Math.max(prompt, texts), prompt), step(texts, 1)];
}

const SUGGESTED = ['temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'beams'] as const;

/** Says what the makers of the model suggest, to who chose nothing. */
export function noteSuggestion({ suggested }: GenerationConfig, options: GenerateOptions, ui: Pick<Ui, 'note'>): void {
  if (suggested !== undefined && SUGGESTED.every((field) => options[field] === undefined))
    ui.note(`generation_config.json suggests ${suggested}; nothing of it is applied unless it is given`);
}

export interface ConverseRequest extends LoadRequest, GenerateOptions, DraftOptions {
  /** Variables of the chat template. */
  readonly templateVariables?: Dict;
}

export interface Turn {
  readonly onPiece: (piece: TextPiece) => void;
  /** Ends the answer; what there is of it belongs to the conversation. */
  readonly signal: AbortSignal;
}

export interface Conversation {
  /** Whether turns are written by the checkpoint's chat template; if not, each text is continued by itself. */
  readonly isChat: boolean;
  /** Rejects with UserError or GenerateError where the text cannot be taken; it is then no part of the conversation. */
  say(text: string, turn: Turn): Promise<Continuation>;
  close(): Promise<void>;
}

/** Checkpoint or artifact → a model that is spoken to. */
export async function converse(asked: WithTargetChoice<ConverseRequest>, ui: Ui): Promise<Conversation> {
  requireModelAt(asked.model);
  const settled = await settleTarget({ ...asked, ...draftModelOf(asked) }, ui);
  const request = { ...settled, logits: wantsLogits(settled), feeds: mayFeed(settled) };
  const opening = beginLoading(request, ui, new Phases());
  const { config, path } = opening.checkpoint;
  requireVocabulary(opening.checkpoint, 'generate');
  checkBiases(request.logitBias, config);
  const own = readGenerationConfig(opening.checkpoint, opening.tokenizer);
  noteSuggestion(own, request, ui);
  await compileWithCache(
    opening,
    request,
    { prompt: 1, where: 'a prompt', least: 2, longest: 2, total: config.maxPositions },
    ui,
  );
  const early = await EarlyModel.begin(opening);
  let tokenizer: Tokenizer;
  try {
    // Opened while weights stream.
    tokenizer = createTokenizer(opening.tokenizer.spec);
  } catch (error) {
    await early.close();
    throw error;
  }
  const loaded = (await early.take())!;
  const template = openTemplate(path);
  const continuer = new TextGenerator(engineOf(loaded, modelDrafts(request)), tokenizer, own.eosTokenIds);
  let messages: readonly Message[] = [];
  return {
    isChat: template !== undefined,
    async say(text, turn) {
      const said = [...messages, { role: 'user', content: text }];
      const prompt = template === undefined ? { prompt: text } : { messages: said };
      const [tokenized] = await tokenizePrompts(
        [{ where: 'this turn', prompt }],
        { tokenizer, template, variables: request.templateVariables },
        config,
      );
      const [answer] = await continuer.continue(tokenized!.tokens, { ...request, ...turn });
      if (answer === undefined || answer instanceof Error) throw answer ?? new Error('The model gave no answer.');
      messages = [...said, { role: 'assistant', content: answer.text }];
      return answer;
    },
    async close() {
      await template?.close();
      await loaded.close();
    },
  };
}

export type PrintRequest = Pick<
  GenerateRequest,
  'model' | 'checkpoint' | 'prompts' | 'promptFile' | 'templateVariables' | 'signal'
>;

/** A prompt as text, special tokens that a chat template writes included, and as tokens. */
export interface PrintedPrompt {
  readonly where: string;
  readonly text: string;
  readonly tokens: readonly number[];
}

/** Prompts that are written at a time. */
const BATCH = 256;
/** What the model takes is not asked: there may be no more of it than a tokenizer. */
const NO_LIMITS = { vocabSize: Infinity, maxPositions: Infinity };

/** Tells of each prompt in order. Rejects with UserError that names the first prompt that cannot be written. */
export async function printPrompts(request: PrintRequest, tell: (prompt: PrintedPrompt) => void): Promise<void> {
  const { promptFile, signal, templateVariables: variables } = request;
  const named = [...request.prompts, ...(promptFile === undefined ? [] : await readPrompts(promptFile, signal))];
  const path = pathOf(request);
  requireModelAt(path);
  const tokenizer = openTokenizer(path);
  const template = named.some(({ prompt }) => 'messages' in prompt) ? openTemplate(path) : undefined;
  try {
    for (let from = 0; from < named.length; from += BATCH) {
      signal?.throwIfAborted();
      const batch = named.slice(from, from + BATCH);
      const tokenized = await tokenizePrompts(batch, { tokenizer, template, variables }, NO_LIMITS);
      for (const [i, { where, tokens, written }] of tokenized.entries()) {
        const prompt = batch[i]?.prompt ?? { prompt: '' };
        const text = written ?? ('prompt' in prompt ? prompt.prompt : tokenizer.detokenizer().decode(tokens));
        tell({ where, text, tokens });
      }
    }
  } finally {
    await template?.close();
  }
}

/** The folder of the checkpoint, or the GGUF file. */
function pathOf({ model, checkpoint }: Pick<PrintRequest, 'model' | 'checkpoint'>): string {
  if (isArtifact(model)) return checkpointPath(model, readManifest(model), checkpoint);
  return model.endsWith('.json') && !isFolder(model) ? dirname(model) : model;
}
