/** `openEngine`: models that stay open side by side, and requests to them that come and go. See docs/engine.md. */
import type { LoadedModel } from '../commands/loadModel.js';
import { compileWithCache, type Demand } from '../commands/cacheSize.js';
import { engineModelOf } from '../commands/engineModel.js';
import { describe, eachOf, MAX_AT_ONCE } from '../commands/textGenerator.js';
import { DeviceHost } from '../driver/devices/deviceHost.js';
import { DeadlinePassed, Engine as ModelEngine, leftMsOf } from '../engine/engine.js';
import type { RequestHandle } from '../engine/handle.js';
import type {
  ClassRow,
  EndReason,
  EngineRequest,
  Generated,
  RequestEvent,
  RequestOptions,
  RowResult,
} from '../engine/request.js';
import { UsageError } from '../errors.js';
import { defined } from '../system/defined.js';
import { eventsOf, type GenerateEvent, ModelGenerator, requireCache, type Tell } from './generate.js';
import { load } from './open.js';
import {
  checkOptions,
  type EngineGenerateOptions,
  type EngineOptions,
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
/** A row of class logits. */
export type RewardEvent = ({ readonly kind: 'row'; readonly input: number } & ClassRow) | InputEnd;

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
  /** Class logits of rows of given tokens, of a model that has a head of classes. */
  reward(options: RewardOptions): AsyncGenerator<RewardEvent, void, undefined>;
  /** Ends all requests with what there is, and gives devices and memory back. */
  close(): Promise<void>;
}

/** Opens models one after another. Rejects with UserError if the user can fix the problem; nothing is open then. */
export async function openEngine(options: EngineOptions): Promise<Engine> {
  checkOptions('openEngine', options);
  const { models, onProgress, signal, queueLimit } = present(options);
  const engine = new OpenEngine(new ModelEngine(defined({ queueLimit })));
  try {
    for (const [name, model] of Object.entries(models))
      await engine.load(name, { ...model, ...defined({ onProgress, signal }) });
    return engine;
  } catch (error) {
    await engine.close();
    throw error;
  }
}

/** A cache for requests that nobody knows yet: the model's whole context, or what memory holds of it. */
const demandOf = ({ config }: LoadedModel['checkpoint']): Demand => ({
  prompt: 1,
  where: 'a prompt',
  least: 2,
  longest: 2,
  total: config.maxPositions,
});

class OpenEngine implements Engine {
  private readonly engine: ModelEngine;
  /** A fault in native code ends a process of models, which is replaced, and not the program. */
  private readonly host = new DeviceHost({ isApart: true });
  private readonly writers = new Map<string, ModelGenerator>();
  /** Names of models that are being opened. */
  private readonly opening = new Set<string>();
  private closed: Promise<void> | undefined;

  constructor(engine: ModelEngine) {
    this.engine = engine;
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
      const { loaded } = await load(
        { logits: true, ...present(options) },
        async (loading, request, ui) => {
          await compileWithCache(loading, request, demandOf(loading.checkpoint), ui);
        },
        this.host,
      );
      try {
        this.requireOpen('load');
        const writer = new ModelGenerator(requireCache(loaded), this.engine, name);
        const close = async (): Promise<void> => {
          this.writers.delete(name);
          await writer.close();
          await loaded.close();
        };
        this.engine.load(name, { ...engineModelOf(loaded), close });
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
      const { inputs } = options;
      await this.ask<RowEvent>('score', options, stopped, tell, (tokens, input) => {
        const rows = inputs[input]?.rows ?? tokens.slice(1).map((_, position) => ({ position }));
        return { kind: 'score', tokens, rows };
      });
    });
  }

  reward(options: RewardOptions): AsyncGenerator<RewardEvent, void, undefined> {
    return eventsOf(async (tell, stopped) => {
      checkOptions('engine.reward', options);
      const { inputs } = options;
      await this.ask<RewardEvent>('reward', options, stopped, tell, (tokens, input) => {
        return { kind: 'reward', tokens, positions: inputs[input]?.positions ?? [tokens.length - 1] };
      });
    });
  }

  /** Asks for rows of all inputs, and tells of them as they come. */
  private async ask<E extends RowEvent | RewardEvent>(
    asked: string,
    options: RowsOptions | RewardOptions,
    stopped: AbortSignal,
    tell: Tell<E | InputEnd>,
    requestOf: (tokens: readonly number[], input: number) => EngineRequest,
  ): Promise<void> {
    const writer = this.writerOf(asked, options.model);
    const times = requestOptions(options, stopped);
    const prompts = await writer.tokenize(options.inputs.map(({ prompt }) => prompt));
    await eachOf(prompts, MAX_AT_ONCE, async ({ tokens }, input) => {
      const end = ({ reason, foundTokens }: Pick<Generated, 'reason' | 'foundTokens'>): Promise<void> | undefined =>
        tell({ kind: 'end', input, tokens, reason, foundTokens });
      let handle: RequestHandle;
      try {
        handle = this.engine.submit({ ...requestOf(tokens, input), ...times, ...defined({ model: options.model }) });
      } catch (error) {
        if (error instanceof DeadlinePassed) return end({ reason: 'deadline', foundTokens: 0 });
        return tell({ kind: 'failed', input, error: describe(error as Error) });
      }
      for await (const event of handle) {
        if (event.kind === 'end') await end(event.result);
        else if (event.kind === 'failed') await tell({ kind: 'failed', input, error: describe(event.error) });
        else await tell({ kind: 'row', input, ...rowOf(event) } as E);
      }
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

function rowOf(event: RequestEvent): RowResult | ClassRow {
  if (event.kind === 'row' || event.kind === 'classes') return event.row;
  throw new Error(`A request for rows has no event ${event.kind}.`);
}

/** One deadline for all requests of a call. Throws UsageError where it has passed. */
function requestOptions(
  { deadline, priority, signal }: Pick<RequestOptions, 'deadline' | 'priority' | 'signal'>,
  stopped: AbortSignal,
): Pick<RequestOptions, 'deadline' | 'priority'> & { readonly signal: AbortSignal } {
  const left = leftMsOf(deadline);
  return {
    signal: signal === undefined ? stopped : AbortSignal.any([stopped, signal]),
    ...defined({ priority, deadline: left === undefined ? undefined : new Date(Date.now() + left) }),
  };
}
