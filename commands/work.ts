/** The floating-point operations of a micro-batch: the basis of `modelFlops` and of shares of peak. */
import { contractionFlops } from '../autotune/work.js';
import type { MicroBatch } from '../evaluate/scorer.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { packedBytes, rowMaps } from '../ir/packing.js';
import type { SharedData } from '../ir/plan.js';
import { SCORED_ROWS, TOKENS } from '../ir/scoring.js';

/** What counts of a call: its tokens, how many each sees, and which are scored. */
export type ScoredTokens = Pick<MicroBatch, 'tokens' | 'position' | 'row'>;

/** A multiply-add counts as two. Attention counts visible pairs only. Epilogues are left out. */
export class BatchWork {
  private readonly kernels: readonly Kernel[];
  /** Operations of a token, and besides of a row that is scored, without attention. */
  readonly perToken: number;
  readonly perRow: number;
  /** Per pair of a query and a visible key, for queries that are tokens and for queries that are scored rows. */
  private readonly perTokenPair: number;
  private readonly perRowPair: number;

  constructor(module: Pick<KernelModule, 'kernels'>) {
    this.kernels = module.kernels;
    const sum = (rows: string, of: 'perRow' | 'perPair'): number =>
      module.kernels
        .filter((kernel) => kernel.rows === rows)
        .reduce((total, kernel) => total + contractionFlops(kernel)[of], 0);
    this.perToken = sum(TOKENS, 'perRow');
    this.perRow = sum(SCORED_ROWS, 'perRow');
    this.perTokenPair = sum(TOKENS, 'perPair');
    this.perRowPair = sum(SCORED_ROWS, 'perPair');
  }

  flops(batch: ScoredTokens): number {
    let tokenPairs = 0,
      rowPairs = 0;
    for (const depth of batch.position) tokenPairs += depth + 1;
    for (const row of batch.row) rowPairs += (batch.position[row] ?? 0) + 1;
    return (
      batch.tokens.length * this.perToken +
      batch.row.length * this.perRow +
      tokenPairs * this.perTokenPair +
      rowPairs * this.perRowPair
    );
  }

  /** Operations of the kernels whose path without its layer is `role`, over all layers. */
  flopsOfRole(role: string, batch: MicroBatch): number {
    const kernels = this.kernels.filter((kernel) => kernel.path.replace(/^layers\.\d+\./, '') === role);
    return kernels.length === 0 ? 0 : new BatchWork({ kernels }).flops(batch);
  }

  /** The same from sizes alone, for trees of average depth `longest`/2. */
  estimate(tokens: number, rows: number, longest: number): number {
    return (
      tokens * (this.perToken + (longest / 2) * this.perTokenPair) +
      rows * (this.perRow + (longest / 2) * this.perRowPair)
    );
  }

  /**
   * Seconds at an assumed rate, for packing before anything is measured. Only ratios matter. At SMALL_BATCH tokens,
   * half of a micro-batch's cost is reading weights and waiting at barriers.
   */
  seconds(tokens: number, rows: number, longest: number): number {
    const fixed = SMALL_BATCH * (this.perToken + this.perRow);
    return (this.estimate(tokens, rows, longest) + fixed) / ASSUMED_FLOPS;
  }
}

const SMALL_BATCH = 16;
const ASSUMED_FLOPS = 200e9;

/** Bytes of all weights in the layouts of the kernels, without tables that stay mapped. */
export function packedWeightBytes(plan: Pick<SharedData, 'weights'>): number {
  const rowMap = rowMaps();
  return plan.weights.reduce(
    (sum, weight) => sum + (weight.layout === 'rows' ? 0 : packedBytes(weight, rowMap(weight).length)),
    0,
  );
}
