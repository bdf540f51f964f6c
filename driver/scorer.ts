/** The Scorer that eval/ asks for, over a CPU executor. */
import type { MicroBatch, ScoredRows, Scorer } from '../eval/scorer.js';
import type { CpuExecutor } from '../runtime/cpu/executor.js';
import { type BatchWork } from './work.js';

/** Estimated seconds for a micro-batch of (tokens, rows, longest tree). */
export type BatchCost = (tokens: number, rows: number, longest: number) => number;

/** Adds cost, a context limit, and a count of the operations done. */
export class PlanScorer implements Scorer {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly cost: BatchCost;
  private readonly executor: CpuExecutor;
  private readonly work: BatchWork;
  private flops = 0;

  constructor(executor: CpuExecutor, options: { readonly maxLength: number; readonly cost: BatchCost; readonly work: BatchWork }) {
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
