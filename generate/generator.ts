/**
 * Continues sequences of tokens, many at a time. Each call of the function `step` takes what the scheduler gives it:
 * pieces of prompts beside single tokens of sequences that generate. What a sequence gets does not depend on the
 * others.
 */
import { PAGE_TOKENS, PagePool } from './pages.js';
import { Scheduler, type Step, type StepInputs, type StepLimits } from './scheduler.js';
import type { TokenLogProb } from './choose.js';
import { needsLogits, resolveSampling, type Sampling, type SamplingOptions } from './sampling.js';
import { Sequence } from './sequence.js';

/** What a call of `step` returns, a number for each row. */
export interface StepOutputs {
  readonly logProb: Float32Array;
  readonly isArgmax: Int32Array;
  /** A token drawn from the row, and its log-probability at temperature 1. */
  readonly drawn: Int32Array;
  readonly drawnLogProb: Float32Array;
  /** The logits of the rows, one row behind another, if the model returns them. */
  readonly logits?: Float32Array;
}

/** A model on its devices. */
export interface Stepper {
  readonly limits: StepLimits;
  /** Tokens whose keys and values there is room for. */
  readonly cacheTokens: number;
  /** Longest context of the model, in tokens. */
  readonly maxLength: number;
  /** `step` returns logits. */
  readonly hasLogits?: boolean;
  /** Rejects with an error that has `rows` where only some rows could not be computed. */
  step(inputs: StepInputs): Promise<StepOutputs>;
}

export interface GenerateRequest {
  readonly prompt: readonly number[];
  /** Most tokens to generate; 0: the prompt is only scored. */
  readonly maxNewTokens: number;
  /** Tokens that end the sequence. The one that did is part of what was generated. */
  readonly stopTokens?: ReadonlySet<number>;
  /** A stop token does not come before there are this many tokens. */
  readonly minNewTokens?: number;
  /** The first token of the prompt whose log-probability is wanted, from 1. */
  readonly scoreFrom?: number;
  /** How tokens are chosen. Default: the most likely ones. */
  readonly sampling?: SamplingOptions;
  /** Which of several continuations of the prompt this is, from 0: each has a seed of its own. */
  readonly sample?: number;
  /** Called with every generated token; what it returns ends the sequence, unless undefined. */
  readonly onToken?: (token: GeneratedToken) => Promise<EndReason | undefined>;
  /** Ends the sequence, between two calls, with what was generated so far. */
  readonly signal?: AbortSignal | undefined;
}

export interface GeneratedToken extends TokenLogProb {
  /** The most likely tokens, where the request asks for them. */
  readonly top?: readonly TokenLogProb[];
}

/**
 * A stop token, a stop string, as many tokens as were asked for, the end of the model's context, of the memory for keys
 * and values, or an abort.
 */
export type EndReason = 'eos' | 'stop' | 'length' | 'context' | 'cache' | 'aborted';

export interface Generated {
  readonly tokens: readonly GeneratedToken[];
  /** Of the prompt's tokens from `scoreFrom` on. */
  readonly promptScores: readonly { readonly logProb: number; readonly isArgmax: boolean }[];
  readonly reason: EndReason;
  /** Tokens of the prompt that were in pages already. */
  readonly foundTokens: number;
}

/** A request could not be computed; others go on. */
export class GenerateError extends Error {}

interface Entry {
  readonly request: GenerateRequest;
  readonly sequence: Sequence;
  readonly generated: GeneratedToken[];
  readonly resolve: (result: Generated) => void;
  readonly reject: (error: Error) => void;
}

export interface GeneratorCounts {
  readonly calls: number;
  /** Tokens that calls computed, those of recomputed sequences included. */
  readonly computedTokens: number;
  /** Tokens of prompts that were found in pages. */
  readonly foundTokens: number;
  readonly preemptions: number;
  readonly evictions: number;
  /** Most pages that were held at a time, and all pages. */
  readonly peakPages: number;
  readonly pages: number;
}

export class Generator {
  private readonly stepper: Stepper;
  private readonly pool: PagePool;
  private readonly scheduler: Scheduler;
  private readonly entries = new Map<Sequence, Entry>();
  private loop: Promise<void> | undefined;
  private calls = 0;
  private computedTokens = 0;
  private foundTokens = 0;
  private peakPages = 0;

  constructor(stepper: Stepper) {
    this.stepper = stepper;
    this.pool = new PagePool(Math.floor(stepper.cacheTokens / PAGE_TOKENS));
    this.scheduler = new Scheduler(this.pool, stepper.limits);
  }

  get counts(): GeneratorCounts {
    const { calls, computedTokens, foundTokens, peakPages } = this;
    const { preemptions } = this.scheduler;
    const { evictions, total } = this.pool;
    return { calls, computedTokens, foundTokens, preemptions, evictions, peakPages, pages: total };
  }

  /** Longest context of the model, in tokens. */
  get maxLength(): number {
    return this.stepper.maxLength;
  }

  /** Longest sequence that the pages and a call have room for, in tokens. */
  get room(): number {
    return Math.min(this.pool.total * PAGE_TOKENS, this.stepper.limits.keys);
  }

  /**
   * Continues a prompt. Rejects with GenerateError where the prompt is longer than the model's context or than the
   * cache, or where a step computes no finite number for it.
   */
  generate(request: GenerateRequest): Promise<Generated> {
    const { prompt, maxNewTokens, scoreFrom, stopTokens = new Set(), minNewTokens = 0 } = request;
    const { maxLength } = this.stepper;
    const { room } = this;
    if (prompt.length > maxLength)
      return refused(`a prompt of ${prompt.length} tokens; the model's context has ${maxLength}`);
    if (prompt.length + Math.min(maxNewTokens, 1) > room)
      return refused(`a prompt of ${prompt.length} tokens; the cache has room for ${room}`);
    let sampling: Sampling;
    try {
      sampling = resolveSampling(request.sampling ?? {}, request.sample);
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : new Error(String(error)));
    }
    const isBanning = minNewTokens > 0 && stopTokens.size > 0;
    const choosesHere = needsLogits(request.sampling ?? {});
    if ((choosesHere || isBanning) && this.stepper.hasLogits !== true)
      return refused('the model was compiled without logits, which filters, penalties and top log-probabilities need');
    const sequence = new Sequence({
      prompt,
      sampling,
      needsLogits: choosesHere,
      ...(isBanning ? { banned: { tokens: stopTokens, atLeast: minNewTokens } } : {}),
      ...(scoreFrom === undefined ? {} : { scoreFrom }),
    });
    return new Promise<Generated>((resolve, reject) => {
      const entry: Entry = { request, sequence, generated: [], resolve, reject };
      if (request.signal?.aborted === true) return this.end(entry, 'aborted');
      this.entries.set(sequence, entry);
      this.scheduler.add(sequence);
      this.loop ??= this.run().finally(() => (this.loop = undefined));
    });
  }

  /** The next call, without sequences that are no longer wanted. */
  private next(): Step | undefined {
    for (const entry of [...this.entries.values()])
      if (entry.request.signal?.aborted === true) this.end(entry, 'aborted');
    return this.scheduler.next();
  }

  private async run(): Promise<void> {
    // Requests that are made together start together.
    await Promise.resolve();
    for (let step = this.next(); step !== undefined; step = this.next()) {
      this.peakPages = Math.max(this.peakPages, this.pool.held);
      this.calls++;
      this.computedTokens += step.inputs.tokens.length;
      try {
        await this.take(step, await this.stepper.step(step.inputs));
      } catch (error) {
        this.giveUp(step, error instanceof Error ? error : new Error(String(error)));
      }
    }
  }

  /** What a call returned goes to the sequences that asked. */
  private async take(step: Step, { logProb, isArgmax, drawn, drawnLogProb, logits }: StepOutputs): Promise<void> {
    this.scheduler.done(step);
    const appended: Promise<void>[] = [];
    step.asked.forEach(({ sequence, kind }, row) => {
      if (kind === 'score') sequence.scores.push({ logProb: logProb[row]!, isArgmax: isArgmax[row] === 1 });
      else if (sequence.needsLogits && logits !== undefined) {
        const width = logits.length / step.asked.length;
        appended.push(this.append(sequence, sequence.choose(logits.subarray(row * width, (row + 1) * width))));
      } else appended.push(this.append(sequence, { token: drawn[row]!, logProb: drawnLogProb[row]! }));
    });
    await Promise.all(appended);
  }

  private async append(sequence: Sequence, next: GeneratedToken): Promise<void> {
    const entry = this.entries.get(sequence);
    if (entry === undefined) return;
    const { request, generated } = entry;
    if (request.maxNewTokens === 0) return this.end(entry, 'length');
    generated.push(next);
    sequence.tokens.push(next.token);
    const asked = await request.onToken?.(next);
    if (!this.entries.has(sequence)) return;
    if (asked !== undefined) this.end(entry, asked);
    else if (request.stopTokens?.has(next.token) === true) this.end(entry, 'eos');
    else if (generated.length >= request.maxNewTokens) this.end(entry, 'length');
    else if (sequence.tokens.length >= this.stepper.maxLength) this.end(entry, 'context');
    else if (sequence.tokens.length >= this.room) this.end(entry, 'cache');
  }

  private end({ sequence, generated, resolve }: Entry, reason: EndReason): void {
    this.scheduler.remove(sequence);
    this.entries.delete(sequence);
    this.foundTokens += sequence.found;
    resolve({ tokens: generated, promptScores: sequence.scores, reason, foundTokens: sequence.found });
  }

  /** The sequences whose rows failed end; all of the call where it is not known which. */
  private giveUp(step: Step, error: Error): void {
    const { rows } = error as { readonly rows?: readonly number[] };
    const failed = new Set(
      rows === undefined
        ? step.pieces.map(({ sequence }) => sequence)
        : rows.flatMap((row) => step.asked[row]?.sequence ?? []),
    );
    for (const sequence of failed) {
      const entry = this.entries.get(sequence);
      this.scheduler.remove(sequence);
      this.entries.delete(sequence);
      entry?.reject(error);
    }
  }
}

const refused = (what: string): Promise<never> => Promise.reject(new GenerateError(what));
