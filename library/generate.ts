/** `model.generate`: texts as they are made, as an async iterator. */
import { cacheTokensOf } from '../ir/stepping.js';
import { readAdapter } from '../commands/adapterReader.js';
import type { LoadedModel } from '../commands/loadModel.js';
import { checkBiases, type PromptWriter, type TokenizedPrompt, tokenizePrompts } from '../commands/promptTokens.js';
import { guideOf, type Structure } from '../commands/structure.js';
import { openTemplate } from '../commands/templates.js';
import { type Continuation, continueAll, type ContinueListener, TextGenerator } from '../commands/textGenerator.js';
import { UsageError } from '../errors.js';
import type { AdapterRef } from '../engine/device.js';
import type { Engine } from '../engine/engine.js';
import type { TokenGuide } from '../engine/guide.js';
import type { EndReason, RequestOptions } from '../engine/request.js';
import type { ChatTemplate } from '../models/chat/template.js';
import { readGenerationConfig } from '../models/generationConfig.js';
import { createTokenizer, type Tokenizer } from '../models/tokenizer/tokenizer.js';
import { defined } from '../system/defined.js';
import { type GenerateOptions, present } from './options.js';

/** `prompt` is the index of the prompt, `sample` that of its continuation, of several the best first if ranked. */
export type GenerateEvent =
  | {
      readonly kind: 'token';
      readonly prompt: number;
      readonly sample: number;
      readonly token: number;
      /** Natural logarithm of the token's probability after all before it. */
      readonly logProb: number;
      /** What it adds to the text: nothing where it may be the start of a stop string. */
      readonly text: string;
    }
  | {
      readonly kind: 'end';
      readonly prompt: number;
      readonly sample: number;
      /** The end of the text, which no token had: all of it with `beams` and `bestOf`, which have no tokens before. */
      readonly text: string;
      readonly tokens: readonly number[];
      readonly logProbs: readonly number[];
      /** The most likely tokens at each place, with `topLogProbs`. */
      readonly top?: Continuation['top'];
      /** What continuations are ranked by, with `beams` and `bestOf`. */
      readonly score?: number;
      readonly reason: EndReason;
      readonly promptTokens: number;
      /** Tokens of the prompt that had been computed for another one. */
      readonly foundTokens: number;
    }
  /** The prompt cannot be computed; others go on. */
  | { readonly kind: 'failed'; readonly prompt: number; readonly sample: number; readonly error: string };

/** When the requests of a call end, and which go first. */
export type Timing = Pick<RequestOptions, 'deadline' | 'priority'>;

/** Throws UsageError where the model has no memory for keys and values. */
export function requireCache(model: LoadedModel): LoadedModel {
  if (cacheTokensOf(model.model) !== undefined) return model;
  throw new UsageError(
    'generate: the model has no memory for keys and values',
    'open it with room for some: openModel({ …, cacheTokens: 8192 })',
  );
}

/** Generates with one loaded model. Prompts of several calls share pages. */
export class ModelGenerator {
  readonly model: LoadedModel;
  private readonly tokenizer: Tokenizer;
  private readonly continuer: TextGenerator;
  private template: ChatTemplate | undefined;

  /** `name`: the model's in the engine; may be left out where that has one model. */
  constructor(model: LoadedModel, engine: Engine, name?: string) {
    this.model = model;
    this.tokenizer = createTokenizer(model.tokenizer.spec);
    this.continuer = new TextGenerator(
      engine,
      this.tokenizer,
      readGenerationConfig(model.checkpoint, model.tokenizer).eosTokenIds,
      name,
    );
  }

  /** What writes prompts and conversations; the template is opened where it is needed. */
  writer(needsTemplate: boolean): PromptWriter {
    if (needsTemplate) this.template ??= openTemplate(this.model.checkpoint.path);
    return { tokenizer: this.tokenizer, template: this.template };
  }

  /** Rejects with UserError that names the first prompt that cannot be taken. */
  async tokenize(prompts: GenerateOptions['prompts']): Promise<readonly TokenizedPrompt[]> {
    const named = prompts.map((prompt, i) => ({
      where: `prompts[${i}]`,
      prompt: typeof prompt === 'string' ? { prompt } : prompt,
    }));
    const writer = this.writer(named.some(({ prompt }) => 'messages' in prompt));
    return tokenizePrompts(named, writer, this.model.checkpoint.config);
  }

  private guideOf(structure: Structure): TokenGuide {
    const { checkpoint, tokenizer } = this.model;
    const { eosTokenIds } = readGenerationConfig(checkpoint, tokenizer);
    const { vocabSize } = checkpoint.config;
    return guideOf(structure, { tokenizer: tokenizer.spec, vocabSize, eosTokenIds: [...eosTokenIds] });
  }

  /** Tells of everything that happens to the prompts. Rejects with UserError for a prompt that cannot be taken. */
  async run(asked: GenerateOptions & Timing, signal: AbortSignal, tell: Tell<GenerateEvent>): Promise<void> {
    const { prompts, structure, adapter, ...options } = present(asked);
    checkBiases(options.logitBias, this.model.checkpoint.config);
    const tokenized = await this.tokenize(prompts);
    const isRanked = options.beams !== undefined || options.bestOf !== undefined;
    const guide = structure === undefined ? undefined : this.guideOf(structure);
    const byAdapter = adapter === undefined ? undefined : await this.adapterAt(adapter);
    const all = { ...options, signal, ...defined({ guide, byAdapter }) };
    await continueAll(this.continuer, tokenized, all, listenerOf(tell, isRanked));
  }

  /** Read again for each call: the folder may hold another one by now. */
  private async adapterAt(folder: string): Promise<AdapterRef> {
    const { hash, path, rank } = await readAdapter(this.model.checkpoint.path, folder);
    return { hash, path, rank };
  }

  async close(): Promise<void> {
    await this.template?.close();
  }
}

const listenerOf = (tell: Tell<GenerateEvent>, isRanked: boolean): ContinueListener => ({
  // Which texts are kept is known at the end.
  ...(isRanked ? {} : { onPiece: (prompt, piece, sample) => tell({ kind: 'token', prompt, sample, ...piece }) }),
  onResults: (prompt, results) => {
    for (const result of results) {
      const { sample } = result;
      if ('error' in result) void tell({ kind: 'failed', prompt, sample, error: result.error });
      else {
        const { text, rest, tokens, logProbs, reason, promptTokens, foundTokens, top, score } = result;
        void tell({
          kind: 'end',
          prompt,
          sample,
          text: isRanked ? text : rest,
          tokens,
          logProbs,
          reason,
          promptTokens,
          foundTokens,
          ...defined({ top, score }),
        });
      }
    }
  },
});

/** Events that wait for a reader before the work waits for it. */
const MAX_HELD = 1024;

/** Takes an event. The work is to wait for what it returns, if anything: the reader is behind. */
export type Tell<T> = (event: T) => Promise<void> | undefined;

/** What `work` tells, in order. A slow reader slows the work down, and a reader that leaves stops it. */
export async function* eventsOf<T>(
  work: (tell: Tell<T>, signal: AbortSignal) => Promise<void>,
): AsyncGenerator<T, void, undefined> {
  const controller = new AbortController();
  const held: T[] = [];
  let wake = (): void => undefined;
  let letGo = (): void => undefined;
  let full: Promise<void> | undefined;
  let isDone = false;
  const tell: Tell<T> = (event) => {
    held.push(event);
    wake();
    if (held.length < MAX_HELD || controller.signal.aborted) return undefined;
    return (full ??= new Promise((resolve) => (letGo = resolve)));
  };
  const take = (): readonly T[] => {
    full = undefined;
    letGo();
    return held.splice(0);
  };
  const ended = work(tell, controller.signal).finally(() => {
    isDone = true;
    wake();
  });
  // Awaited below; until then a failure is not unhandled.
  ended.catch(() => undefined);
  try {
    for (;;) {
      yield* take();
      if (isDone && held.length === 0) break;
      if (held.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    }
    await ended;
  } finally {
    controller.abort();
    take();
    await ended.catch(() => undefined);
  }
}

/**
 * What uses a model's KV cache: texts together, whose scheduler knows what the memory holds, or
 * scoring alone, which overwrites all of it.
 */
export class CacheUse {
  private readonly texts = new Set<Promise<unknown>>();
  private scoring: Promise<unknown> = Promise.resolve();

  /** Begins when nothing scores. */
  share<T>(work: () => Promise<T>): Promise<T> {
    const job = this.scoring.then(work);
    const settled: Promise<unknown> = job.catch(() => undefined).finally(() => this.texts.delete(settled));
    this.texts.add(settled);
    return job;
  }

  /** Begins when all that came before it is done. What comes later waits. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    const job = Promise.all([this.scoring, ...this.texts]).then(work);
    this.scoring = job.catch(() => undefined);
    return job;
  }
}
