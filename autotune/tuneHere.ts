/** Tuning on this machine, wired up: addon, compiler, database, peak rates and search in one call. */
import type { KernelModule } from '../ir/kernel.js';
import type { Bucket, CpuIsa } from '../ir/plan.js';
import { loadAddon } from '../runtime/cpu/addon.js';
import { readSettings, type Settings } from '../settings.js';
import type { Rates } from './bucketCost.js';
import { FLOPS_PER_CYCLE, machineModel } from './costModel.js';
import { defaultDatabasePath, TuningDatabase } from './database.js';
import type { CpuFacts } from './legality.js';
import { Measurer, type Measure } from './measure.js';
import { tune, type TuneProgress, type TuneResult } from './search.js';
import { currentTarget } from './target.js';

export interface TuneHereOptions {
  readonly module: KernelModule;
  readonly buckets: readonly Bucket[];
  /** Largest micro-batch of the plan. */
  readonly capacity: Bucket;
  /** Instruction set of the plan's contractions, and what libraries are compiled for. */
  readonly isa: CpuIsa;
  readonly facts: CpuFacts;
  readonly threads: number;
  /** 0: nothing is measured or compiled; what the database knows is used. */
  readonly budgetSeconds: number;
  /** JSON-lines file; default: tuning.jsonl in the cache folder. */
  readonly databasePath?: string;
  readonly settings?: Settings;
  readonly onProgress?: (progress: TuneProgress) => void;
  readonly signal?: AbortSignal;
}

export interface TunedHere extends TuneResult {
  readonly databasePath: string;
  /** Lines of the database that could not be used. */
  readonly skippedLines: number;
  /** Peak rates: measured where there was a budget, else a guess from the instruction set at 2.5 GHz and 10 GB/s. */
  readonly rates: Rates;
}

const GUESSED_CLOCK = 2.5e9;
const GUESSED_BYTES = 10e9;

const nothing: Measure = () => {
  throw new Error('A search without a budget measures nothing.');
};

/** Throws UserError where the addon or a compiler is missing, or the database cannot be used. Releases what it took. */
export async function tuneHere(options: TuneHereOptions): Promise<TunedHere> {
  const { isa, threads, facts, capacity } = options;
  const settings = options.settings ?? readSettings();
  const target = await currentTarget(isa, threads, settings);
  const l3 = loadAddon().cpuInfo().l3Bytes;
  const database = TuningDatabase.open(options.databasePath ?? defaultDatabasePath(settings));
  let measurer: Measurer | undefined;
  try {
    if (options.budgetSeconds > 0) measurer = new Measurer({ isa, threads, capacity, l3Bytes: l3, settings });
    const rates: Rates = await measurer?.peaks() ?? { flopsPerSecond: threads * GUESSED_CLOCK * FLOPS_PER_CYCLE[isa], bytesPerSecond: GUESSED_BYTES };
    const result = await tune({
      module: options.module, buckets: options.buckets, facts, tokensCapacity: capacity.tokens, budgetSeconds: options.budgetSeconds,
      machine: machineModel({ ...facts, ...(l3 > 0 ? { l3 } : {}) }, { isa, threads, ...rates }), database, target, measure: measurer?.measure ?? nothing,
      ...(options.onProgress === undefined ? {} : { onProgress: options.onProgress }), ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    return { ...result, databasePath: database.path, skippedLines: database.skipped, rates };
  } finally {
    measurer?.release();
    database.close();
  }
}
