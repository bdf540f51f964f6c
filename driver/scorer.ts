/** The Scorer that eval/ asks for, over an executor. */
import type { MicroBatch, ScoredRows, Scorer } from '../eval/scorer.js';
import { type BatchWork } from './work.js';

/** A device with a model on it: what scoring and tracing ask of it. */
export interface Executor {
  readonly maxTokens: number;
  readonly maxRows: number;
  score(batch: MicroBatch): Promise<ScoredRows>;
  /** Runs a micro-batch once, measuring each launch. */
  profile(batch: MicroBatch): Promise<{ readonly launches: readonly { readonly path: string; readonly nanoseconds: number }[] }>;
  close(): Promise<void>;
}

/** Estimated seconds for a micro-batch of (tokens, rows, longest tree). */
export type BatchCost = (tokens: number, rows: number, longest: number) => number;

/** Adds cost, a context limit, and a count of the operations done. */
export class PlanScorer implements Scorer {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly cost: BatchCost;
  private readonly executor: Executor;
  private readonly work: BatchWork;
  private flops = 0;

  constructor(executor: Executor, options: { readonly maxLength: number; readonly cost: BatchCost; readonly work: BatchWork }) {
    this.executor = executor;
    this.maxTokens = executor.maxTokens;
    this.maxRows = executor.maxRows;
    this.maxLength = options.maxLength;
    this.cost = options.cost;
    this.work = options.work;
  }

  /** Floating-point operations of the model on everything scored so far. */
  get modelFlops(): number {
    return this.flops;
  }

  async score(batch: MicroBatch): Promise<ScoredRows> {
    const scored = await this.executor.score(batch);
    this.flops += this.work.flops(batch);
    return scored;
  }
}
