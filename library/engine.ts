/** `openEngine`: models that stay open side by side, and requests to them that come and go. See docs/engine.md. */
import { modelDrafts } from '../commands/drafts.js';
import { EngineModels } from '../commands/engineModels.js';
import { scoreSolutions, solutionWriter } from '../commands/reward.js';
import { readInput } from '../commands/rewardInput.js';
import { tokenizeSolutions } from '../commands/rewardTexts.js';
import { chooseVerifier, openVerifier } from '../commands/verifier.js';
import { describe, eachOf, MAX_AT_ONCE } from '../commands/textGenerator.js';
import { DeadlinePassed, Engine as ModelEngine, leftMsOf } from '../engine/engine.js';
import type { RequestHandle } from '../engine/handle.js';
import type { EndReason, Generated, RequestOptions, RowResult } from '../engine/request.js';
import { UsageError } from '../errors.js';
import type { Score } from '../models/heads/head.js';
import { defined } from '../system/defined.js';
import { counted } from '../system/text.js';
import { eventsOf, type GenerateEvent, ModelGenerator, requireCache } from './generate.js';
import { type SearchEvent, searchWith } from './search.js';
import { askedOf, refuseAborted, unlessAborted } from './open.js';
import {
  checkOptions,
  type EngineGenerateOptions,
  type EngineOptions,
  type EngineSearchOptions,
  type ModelOptions,
  present,
  type RewardOptions,
  type RowsOptions,
} from './options.js';

/** `input` is the index of the input. */
export type InputEnd =
  | {
      readonly kind: 'end';
      readonly input: number;
      /** The input as the model saw it. */
      readonly tokens: readonly number[];
      /** `length`: all rows are there. */
      readonly reason: EndReason;
      /** Tokens that had been computed for another request. */
      readonly foundTokens: number;
    }
  /** The input cannot be computed; others go on. */
  | { readonly kind: 'failed'; readonly input: number; readonly error: string };

/** A row of log-probabilities. */
export type RowEvent = ({ readonly kind: 'row'; readonly input: number } & RowResult) | InputEnd;
/** Scores of an input. */
export type RewardEvent =
  | {
      readonly kind: 'scores';
      readonly input: number;
      /** Each a number, or a list where the verifier gives several. */
      readonly scores: readonly Score[];
      /** The input as the model saw it, and the positions of the tokens that the scores stand at. */
      readonly tokens: readonly number[];
      readonly rows: readonly number[];
      /** What the verifier gives beside scores, by its name. */
      readonly beside?: { readonly name: string; readonly values: readonly number[] };
    }
  | { readonly kind: 'failed'; readonly input: number; readonly error: string };

export interface UnloadOptions {
  /** Waits for requests that are in work, instead of refusing. */
  readonly drain?: boolean;
}

/** Models that are open, by name. Requests to one do not change what those to another get. */
export interface Engine {
  readonly models: readonly string[];
  /** Opens one more, while others run. */
  load(name: string, options: ModelOptions): Promise<void>;
  /** Closes one, while others run. Rejects with UsageError where requests to it are in work. */
  unload(name: string, options?: UnloadOptions): Promise<void>;
  /** Continues prompts. Leaving the loop ends the work. */
  generate(options: EngineGenerateOptions): AsyncGenerator<GenerateEvent, void, undefined>;
  /** Log-probabilities of rows of given tokens. */
  score(options: RowsOptions): AsyncGenerator<RowEvent, void, undefined>;
  /** Scores of solutions, of a verifier: what `tilewright reward` prints. */
  reward(options: RewardOptions): AsyncGenerator<RewardEvent, void, undefined>;
  /** Searches for answers with two of the models: what `tilewright search` does. Leaving the loop ends the work. */
  search(options: EngineSearchOptions): AsyncGenerator<SearchEvent, void, undefined>;
  /** Ends all requests with what there is, and gives devices and memory back. */
  close(): Promise<void>;
}

/** Opens models one after another. Rejects with UserError if the user can fix the problem; nothing is open then. */
export async function openEngine(options: EngineOptions): Promise<Engine> {
  checkOptions('openEngine', options);
  const { models, onProgress, signal, queueLimit, memory, memorySplit: split } = present(options);
  const count = Object.keys(models).length;
  if (split !== undefined && split.length !== count)
    throw new UsageError(
      `openEngine: memorySplit has ${counted(split.length, 'share')}, and there are ${counted(count, 'model')}`,
      'give a share for each model, or leave it out: memory then moves by itself',
    );
  const engine = new OpenEngine(new ModelEngine(defined({ queueLimit })), new EngineModels({ memory, split }));
  try {
    for (const [name, model] of Object.entries(models))
      await engine.load(name, { ...model, ...defined({ onProgress, signal }) });
    return engine;
  } catch (error) {
    await engine.close();
    throw error;
  }
}

class OpenEngine implements Engine {
  private readonly engine: ModelEngine;
  private readonly writers = new Map<string, ModelGenerator>();
  /** Names of models that are being opened. */
  private readonly opening = new Set<string>();
  private readonly opener: EngineModels;
  private closed: Promise<void> | undefined;

  constructor(engine: ModelEngine, opener: EngineModels) {
    this.engine = engine;
    this.opener = opener;
  }

  get models(): readonly string[] {
    return this.engine.names;
  }

  async load(name: string, options: ModelOptions): Promise<void> {
    checkOptions('engine.load', options);
    this.requireOpen('load');
    if (this.opening.has(name) || this.models.includes(name))
      throw new UsageError(
        `load: there is a model ${JSON.stringify(name)} already`,
        `unload it before: await engine.unload(${JSON.stringify(name)})`,
      );
    this.opening.add(name);
    try {
      const { signal } = options;
      const { asked, ui } = askedOf(options);
      const stillWanted = (): void => refuseAborted(signal);
      const opening = this.opener.open(asked, ui, {
        stillWanted,
        drafts: modelDrafts(present(options)),
        ...defined({ logits: options.logits }),
      });
      const { loaded, model } = await unlessAborted(signal, opening, (late) => void late.loaded.close());
      try {
        this.requireOpen('load');
        const writer = new ModelGenerator(requireCache(loaded), this.engine, name);
        const close = async (): Promise<void> => {
          this.writers.delete(name);
          await writer.close();
          await loaded.close();
        };
        this.engine.load(name, { ...model, close });
        this.writers.set(name, writer);
      } catch (error) {
        await loaded.close();
        throw error;
      }
    } finally {
      this.opening.delete(name);
    }
  }

  unload(name: string, options: UnloadOptions = {}): Promise<void> {
    return this.engine.unload(name, options);
  }

  generate(options: EngineGenerateOptions): AsyncGenerator<GenerateEvent, void, undefined> {
    return eventsOf(async (tell, stopped) => {
      checkOptions('engine.generate', options);
      const { model, signal: _, ...rest } = options;
      const writer = this.writerOf('generate', model);
      const { signal, ...times } = requestOptions(options, stopped);
      await writer.run({ ...rest, ...times }, signal, tell);
    });
  }

  score(options: RowsOptions): AsyncGenerator<RowEvent, void, undefined> {
    return eventsOf(async (tell, stopped) => {
      checkOptions('engine.score', options);
      const { inputs, model } = options;
      const writer = this.writerOf('score', model);
      const times = requestOptions(options, stopped);
      const prompts = await writer.tokenize(inputs.map(({ prompt }) => prompt));
      await eachOf(prompts, MAX_AT_ONCE, async ({ tokens }, input) => {
        const rows = inputs[input]?.rows ?? tokens.slice(1).map((_, position) => ({ position }));
        const end = ({ reason, foundTokens }: Pick<Generated, 'reason' | 'foundTokens'>): Promise<void> | undefined =>
          tell({ kind: 'end', input, tokens, reason, foundTokens });
        let handle: RequestHandle;
        try {
          handle = this.engine.submit({ kind: 'score', tokens, rows, ...times, ...defined({ model }) });
        } catch (error) {
          if (error instanceof DeadlinePassed) return end({ reason: 'deadline', foundTokens: 0 });
          return tell({ kind: 'failed', input, error: describe(error as Error) });
        }
        for await (const event of handle) {
          if (event.kind === 'end') await end(event.result);
          else if (event.kind === 'failed') await tell({ kind: 'failed', input, error: describe(event.error) });
          else if (event.kind === 'row') await tell({ kind: 'row', input, ...event.row });
        }
      });
    });
  }

  reward(options: RewardOptions): AsyncGenerator<RewardEvent, void, undefined> {
    return eventsOf(async (tell, stopped) => {
      checkOptions('engine.reward', options);
      const { inputs, verifier: asked } = options;
      const name = this.engine.nameOf('reward', options.model);
      const writer = this.writerOf('reward', name);
      const { signal, deadline, priority } = requestOptions(options, stopped);
      const lines = inputs.map((fields, id) => ({
        where: `inputs[${id}]`,
        id,
        input: readInput(fields, `inputs[${id}]`),
      }));
      const { model } = writer;
      const prompts = writer.writer(true);
      const { language } = chooseVerifier(model.checkpoint, asked);
      const verifier = await openVerifier(model.checkpoint, language, prompts.tokenizer);
      const solutions = await tokenizeSolutions(
        lines,
        solutionWriter(model, verifier, prompts),
        model.checkpoint.config,
      );
      const left = new Set(inputs.keys());
      const asking = { model: name, signal: signalAt(deadline, signal), ...defined({ priority }) };
      await scoreSolutions(this.engine, verifier, solutions, asking, (result, input) => {
        left.delete(input);
        if ('error' in result) return tell({ kind: 'failed', input, error: result.error });
        const { scores, tokens, rows, beside } = result;
        return tell({ kind: 'scores', input, scores, tokens, rows, ...defined({ beside }) });
      });
      for (const input of left) await tell({ kind: 'failed', input, error: 'ended before it was scored' });
    });
  }

  search(options: EngineSearchOptions): AsyncGenerator<SearchEvent, void, undefined> {
    return eventsOf(async (tell, stopped) => {
      checkOptions('engine.search', options);
      const named = (name: string) => ({ name, loaded: this.writerOf('search', name).model });
      await searchWith(this.engine, named, present(options), stopped, tell);
    });
  }

  close(): Promise<void> {
    return (this.closed ??= this.engine.close());
  }

  private requireOpen(asked: string): void {
    if (this.closed !== undefined)
      throw new UsageError(`${asked}: the engine is closed`, 'open it again: await openEngine({ … })');
  }

  /** Throws UsageError where there is no such model. */
  private writerOf(asked: string, name: string | undefined): ModelGenerator {
    this.requireOpen(asked);
    return this.writers.get(this.engine.nameOf(asked, name))!;
  }
}

/** One deadline for all requests of a call. Throws UsageError where it has passed. */
function requestOptions(
  { deadline, priority, signal }: Pick<RequestOptions, 'deadline' | 'priority' | 'signal'>,
  stopped: AbortSignal,
): { readonly signal: AbortSignal; readonly deadline?: Date; readonly priority?: number } {
  const left = leftMsOf(deadline);
  return {
    signal: signal === undefined ? stopped : AbortSignal.any([stopped, signal]),
    ...defined({ priority, deadline: left === undefined ? undefined : new Date(Date.now() + left) }),
  };
}

const MAX_TIMER_MS = 2 ** 31 - 1;

/** A signal that is aborted with another, and at a deadline, if one is given. */
const signalAt = (deadline: Date | undefined, signal: AbortSignal): AbortSignal =>
  deadline === undefined
    ? signal
    : AbortSignal.any([
        signal,
        AbortSignal.timeout(Math.min(MAX_TIMER_MS, Math.max(0, deadline.getTime() - Date.now()))),
      ]);
