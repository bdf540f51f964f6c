/** The Scorer that eval/ asks for, over an executor. */
import type { MicroBatch, ScoredRows, Scorer } from '../eval/scorer.js';
import type { ScoredBatch } from '../runtime/scoring.js';
import type { PhaseSpan } from './phases.js';
import { Timeline } from './timeline.js';
import { type BatchWork } from './work.js';

/** Devices with a model on them: what scoring and tracing ask of them. */
export interface Executor {
  readonly maxTokens: number;
  readonly maxRows: number;
  /** Micro-batches to ask of it at a time; 2 where absent: one is computed, one waits beside it. */
  readonly inFlight?: number;
  /** Devices, or pipelines of them, that compute side by side, and devices in all; 1 where absent. */
  readonly replicas?: number;
  readonly devices?: number;
  /** What its processes did while they loaded. */
  readonly phases?: readonly PhaseSpan[];
  score(batch: MicroBatch): Promise<ScoredBatch>;
  /** Runs a micro-batch once, measuring each launch. */
  profile(
    batch: MicroBatch,
  ): Promise<{ readonly launches: readonly { readonly path: string; readonly nanoseconds: number }[] }>;
  close(): Promise<void>;
}

export const inFlightOf = ({ inFlight = 2 }: Pick<Executor, 'inFlight'>): number => inFlight;

/** Estimated seconds for a micro-batch of (tokens, rows, longest tree). */
export type BatchCost = (tokens: number, rows: number, longest: number) => number;

/** Adds cost, a context limit, a count of the operations done, and a record of what devices did. */
export class PlanScorer implements Scorer {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly cost: BatchCost;
  private readonly executor: Executor;
  private readonly work: BatchWork;
  private flops = 0;
  private asked = 0;
  /** When which device was busy with what was scored so far. */
  readonly timeline = new Timeline();

  constructor(
    executor: Executor,
    options: { readonly maxLength: number; readonly cost: BatchCost; readonly work: BatchWork },
  ) {
    this.executor = executor;
    this.maxTokens = executor.maxTokens;
    this.maxRows = executor.maxRows;
    this.maxLength = options.maxLength;
    this.cost = options.cost;
    this.work = options.work;
  }

  get inFlight(): number {
    return inFlightOf(this.executor);
  }

  get replicas(): number {
    return this.executor.replicas ?? 1;
  }

  get devices(): number {
    return this.executor.devices ?? 1;
  }

  /** Floating-point operations of the model on everything scored so far. */
  get modelFlops(): number {
    return this.flops;
  }

  async score(batch: MicroBatch): Promise<ScoredRows> {
    const index = this.asked++;
    const scored = await this.executor.score(batch);
    this.timeline.add(index, batch, scored.spans);
    this.flops += this.work.flops(batch);
    return scored;
  }
}
