/** `tune`: replaces an artifact's schedules by the best found within a budget. */
import { SCORE } from '../ir/function.js';
import { tokensIn } from '../ir/scoring.js';
import { scoreOf, withSchedules } from '../ir/plan.js';
import { machineModel } from '../autotune/cpu/costModel.js';
import { Measurer } from '../autotune/cpu/measure.js';
import { CPU_RECORDS, currentTarget } from '../autotune/cpu/target.js';
import { tuneCpu } from '../autotune/cpu/tune.js';
import {
  defaultDatabasePath,
  gainOf,
  renderTable,
  statusLine,
  TuningDatabase,
  type TuneProgress,
  type TuneResult as SearchResult,
} from '../autotune/index.js';
import { UserError } from '../errors.js';
import { prepareArtifact, rebuildFor, saveArtifact, type ModelReference } from './artifact.js';
import { isArtifact } from './names.js';
import type { CpuModel, CudaModel } from './compile.js';
import { compileCudaKernels, cudaSources, emitCudaPlan } from './cudaKernels.js';
import { compileKernels, emitPlan } from './kernels.js';
import { detectMachine, scheduleFacts, upTo, type Machine } from './machine.js';
import { openArtifact } from './open.js';
import type { CpuSchedule } from '../ir/plan.js';
import { duration } from '../system/format.js';
import type { TuneRequest, TuneResult, Ui } from './requests.js';
import { tuneCudaModel } from './tuneCuda.js';

export interface TuneOptions {
  readonly budgetSeconds: number;
  readonly threads: number;
  /** JSON-lines file of measurements. Default: in the cache folder. */
  readonly database?: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: TuneProgress<CpuSchedule>) => void;
}

export interface TunedModel {
  readonly model: CpuModel;
  readonly search: SearchResult<CpuSchedule>;
}

/** The model with the best schedules found, and the measured cost of its buckets. */
export async function tuneCompiled(model: CpuModel, machine: Machine, options: TuneOptions): Promise<TunedModel> {
  const { isa } = model;
  const plan = scoreOf(model.plan);
  const facts = scheduleFacts(machine);
  const measurer = new Measurer({
    isa,
    threads: options.threads,
    capacity: plan.capacity,
    l3Bytes: machine.cpu.l3Bytes,
  });
  const database = TuningDatabase.open(options.database ?? defaultDatabasePath(), CPU_RECORDS);
  try {
    const result = await tuneCpu({
      module: plan,
      buckets: plan.buckets,
      facts: { ...facts, isas: upTo(machine, isa) },
      machine: machineModel(
        { ...facts, l3: machine.cpu.l3Bytes },
        { isa, threads: options.threads, ...(await measurer.peaks()) },
      ),
      capacity: plan.capacity.extents,
      budgetSeconds: options.budgetSeconds,
      database,
      target: await currentTarget(isa, options.threads),
      measure: measurer.measure,
      ...(options.onProgress === undefined ? {} : { onProgress: options.onProgress }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const bucketSeconds = result.bucketSeconds.length > 0 ? { bucketSeconds: result.bucketSeconds } : {};
    const tuned = withSchedules(model.plan, SCORE, { schedules: result.schedules, ...bucketSeconds });
    return { model: { ...model, plan: tuned }, search: result };
  } finally {
    database.close();
    measurer.release();
  }
}

export async function tuneModel(request: TuneRequest, ui: Ui): Promise<TuneResult> {
  const begin = performance.now();
  if (!isArtifact(request.artifact))
    throw new UserError(
      `${request.artifact}: is not an artifact`,
      `tilewright compile ${request.artifact} -o model.tw, then: tilewright tune model.tw`,
    );
  prepareArtifact(request.artifact);
  const machine = detectMachine();
  ui.phase('open artifact', request.artifact);
  const opened = await openArtifact(request.artifact, machine);
  if (opened.model.target === 'cuda') {
    const save: SaveCuda = (model, sources) => {
      saveArtifact(request.artifact, opened.reference, machine, model, sources, true);
    };
    return tuneForCuda(request, opened.model, opened.reference, save, ui, begin);
  }
  ui.phase('tune', `${duration(request.budgetSeconds)}, ${request.threads} threads`);
  const { model, search: found } = await tuneCompiled(opened.model, machine, {
    budgetSeconds: request.budgetSeconds,
    threads: request.threads,
    ...(request.database === undefined ? {} : { database: request.database }),
    ...(request.signal === undefined ? {} : { signal: request.signal }),
    onProgress: (progress) => {
      ui.step(Math.min(1, progress.elapsedSeconds / progress.budgetSeconds), statusLine(progress));
      ui.table(renderTable(measuredRows(progress.rows)));
    },
  });
  ui.phase('compile kernels', 'tuned');
  const emitted = emitPlan(scoreOf(model.plan));
  await compileKernels(emitted, model.isa);
  saveArtifact(request.artifact, opened.reference, machine, model, emitted.sources, true);
  return {
    artifact: request.artifact,
    trials: found.trials,
    reused: found.reused,
    gain: gainOfLargest(found.rows),
    table: renderTable(measuredRows(found.rows)),
    seconds: (performance.now() - begin) / 1000,
  };
}

type SaveCuda = (model: CudaModel, sources: ReturnType<typeof cudaSources>) => void;

async function tuneForCuda(
  request: TuneRequest,
  opened: CudaModel,
  reference: ModelReference,
  save: SaveCuda,
  ui: Ui,
  begin: number,
): Promise<TuneResult> {
  ui.phase('tune', `${duration(request.budgetSeconds)}, cuda:${opened.facts.arch}`);
  const { model, search, table, driverVersion } = await tuneCudaModel(
    opened,
    {
      budgetSeconds: request.budgetSeconds,
      rebuild: rebuildFor(request.artifact, reference, opened.arithmetic),
      ...(request.database === undefined ? {} : { database: request.database }),
      ...(request.signal === undefined ? {} : { signal: request.signal }),
    },
    ui,
  );
  ui.phase('compile kernels', 'tuned');
  const emitted = emitCudaPlan(scoreOf(model.plan));
  await compileCudaKernels(emitted, model.facts.arch, { driverVersion });
  save(model, cudaSources(emitted));
  return {
    artifact: request.artifact,
    trials: search.trials,
    reused: search.reused,
    gain: gainOfLargest(search.rows),
    table,
    seconds: (performance.now() - begin) / 1000,
  };
}

/** A short budget reaches few of the (kernel, bucket) pairs: the table is about those. */
const measuredRows = (rows: SearchResult<CpuSchedule>['rows']): SearchResult<CpuSchedule>['rows'] =>
  rows.filter((row) => row.bestSeconds !== undefined);

/** Time of a micro-batch of the largest measured bucket with default schedules ÷ with the tuned ones. */
function gainOfLargest(
  all: readonly Pick<SearchResult<unknown>['rows'][number], 'bucket' | 'count' | 'bestSeconds' | 'defaultSeconds'>[],
): number {
  const measured = all.filter((row) => gainOf(row) !== undefined);
  const largest = Math.max(0, ...measured.map((row) => tokensIn(row.bucket)));
  const rows = measured.filter((row) => tokensIn(row.bucket) === largest);
  const total = (seconds: (row: (typeof rows)[number]) => number): number =>
    rows.reduce((sum, row) => sum + row.count * seconds(row), 0);
  const best = total((row) => row.bestSeconds ?? 0);
  return best > 0 ? total((row) => row.defaultSeconds ?? 0) / best : 1;
}
